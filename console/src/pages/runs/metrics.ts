// The metrics of a run that are drawn: what they are called, how they are read from a point, and as tables.
import type { Point, Series } from "../../api/types";
import type { Cell, Table } from "../../charts/csv";
import type { Curve } from "../../charts/options";
import { milliseconds, number } from "../../format";

export interface Metric {
  name: string;
  about: (success: number) => string;
  format: (value: number) => string;
  bounds?: [number, number];
  read: (point: Point) => { y: number | null; low: number | null; high: number | null };
}

function asShare(value: number): string {
  return `${number(value * 100, 1)}%`;
}

export const METRICS: Metric[] = [
  {
    name: "Reward",
    about: () => "Mean of the last reward of each episode, with a 95% interval.",
    format: number,
    read: ({ reward_mean: y, reward_low: low, reward_high: high }) => ({ y, low, high }),
  },
  {
    name: "Success rate",
    about: (success) => `Share of episodes with a reward of ${success} or more, with a 95% interval.`,
    format: asShare,
    bounds: [0, 1],
    read: ({ success: y, success_low: low, success_high: high }) => ({ y, low, high }),
  },
  {
    name: "Episode length",
    about: () => "Mean number of calls of an episode, with a 95% interval.",
    format: number,
    read: ({ length_mean: y, length_low: low, length_high: high }) => ({ y, low, high }),
  },
  {
    name: "Fault rate",
    about: () => "Share of episodes that were lost to a fault, with a 95% interval.",
    format: asShare,
    bounds: [0, 1],
    read: ({ fault_rate: y, fault_low: low, fault_high: high }) => ({ y, low, high }),
  },
];

export function curveOf(series: Series, metric: Metric): Curve {
  return {
    name: series.run,
    points: series.points.map((point) => ({ x: point.step ?? milliseconds(point.at), n: point.n, ...metric.read(point) })),
  };
}

/**
 * The running mean over the last `width` points, weighted by their episodes. It has no bands: those of single points would
 * tell too much uncertainty, and the points of a running mean are not independent.
 */
export function smoothed(curve: Curve, width: number): Curve {
  if (width <= 1) return curve;
  const points = curve.points.map((point, index) => {
    const span = curve.points.slice(Math.max(0, index + 1 - width), index + 1).filter(({ y }) => y !== null);
    const weight = span.reduce((sum, { n = 1 }) => sum + n, 0);
    const mean = span.reduce((sum, { y, n = 1 }) => sum + (y ?? 0) * n, 0) / weight;
    return { ...point, y: weight > 0 ? mean : null, low: null, high: null };
  });
  return { ...curve, points };
}

function when(point: Point): Cell[] {
  return [point.step, point.step === null ? new Date(milliseconds(point.at)).toISOString() : null];
}

export function metricTable(series: Series[], metric: Metric): Table {
  return {
    columns: ["run", "step", "time", "episodes", metric.name.toLowerCase(), "low", "high"],
    rows: series.flatMap(({ run, points }) =>
      points.map((point) => {
        const { y, low, high } = metric.read(point);
        return [run, ...when(point), point.n, y, low, high];
      }),
    ),
  };
}

const NUMBERS = [
  "reward_mean",
  "reward_low",
  "reward_high",
  "success",
  "success_low",
  "success_high",
  "length_mean",
  "length_low",
  "length_high",
  "fault_rate",
  "fault_low",
  "fault_high",
] as const;

/** Everything about every point. */
export function pointsTable(series: Series[]): Table {
  return {
    columns: ["run", "step", "time", "episodes", ...NUMBERS],
    rows: series.flatMap(({ run, points }) =>
      points.map((point) => [run, ...when(point), point.n, ...NUMBERS.map((name) => point[name])]),
    ),
  };
}

export function spreadTable(series: Series[]): Table {
  return {
    columns: ["run", "from", "to", "episodes"],
    rows: series.flatMap(({ run, histogram: { edges, counts } }) =>
      counts.map((count, bin) => [run, edges[bin], edges[bin + 1], count]),
    ),
  };
}
