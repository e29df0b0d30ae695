// The report of an evaluation as orsay eval writes it. A reader takes fields that it does not know as they are.
import { useQuery } from "@tanstack/react-query";

import { get } from "../../api/request";

export interface Estimate {
  mean: number;
  low: number | null;
  high: number | null;
}

export interface PassAtK extends Estimate {
  k: number;
}

export interface Quantiles {
  mean: number;
  p50: number;
  p95: number;
  max: number;
}

export interface TokenCounts {
  input: number;
  output: number;
  cached: number;
  reasoning: number;
}

export interface Episode {
  task: string;
  split: string;
  index: number;
  attempt: number;
  reward: number | null;
  finished: boolean;
  success: boolean | null;
  fault: string | null;
  fault_message: string;
  retried: string[];
  stop: string;
  turns: number;
  calls: number;
  tokens: TokenCounts;
  seconds: number;
  sid: string;
  rollout: string;
  trace: string;
}

export interface EvaluationSummary {
  n_tasks: number;
  k: number;
  episodes: number;
  planned: number;
  scored: number;
  mean_reward: Estimate | null;
  success: Estimate | null;
  success_threshold: number;
  pass_at_k: PassAtK[];
  faults: Record<string, number>;
  retried: Record<string, number>;
  stops: Record<string, number>;
  tokens: TokenCounts;
  turns: Quantiles | null;
  latency: Quantiles | null;
  seconds: Quantiles | null;
  wall_seconds: number;
}

interface Named {
  id: string;
  name: string;
  run: string;
  owner: string;
  environment: string;
  split: string | null;
  model: string;
  started_at: number;
  ended_at: number | null;
}

/** An evaluation in the list. */
export interface EvaluationItem extends Named {
  summary: EvaluationSummary;
}

export interface Report extends EvaluationItem {
  settings: Record<string, unknown>;
  episodes: Episode[];
}

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
    queryFn: ({ signal }) => get<Report>(`evaluations/${encodeURIComponent(id ?? "")}`, {}, signal),
    enabled: Boolean(id),
    staleTime: 60_000,
    refetchInterval: (query) => (query.state.data?.ended_at === null ? 10_000 : false),
  });
}

/** The attempts at each task that were scored, in the order of the report. */
export function byTask(episodes: readonly Episode[]): Map<string, Episode[]> {
  const found = new Map<string, Episode[]>();
  for (const episode of episodes) {
    const others = found.get(episode.task);
    if (others) others.push(episode);
    else found.set(episode.task, [episode]);
  }
  return found;
}

export function scored(episodes: readonly Episode[]): (Episode & { reward: number })[] {
  return episodes.filter((episode): episode is Episode & { reward: number } => episode.reward !== null && episode.fault === null);
}

export function total(counts: Record<string, number>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
