// Options of ECharts for each kind of plot.
import { dateTime, number } from "../format";
import type { EChartsCoreOption } from "./echarts";
import { ink, seriesColour, type Scheme } from "./palette";

/** One curve. `low` and `high` make a band around it; a missing value breaks it. */
export interface Curve {
  name: string;
  points: { x: number; y: number | null; low?: number | null; high?: number | null; n?: number }[];
}

export interface CurvesAxis {
  kind: "step" | "time";
  /** Label of a value on the axis; `step 3` without it. */
  label?: (x: number) => string;
  /** Format of a value of the curves. */
  format: (value: number) => string;
  /** The least and the greatest value that can be; the axis does not go beyond them. */
  bounds?: [number, number];
}

function axisStyle(scheme: Scheme) {
  const { text, axis, grid } = ink(scheme);
  return {
    axisLine: { lineStyle: { color: axis } },
    axisTick: { lineStyle: { color: axis } },
    axisLabel: { color: text, fontSize: 11, hideOverlap: true },
    nameTextStyle: { color: text, fontSize: 11 },
    splitLine: { lineStyle: { color: grid } },
  };
}

function tooltipStyle(scheme: Scheme) {
  const { text, axis, surface } = ink(scheme);
  return {
    renderMode: "richText" as const,
    confine: true,
    backgroundColor: surface,
    borderColor: axis,
    textStyle: { color: text, fontSize: 12 },
  };
}

const FRAME = { left: 8, right: 14, top: 16, bottom: 38, containLabel: true };

/** Zoom by dragging over a plot; its buttons are the page's own. */
export const UNSEEN_TOOLBOX = { left: -200, top: -200, feature: { dataZoom: { yAxisIndex: "none" } } };

function zooms(scheme: Scheme) {
  const { axis, grid, text } = ink(scheme);
  return [
    // the wheel scrolls the page; with Ctrl, or two fingers, it zooms
    { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, moveOnMouseMove: false },
    {
      type: "slider",
      filterMode: "none",
      height: 14,
      bottom: 4,
      borderColor: grid,
      fillerColor: `${axis}44`,
      dataBackground: { lineStyle: { color: axis }, areaStyle: { color: grid } },
      textStyle: { color: text, fontSize: 10 },
      showDetail: false,
      brushSelect: false,
    },
  ];
}

/** Curves with bands over steps or time. */
export function curvesOption(curves: Curve[], axis: CurvesAxis, scheme: Scheme): EChartsCoreOption {
  const style = axisStyle(scheme);
  const series = curves.flatMap((curve, index) => {
    const color = seriesColour(scheme, index);
    const lone = curve.points.length === 1;
    const line = {
      type: "line",
      name: curve.name,
      data: curve.points.map(({ x, y }) => [x, y]),
      color,
      lineStyle: { width: 2, type: index % 2 ? "dashed" : "solid" },
      symbol: "circle",
      symbolSize: lone ? 9 : 5,
      showSymbol: curve.points.length <= 40,
      z: 3,
    };
    if (!curve.points.some(({ low, high }) => isNumber(low) && isNumber(high))) return [line];
    return [bandOf(curve, color), line];
  });
  return {
    animation: false,
    grid: FRAME,
    tooltip: {
      ...tooltipStyle(scheme),
      trigger: "axis",
      formatter: (shown: { axisValue: number }[]) => curvesTooltip(curves, axis, shown[0]?.axisValue ?? 0),
    },
    dataZoom: zooms(scheme),
    xAxis: { type: axis.kind === "time" ? "time" : "value", ...(axis.kind === "time" ? {} : { min: "dataMin", max: "dataMax", minInterval: 1 }), ...style, splitLine: { show: false } },
    yAxis: {
      type: "value",
      scale: true,
      ...style,
      axisLabel: { ...style.axisLabel, formatter: (value: number) => axis.format(Math.abs(value) < 1e-9 ? 0 : value) },
      ...(axis.bounds ? { min: axis.bounds[0], max: axis.bounds[1] } : {}),
    },
    series,
  };
}

type Coordinates = [number, number];

