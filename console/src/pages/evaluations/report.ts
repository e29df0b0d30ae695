// The report of an evaluation as orsay eval writes it. A reader takes fields that it does not know as they are.
import { useQuery } from "@tanstack/react-query";

import { get } from "../../api/request";
import type { EvaluatedEpisode, EvaluationItem, SavedEvaluation } from "../../api/types";

export function useEvaluations() {
  return useQuery({
    queryKey: ["evaluations"],
    queryFn: ({ signal }) => get<EvaluationItem[]>("evaluations", { limit: 500 }, signal),
    refetchOnMount: "always",
    refetchInterval: 15_000,
  });
}

export function useEvaluation(id: string | undefined) {
  return useQuery({
    queryKey: ["evaluation", id],
    queryFn: ({ signal }) => get<SavedEvaluation>(`evaluations/${encodeURIComponent(id ?? "")}`, {}, signal),
    enabled: Boolean(id),
    staleTime: 60_000,
    refetchInterval: (query) => (query.state.data?.ended_at === null ? 10_000 : false),
  });
}

/** The attempts at each task that were scored, in the order of the report. */
export function byTask(episodes: readonly EvaluatedEpisode[]): Map<string, EvaluatedEpisode[]> {
  const found = new Map<string, EvaluatedEpisode[]>();
  for (const episode of episodes) {
    const others = found.get(episode.task);
    if (others) others.push(episode);
    else found.set(episode.task, [episode]);
  }
  return found;
}

export function scored(episodes: readonly EvaluatedEpisode[]): (EvaluatedEpisode & { reward: number })[] {
  return episodes.filter((episode): episode is EvaluatedEpisode & { reward: number } => episode.reward !== null && episode.fault === null);
}

export function total(counts: Record<string, number>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
