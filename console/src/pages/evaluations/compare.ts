// Two evaluations against each other, as orsay eval --compare does it: task by task, on the tasks that both have scored.
import type { EvaluatedEpisode, SavedEvaluation } from "../../api/types";
import { meanInterval, type Interval } from "../../charts/statistics";
import { byTask, scored } from "./report";

const EXACT = 13; // tasks: 8192 ways to swap
const DRAWS = 5000;

export interface TaskChange {
  task: string;
  a: number;
  b: number;
}

export interface Difference {
  a: number;
  b: number;
  difference: Interval;
  /** Two-sided p-value: probability of a difference at least this large if both were the same. */
  p: number;
}

export interface Comparison {
  tasks: TaskChange[];
  leftOut: number;
  reward: Difference;
  success: Difference;
}

/** Null where no task was scored in both. */
export function compare(a: SavedEvaluation, b: SavedEvaluation): Comparison | null {
  const ours = byTask(scored(a.episodes));
  const theirs = byTask(scored(b.episodes));
  const common = [...ours.keys()].filter((task) => theirs.has(task));
  if (common.length === 0) return null;
  const means = (of: Map<string, EvaluatedEpisode[]>, read: (episode: EvaluatedEpisode) => number) =>
    common.map((task) => average((of.get(task) ?? []).map(read)));
  const reward = (episode: EvaluatedEpisode) => episode.reward ?? 0;
  const success = (episode: EvaluatedEpisode) => (episode.success ? 1 : 0);
  const [one, other] = [means(ours, reward), means(theirs, reward)];
  return {
    tasks: common.map((task, index) => ({ task, a: one[index] ?? 0, b: other[index] ?? 0 })),
    leftOut: ours.size + theirs.size - 2 * common.length,
    reward: differenceBetween(one, other),
    success: differenceBetween(means(ours, success), means(theirs, success)),
  };
}

function average(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
}

function differenceBetween(a: readonly number[], b: readonly number[]): Difference {
  const differences = b.map((value, index) => value - (a[index] ?? 0));
  const found = meanInterval(differences) ?? { mean: 0, low: null, high: null };
  const same = differences.every((value) => value === differences[0]);
  return {
    a: average(a),
    b: average(b),
    difference: same ? { ...found, low: null, high: null } : found, // equal differences tell nothing about their spread
    p: swapTest(differences),
  };
}

/** Were both the same, each task's two results could as well be swapped: the share of swaps with at least this difference. */
export function swapTest(differences: readonly number[]): number {
  const changed = differences.filter((value) => value !== 0);
  if (changed.length === 0) return 1;
  const edge = Math.abs(changed.reduce((sum, value) => sum + value, 0)) * (1 - 1e-9); // rounding must not decide
  const beyond = (sign: (index: number) => boolean) =>
    Math.abs(changed.reduce((sum, value, index) => (sign(index) ? sum + value : sum - value), 0)) >= edge;
  if (changed.length <= EXACT) {
    const ways = 2 ** changed.length;
    let hits = 0;
    for (let way = 0; way < ways; way++) if (beyond((index) => ((way >> index) & 1) === 1)) hits += 1;
    return hits / ways;
  }
  const random = randomBits(1);
  let hits = 0;
  for (let draw = 0; draw < DRAWS; draw++) if (beyond(random)) hits += 1;
  return (hits + 1) / (DRAWS + 1);
}

/** The same bits each time, so that a page says the same each time (xorshift of Marsaglia, 2003). */
function randomBits(seed: number): () => boolean {
  let state = seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state & 0x8000) !== 0;
  };
}