/** Area between `low` and `high`, as one shape for each part without gaps; it extends the axes. */
function bandOf({ points }: Curve, color: string) {
  const parts: { x: number; low: number; high: number }[][] = [[]];
  for (const { x, low, high } of points) {
    if (isNumber(low) && isNumber(high)) parts.at(-1)?.push({ x, low, high });
    else parts.push([]);
  }
  const all = parts.flat();
  const [first, last] = [all[0]?.x ?? 0, all.at(-1)?.x ?? 0];
  const ends = [
    [first, all.reduce((least, { low }) => Math.min(least, low), Infinity)],
    [last, all.reduce((most, { high }) => Math.max(most, high), -Infinity)],
  ];
  return {
    type: "custom",
    silent: true,
    clip: true,
    color,
    tooltip: { show: false },
    data: ends,
    renderItem: ({ dataIndex }: { dataIndex: number }, { coord }: { coord: (value: Coordinates) => Coordinates }) => {
      if (dataIndex > 0) return null;
      const children = parts.map((part) => ({
        type: "polygon",
        shape: { points: [...part.map(({ x, high }) => coord([x, high])), ...part.map(({ x, low }) => coord([x, low])).reverse()] },
        style: { fill: color, opacity: 0.18 },
      }));
      return { type: "group", children };
    },
  };
}

function curvesTooltip(curves: Curve[], axis: CurvesAxis, x: number): string {
  const title = axis.label ? axis.label(x) : axis.kind === "time" ? dateTime(x / 1000) : `step ${x}`;
  const lines = curves.flatMap((curve) => {
    const point = curve.points.find((candidate) => candidate.x === x);
    if (!point || !isNumber(point.y)) return [];
    const band = isNumber(point.low) && isNumber(point.high) ? ` (${axis.format(point.low)} to ${axis.format(point.high)})` : "";
    const episodes = point.n === undefined ? "" : `, ${point.n} episodes`;
    return [`${curve.name}: ${axis.format(point.y)}${band}${episodes}`];
  });
  return [title, ...lines].join("\n");
}

/** Distribution of the rewards of each run: outlines of histograms, as shares of all episodes. */
export interface Spread {
  name: string;
  edges: number[];
  counts: number[];
}

export function spreadOption(spreads: Spread[], scheme: Scheme): EChartsCoreOption {
  const style = axisStyle(scheme);
  return {
    animation: false,
    grid: FRAME,
    tooltip: {
      ...tooltipStyle(scheme),
      trigger: "axis",
      axisPointer: { snap: false },
      formatter: (shown: { axisValue: number }[]) => spreadTooltip(spreads, shown[0]?.axisValue ?? 0),
    },
    dataZoom: zooms(scheme),
    xAxis: { type: "value", scale: true, ...style, splitLine: { show: false }, name: "" },
    yAxis: {
      type: "value",
      min: 0,
      ...style,
      axisLabel: { ...style.axisLabel, formatter: (value: number) => `${number(value * 100, 1)}%` },
    },
    series: spreads.map((spread, index) => {
      const total = sum(spread.counts) || 1;
      const shares = spread.counts.map((count) => count / total);
      const color = seriesColour(scheme, index);
      const [first, last] = [spread.edges[0] ?? 0, spread.edges.at(-1) ?? 0];
      return {
        type: "line",
        name: spread.name,
        step: "end",
        symbol: "none",
        color,
        lineStyle: { width: 1.5, type: index % 2 ? "dashed" : "solid" },
        areaStyle: { color, opacity: 0.2 },
        data: [
          [first, 0],
          ...shares.map((share, bin) => [spread.edges[bin] ?? 0, share]),
          [last, shares.at(-1) ?? 0],
          [last, 0],
        ],
      };
    }),
  };
}

function spreadTooltip(spreads: Spread[], x: number): string {
  return spreads
    .flatMap(({ name, edges, counts }) => {
      const bin = counts.findIndex((_, index) => x >= (edges[index] ?? 0) && x <= (edges[index + 1] ?? 0));
      if (bin < 0) return [];
      const share = (counts[bin] ?? 0) / (sum(counts) || 1);
      return [
        `${name}: ${number(share * 100, 1)}% (${counts[bin]} episodes) from ${number(edges[bin])} to ${number(edges[bin + 1])}`,
      ];
    })
    .join("\n");
}

export function sum(values: number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

export function isNumber(value: number | null | undefined): value is number {
  return typeof value === "number" && Number.isFinite(value);
}
