// What the pages of runs ask the server.
import { useQueries, useQuery } from "@tanstack/react-query";

import { get } from "../../api/request";
import type { Run, Series } from "../../api/types";

const MOST_RUNS = 500;

/** `success`: a reward of this or more is one. */
export function useRuns(success = 1) {
  return useQuery({
    queryKey: ["runs", MOST_RUNS, success],
    queryFn: ({ signal }) => get<Run[]>("runs", { limit: MOST_RUNS, success }, signal),
    refetchOnMount: "always",
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

/** One query for each run, in their order. */
export function useSeries(runs: string[], { environment, split, success }: Omit<Choice, "smooth">) {
  return useQueries({
    queries: runs.map((run) => ({
      queryKey: ["series", run, environment, split, success],
      queryFn: ({ signal }: { signal: AbortSignal }) =>
        get<Series>("runs/series", { run, environment, split, success }, signal),
      refetchOnMount: "always",
      refetchInterval: 15_000,
    })),
  });
}
