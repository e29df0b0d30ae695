// The reads that several pages share, as TanStack queries.
import { type Query, QueryClient, useQuery } from "@tanstack/react-query";

import { get, RequestError } from "./request";
import type { EnvironmentEntry, FaultEntry, ServerEntry } from "./types";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: true,
      // a refusal stays one; a server that restarts comes back
      retry: (count, error) => count < 2 && error instanceof RequestError && [0, 429, 503].includes(error.status),
      retryDelay: (count) => 500 * 2 ** count,
    },
  },
});

const JUST_MS = 1_000;

/** For `refetchOnMount`: a page shows what is there now, but does not ask again for what was asked while it was on its way. */
export function unlessJustLoaded({ state }: Pick<Query, "state">): "always" | false {
  return Date.now() - state.dataUpdatedAt < JUST_MS ? false : "always";
}

export function useServer() {
  return useQuery({
    queryKey: ["server"],
    queryFn: ({ signal }) => get<ServerEntry>("server", {}, signal),
    refetchInterval: 15_000,
  });
}

export function useEnvironments() {
  return useQuery({
    queryKey: ["environments"],
    queryFn: ({ signal }) => get<EnvironmentEntry[]>("environments", {}, signal),
    refetchInterval: 10_000,
  });
}

export function useFaults() {
  return useQuery({
    queryKey: ["faults"],
    queryFn: ({ signal }) => get<FaultEntry[]>("faults", {}, signal),
    refetchInterval: 5_000,
  });
}
