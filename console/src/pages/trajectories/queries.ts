// What the pages of trajectories ask the server.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { useEnvironments } from "../../api/queries";
import { get } from "../../api/request";
import type { Run, Summary, Trajectory, TrajectoryPage } from "../../api/types";
import { toParameters, type Filters } from "./filters";

const ROWS = 50;
const NEWS_MS = 10_000;
const SEARCH_MS = 1_000;

export function useTrajectories(filters: Filters, before: string | null) {
  return useQuery({
    queryKey: ["trajectories", filters, before],
    queryFn: ({ signal }) =>
      get<TrajectoryPage>("trajectories", { ...toParameters(filters), before, limit: ROWS }, signal),
    placeholderData: keepPreviousData,
    refetchOnMount: "always",
    // each search looks at some more of what was not searched yet
    refetchInterval: ({ state }) =>
      filters.text && state.data && state.data.unindexed > 0 ? SEARCH_MS : before === null ? NEWS_MS : false,
  });
}

export function useTrajectory(id: string | undefined) {
  return useQuery({
    queryKey: ["trajectory", id],
    queryFn: ({ signal }) => get<Trajectory>(`trajectories/${encodeURIComponent(id ?? "")}`, {}, signal),
    enabled: id !== undefined && id !== "",
    staleTime: 60_000,
    // one that still runs grows
    refetchInterval: (query) => (query.state.data?.ended_at === null ? 3_000 : false),
  });
}

/** The one below `id` in a list; asked for where the page of the list ends. */
export function useBelow(id: string, filters: Filters, wanted: boolean) {
  return useQuery({
    queryKey: ["below", id, filters],
    queryFn: ({ signal }) => get<TrajectoryPage>("trajectories", { ...toParameters(filters), before: id, limit: 1 }, signal),
    enabled: wanted,
    select: (page) => page.items[0]?.id,
  });
}

/** Other sessions of the same task, newest first. */
export function useRollouts(of: Pick<Summary, "environment" | "task" | "id"> | undefined) {
  return useQuery({
    queryKey: ["rollouts", of?.environment, of?.task],
    queryFn: ({ signal }) =>
      get<TrajectoryPage>("trajectories", { environment: of?.environment, task: of?.task, limit: 100 }, signal),
    enabled: of !== undefined,
    select: (page) => page.items.filter((item) => item.id !== of?.id),
  });
}

/** Environments by name: those that are hosted, and those that only the journal knows. */
export function useEnvironmentNames(): string[] {
  const hosted = useEnvironments().data ?? [];
  const runs = useRunNames().data ?? [];
  return useMemo(
    () => [...new Set([...hosted.map(({ name }) => name), ...runs.flatMap(({ environments }) => environments)])].sort(),
    [hosted, runs],
  );
}

/** Runs by name, for choosing one. */
export function useRunNames() {
  return useQuery({
    queryKey: ["runs", 500, 1],
    queryFn: ({ signal }) => get<Run[]>("runs", { limit: 500, success: 1 }, signal),
    staleTime: 30_000,
  });
}
