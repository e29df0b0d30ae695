// The reads that several pages share, as TanStack queries.
import { QueryClient, useQuery } from "@tanstack/react-query";

import { get, RequestError } from "./request";
import type { Environment, FaultEntry, ServerState } from "./types";

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

export function useServer() {
  return useQuery({
    queryKey: ["server"],
    queryFn: ({ signal }) => get<ServerState>("server", {}, signal),
    refetchInterval: 15_000,
  });
}

export function useEnvironments() {
  return useQuery({
    queryKey: ["environments"],
    queryFn: ({ signal }) => get<Environment[]>("environments", {}, signal),
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
