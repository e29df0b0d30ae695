// What ECharts is told for each kind of plot.
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
  /** What a place on the axis is called; `step 3` when it is not told. */
  label?: (x: number) => string;
  /** How a value of the curves is written. */
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
const UNSEEN_TOOLBOX = { left: -200, top: -200, feature: { dataZoom: { yAxisIndex: "none" } } };

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
    const band = {
      type: "line",
      stack: `band ${index}`,
      stackStrategy: "all",
      symbol: "none",
      silent: true,
      lineStyle: { opacity: 0 },
      tooltip: { show: false },
      color,
    };
    const bounds = curve.points.map(({ x, low, high }) =>
      isNumber(low) && isNumber(high) ? { x, low, size: high - low } : { x, low: null, size: null },
    );
    return [
      { ...band, data: bounds.map(({ x, low }) => [x, low]) },
      { ...band, data: bounds.map(({ x, size }) => [x, size]), areaStyle: { color, opacity: 0.18 } },
      line,
    ];
  });
  return {
    animation: false,
    grid: FRAME,
    toolbox: UNSEEN_TOOLBOX,
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

/** How the rewards of each run are spread: outlines of histograms, as shares of all episodes. */
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
    toolbox: UNSEEN_TOOLBOX,
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

/** A map of tasks: cells of equal size, row by row. */
export interface HeatCell {
  colour: string;
  label: string;
}

interface Drawing {
  coord: (value: [number, number]) => [number, number];
  size: (value: [number, number]) => [number, number];
}

export function heatOption(cells: HeatCell[], columns: number, scheme: Scheme): EChartsCoreOption {
  const rows = Math.max(1, Math.ceil(cells.length / columns));
  const axis = (length: number) => ({
    type: "value",
    min: 0,
    max: length,
    axisLine: { show: false },
    axisTick: { show: false },
    axisLabel: { show: false },
    splitLine: { show: false },
  });
  const zoom = { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false };
  return {
    animation: false,
    grid: { left: 1, right: 1, top: 1, bottom: 1 },
    tooltip: {
      ...tooltipStyle(scheme),
      formatter: ({ dataIndex }: { dataIndex: number }) => cells[dataIndex]?.label ?? "",
    },
    dataZoom: [
      { ...zoom, xAxisIndex: 0 },
      { ...zoom, yAxisIndex: 0 },
    ],
    xAxis: axis(columns),
    yAxis: { ...axis(rows), inverse: true },
    series: [
      {
        type: "custom",
        clip: true,
        progressive: 0,
        data: cells.map((_, index) => [index % columns, Math.floor(index / columns)]),
        renderItem: ({ dataIndex }: { dataIndex: number }, { coord, size }: Drawing) => {
          const [x, y] = coord([dataIndex % columns, Math.floor(dataIndex / columns)]);
          const [width, height] = size([1, 1]);
          const gap = width > 7 ? 1 : 0;
          return {
            type: "rect",
            shape: { x, y, width: width - gap, height: height - gap },
            style: { fill: cells[dataIndex]?.colour ?? "#888888" },
            emphasis: { style: { stroke: ink(scheme).text, lineWidth: 2 } },
          };
        },
      },
    ],
  };
}
