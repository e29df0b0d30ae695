// Queries of the pages of trajectories.
import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { unlessJustLoaded, useEnvironments } from "../../api/queries";
import { get } from "../../api/request";
import type { EnvironmentEntry, Page, RunSummary, Summary, Trajectory } from "../../api/types";
import { toParameters, type Filters } from "./filters";

const ROWS = 25; // drawn in a moment, also on a slow machine
const NEWS_MS = 10_000;
const SEARCH_MS = 1_000;

export function trajectoriesQuery(filters: Filters, before: string | null) {
  return queryOptions({
    queryKey: ["trajectories", filters, before],
    queryFn: ({ signal }) =>
      get<Page>("trajectories", { ...toParameters(filters), before, limit: ROWS }, signal),
  });
}

export function useTrajectories(filters: Filters, before: string | null) {
  return useQuery({
    ...trajectoriesQuery(filters, before),
    placeholderData: keepPreviousData,
    refetchOnMount: unlessJustLoaded,
    // each search looks at some more of what was not searched yet
    refetchInterval: ({ state }) =>
      filters.text && state.data && state.data.unindexed > 0 ? SEARCH_MS : before === null ? NEWS_MS : false,
  });
}

export function trajectoryQuery(id: string | undefined) {
  return queryOptions({
    queryKey: ["trajectory", id],
    queryFn: ({ signal }) => get<Trajectory>(`trajectories/${encodeURIComponent(id ?? "")}`, {}, signal),
    staleTime: 60_000,
  });
}

export function useTrajectory(id: string | undefined) {
  return useQuery({
    ...trajectoryQuery(id),
    enabled: id !== undefined && id !== "",
    // one that still runs grows
    refetchInterval: (query) => (query.state.data?.ended_at === null ? 3_000 : false),
  });
}

/** The one below `id` in a list; asked for where the page of the list ends. */
export function useBelow(id: string, filters: Filters, wanted: boolean) {
  return useQuery({
    queryKey: ["below", id, filters],
    queryFn: ({ signal }) => get<Page>("trajectories", { ...toParameters(filters), before: id, limit: 1 }, signal),
    enabled: wanted,
    select: (page) => page.items[0]?.id,
  });
}

/** Other sessions of the same task, newest first. */
export function useRollouts(of: Pick<Summary, "environment" | "task" | "id"> | undefined) {
  return useQuery({
    queryKey: ["rollouts", of?.environment, of?.task],
    queryFn: ({ signal }) =>
      get<Page>("trajectories", { environment: of?.environment, task: of?.task, limit: 100 }, signal),
    enabled: of !== undefined,
    select: (page) => page.items.filter((item) => item.id !== of?.id),
  });
}

const NO_ENVIRONMENTS: EnvironmentEntry[] = [];
const NO_RUNS: RunSummary[] = [];

/** Environments by name: those that are hosted, and those that only the journal knows. `wanted` as in `useRunNames`. */
export function useEnvironmentNames(wanted: boolean): string[] {
  const hosted = useEnvironments().data ?? NO_ENVIRONMENTS;
  const runs = useRunNames(wanted).data ?? NO_RUNS;
  return useMemo(
    () => [...new Set([...hosted.map(({ name }) => name), ...runs.flatMap(({ environments }) => environments)])].sort(),
    [hosted, runs],
  );
}

/** Runs by name, for choosing one. The server adds up much for them: `wanted` when what the page is about has come. */
export function useRunNames(wanted: boolean) {
  return useQuery({
    queryKey: ["runs", 500, 1],
    queryFn: ({ signal }) => get<RunSummary[]>("runs", { limit: 500, success: 1 }, signal),
    enabled: wanted,
    staleTime: 30_000,
  });
}
