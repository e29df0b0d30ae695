// Queries of the pages of runs.
import { queryOptions, useQueries, useQuery } from "@tanstack/react-query";

import { unlessJustLoaded } from "../../api/queries";
import { get } from "../../api/request";
import type { RunSummary, Series } from "../../api/types";

export const MOST_COMPARED = 8;
const MOST_RUNS = 500;

/** Over how many points curves can be a running mean. */
export const SMOOTH: readonly number[] = [1, 3, 10, 30];

export function runsQuery(success = 1) {
  return queryOptions({
    queryKey: ["runs", MOST_RUNS, success],
    queryFn: ({ signal }) => get<RunSummary[]>("runs", { limit: MOST_RUNS, success }, signal),
  });
}

/** `success`: a reward of this or more is one. The server adds up much for it: `wanted` when what is drawn first has come. */
export function useRuns(success = 1, wanted = true) {
  return useQuery({
    ...runsQuery(success),
    enabled: wanted,
    refetchOnMount: unlessJustLoaded,
    refetchInterval: 15_000,
  });
}

export interface Choice {
  environment: string;
  split: string;
  /** A reward of this or more is a success. */
  success: number;
  /** Over how many points curves are a running mean; 1 draws the points themselves. */
  smooth: number;
}

/** Compared runs and the options of the comparison, from the address. */
export function readChoice(search: URLSearchParams): { names: string[]; choice: Choice } {
  return {
    names: [...new Set(search.getAll("run"))].slice(0, MOST_COMPARED),
    choice: {
      environment: search.get("environment") ?? "",
      split: search.get("split") ?? "",
      success: Number(search.get("success") ?? 1) || 0,
      smooth: SMOOTH.find((width) => String(width) === search.get("smooth")) ?? 1,
    },
  };
}

export function seriesQuery(run: string, { environment, split, success }: Omit<Choice, "smooth">) {
  return queryOptions({
    queryKey: ["series", run, environment, split, success],
    queryFn: ({ signal }) => get<Series>("runs/series", { run, environment, split, success }, signal),
  });
}

/** One query for each run, in their order. */
export function useSeries(runs: string[], choice: Omit<Choice, "smooth">) {
  return useQueries({
    queries: runs.map((run) => ({
      ...seriesQuery(run, choice),
      refetchOnMount: unlessJustLoaded,
      refetchInterval: 15_000,
    })),
  });
}
