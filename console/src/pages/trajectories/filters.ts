// Filter of trajectories, kept in the address of the page: links, bookmarks and the back button keep it.
import { useCallback, useMemo, useState } from "react";

import type { Parameters } from "../../api/request";
import { useAddress } from "./address";

/** Names in the address are those of the API. */
export const FILTERS = [
  "text",
  "environment",
  "run",
  "split",
  "task",
  "step",
  "reward_min",
  "reward_max",
  "fault",
  "finished",
  "since",
  "until",
] as const;

export type FilterName = (typeof FILTERS)[number];
export type Filters = Partial<Record<FilterName, string>>;

/** Those that are shown only on demand. */
export const RARE: readonly FilterName[] = ["split", "task", "step", "since", "until"];

export const FILTER_LABELS: Record<FilterName, string> = {
  text: "Text",
  environment: "Environment",
  run: "Run",
  split: "Split",
  task: "Task",
  step: "Step",
  reward_min: "Reward from",
  reward_max: "Reward to",
  fault: "Fault",
  finished: "Finished",
  since: "Since",
  until: "Until",
};

export interface FilterState {
  filters: Filters;
  /** Changes some filters, and goes back to the newest; null takes one away. */
  change: (changed: Partial<Record<FilterName, string | null>>, replace?: boolean) => void;
  clear: () => void;
  /** Grows when all were cleared: what was typed and is on its way to the address does not count any more. */
  cleared: number;
}

/** The filters with what changes them, the same until they change; and where in the list one is. */
export function useFilters(): [FilterState, before: string | null] {
  const [search, changeAddress] = useAddress();
  const text = search.toString();
  const filters = useMemo(() => readFilters(new URLSearchParams(text)), [text]);
  const change = useCallback<FilterState["change"]>(
    (changed, replace) => changeAddress({ ...changed, before: null }, replace),
    [changeAddress],
  );
  const [cleared, setCleared] = useState(0);
  const clear = useCallback(() => {
    setCleared((before) => before + 1);
    changeAddress({ ...Object.fromEntries(FILTERS.map((name) => [name, null])), before: null });
  }, [changeAddress]);
  const state = useMemo(() => ({ filters, change, clear, cleared }), [filters, change, clear, cleared]);
  return [state, search.get("before")];
}

export function readFilters(search: URLSearchParams): Filters {
  const found: Filters = {};
  for (const name of FILTERS) {
    const value = search.get(name);
    if (value) found[name] = value;
  }
  return found;
}

/** The filters as the API takes them. A time without a zone is the person's own. */
export function toParameters(filters: Filters): Parameters {
  return { ...filters, since: instant(filters.since), until: instant(filters.until) };
}

/** Seconds since 1970. */
function instant(local: string | undefined): string | undefined {
  if (!local) return undefined;
  const date = new Date(local);
  return Number.isNaN(date.getTime()) ? undefined : String(date.getTime() / 1000);
}

export function toSearch(filters: Filters): string {
  const search = new URLSearchParams(filters as Record<string, string>).toString();
  return search ? `?${search}` : "";
}
