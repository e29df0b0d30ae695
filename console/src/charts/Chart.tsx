// One plot with axes: drawn by ECharts, and zoomed with buttons, pointer or fingers.
import { useComputedColorScheme } from "@mantine/core";
import { RotateCcw, ZoomIn, ZoomOut } from "lucide-react";
import { useEffect, useMemo, useRef, type ReactNode } from "react";

import type { Table } from "./csv";
import { init, type ECharts, type EChartsCoreOption } from "./echarts";
import { Frame, Tool } from "./Frame";
import { UNSEEN_TOOLBOX } from "./options";
import { ink, type Scheme } from "./palette";

export interface ChartProps {
  title: string;
  /** Description of the plot, for those who cannot see it. */
  summary: string;
  option: (scheme: Scheme) => EChartsCoreOption;
  table: () => Table;
  file: string;
  legend?: ReactNode;
}

const HEIGHT = 280;

export function Chart({ title, summary, option, table, file, legend }: ChartProps) {
  const scheme = useComputedColorScheme("light");
  const chart = useRef<ECharts | null>(null);
  const { background } = ink(scheme);
  const tools = (
    <>
      <Tool label={`Zoom into ${title}`} onClick={() => zoomBy(chart.current, 0.5)} icon={<ZoomIn size={16} />} />
      <Tool label={`Zoom out of ${title}`} onClick={() => zoomBy(chart.current, 2)} icon={<ZoomOut size={16} />} />
      <Tool
        label={`Show all of ${title}`}
        onClick={() => chart.current && setZoom(chart.current, 0, 100)}
        icon={<RotateCcw size={16} />}
      />
    </>
  );
  return (
    <Frame
      title={title}
      table={table}
      file={file}
      height={HEIGHT}
      legend={legend}
      tools={tools}
      picture={() => chart.current?.renderToCanvas({ pixelRatio: 2, backgroundColor: background }) ?? null}
    >
      <Drawn option={option} scheme={scheme} label={`${title}. ${summary}`} chart={chart} />
    </Frame>
  );
}

function Drawn({
  option,
  scheme,
  label,
  chart,
}: {
  option: (scheme: Scheme) => EChartsCoreOption;
  scheme: Scheme;
  label: string;
  chart: { current: ECharts | null };
}) {
  const container = useRef<HTMLDivElement>(null);
  const built = useMemo(() => option(scheme), [option, scheme]);
  const latest = useRef(built);
  latest.current = built;
  const held = useRef(false); // whether dragging marks the part to zoom to

  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    const width = () => element.clientWidth;
    const watcher = new ResizeObserver(() => {
      // it also tells the size at which the plot was drawn just now
      if (width() !== chart.current?.getWidth()) chart.current?.resize({ width: width(), height: HEIGHT });
    });
    // to take hold of the pointer draws everything once more, so that waits until there is one
    const hold = () => {
      if (held.current || chart.current === null) return;
      held.current = true;
      holdPointer(chart.current);
    };
    const draw = () => {
      const made = init(element, null, { renderer: "canvas", width: width(), height: HEIGHT });
      chart.current = made;
      made.setOption(latest.current, { notMerge: true });
      made.getZr().on("dblclick", () => setZoom(made, 0, 100));
      watcher.observe(element);
    };
    const undo = firstWhatIsSeen(element, draw);
    element.addEventListener("pointermove", hold, { capture: true });
    element.addEventListener("pointerdown", hold, { capture: true });
    return () => {
      undo();
      watcher.disconnect();
      element.removeEventListener("pointermove", hold, { capture: true });
      element.removeEventListener("pointerdown", hold, { capture: true });
      chart.current?.dispose();
      chart.current = null;
    };
  }, [chart]);

  const drawn = useRef(built);
  useEffect(() => {
    if (drawn.current === built) return;
    drawn.current = built;
    chart.current?.setOption(built, { notMerge: true });
    held.current = false;
  }, [chart, built]);

  return <div ref={container} className="plot" role="img" aria-label={label} />;
}

/** Does `draw` at once where the element is within the window, and else when what is there was shown. Undoes what is to come. */
function firstWhatIsSeen(element: HTMLElement, draw: () => void): () => void {
  const { top, bottom } = element.getBoundingClientRect();
  if (top < window.innerHeight && bottom > 0) {
    draw();
    return () => undefined;
  }
  let timer: ReturnType<typeof setTimeout> | undefined;
  const frame = requestAnimationFrame(() => {
    timer = setTimeout(draw);
  });
  return () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
}

/** Has dragging mark the part to zoom to; the toolbox that does it stays out of sight. */
function holdPointer(chart: ECharts): void {
  chart.setOption({ toolbox: UNSEEN_TOOLBOX });
  chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
}

function setZoom(chart: ECharts, start: number, end: number): void {
  chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start, end });
}

function zoomBy(chart: ECharts | null, factor: number): void {
  if (chart === null) return;
  const zooms = (chart.getOption() as { dataZoom?: { start?: number; end?: number }[] }).dataZoom;
  const { start = 0, end = 100 } = zooms?.[0] ?? {};
  const middle = (start + end) / 2;
  const half = Math.min(50, Math.max(0.5, ((end - start) / 2) * factor));
  const from = Math.min(Math.max(0, middle - half), 100 - 2 * half);
  setZoom(chart, from, from + 2 * half);
}
