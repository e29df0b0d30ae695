// A map: cells of equal size, row by row, thousands of them, each with a colour of its own. Drawn by hand, since that is a
// matter of a few milliseconds.
import { useComputedColorScheme } from "@mantine/core";
import { RotateCcw, ZoomIn, ZoomOut } from "lucide-react";
import {
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
  type Dispatch,
  type PointerEvent,
  type ReactNode,
  type SetStateAction,
} from "react";

import type { Table } from "./csv";
import { Frame, Tool } from "./Frame";
import { at, layOut, moved, shownWhole, zoomed, type Layout, type View } from "./mapView";
import { ink } from "./palette";

export interface HeatMapProps {
  title: string;
  /** Description of the map, for those who cannot see it. */
  summary: string;
  colours: readonly string[];
  /** Text for the cell under the pointer. */
  label: (index: number) => string;
  table: () => Table;
  file: string;
  legend?: ReactNode;
  onPick: (index: number) => void;
}

const CLICK = 4; // pixels that a pointer may move meanwhile

export function HeatMap({ title, summary, colours, label, table, file, legend, onPick }: HeatMapProps) {
  const scheme = useComputedColorScheme("light");
  const [width, setWidth] = useState(0);
  const layout = useMemo(() => layOut(colours.length, width), [colours.length, width]);
  const [view, setView] = useState<View>(shownWhole);
  const { background, text } = ink(scheme);
  const zoomBy = (factor: number) =>
    setView((before) => zoomed(layout, before, factor, layout.width / 2, layout.height / 2));
  const tools = (
    <>
      <Tool label={`Zoom into ${title}`} onClick={() => zoomBy(2)} icon={<ZoomIn size={16} />} />
      <Tool label={`Zoom out of ${title}`} onClick={() => zoomBy(0.5)} icon={<ZoomOut size={16} />} />
      <Tool label={`Show all of ${title}`} onClick={() => setView(shownWhole)} icon={<RotateCcw size={16} />} />
    </>
  );
  useLayoutEffect(() => setView(shownWhole), [layout]);
  const picture = () => {
    const canvas = document.createElement("canvas");
    draw(canvas, layout, view, colours, null, { ratio: 2, background, text });
    return canvas;
  };
  return (
    <Frame title={title} table={table} file={file} height={layout.height} legend={legend} tools={tools} picture={picture}>
      <Cells
        layout={layout}
        view={view}
        setView={setView}
        colours={colours}
        text={text}
        name={`${title}. ${summary}`}
        label={label}
        onPick={onPick}
        onWidth={setWidth}
      />
    </Frame>
  );
}

function Cells({
  layout,
  view,
  setView,
  colours,
  text,
  name,
  label,
  onPick,
  onWidth,
}: {
  layout: Layout;
  view: View;
  setView: Dispatch<SetStateAction<View>>;
  colours: readonly string[];
  text: string;
  name: string;
  label: (index: number) => string;
  onPick: (index: number) => void;
  onWidth: (width: number) => void;
}) {
  const container = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [pointed, setPointed] = useState<{ x: number; y: number } | null>(null);
  const held = useRef(new Map<number, { x: number; y: number }>()); // pointers that are down
  const far = useRef(0); // how far they moved
  const cell = pointed && at(layout, view, pointed.x, pointed.y);
  const isWhole = view.scale === 1;

  useLayoutEffect(() => {
    const element = container.current;
    if (element === null) return;
    onWidth(element.clientWidth);
    const watcher = new ResizeObserver(() => onWidth(element.clientWidth));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, [onWidth]);

  useLayoutEffect(() => {
    if (canvas.current !== null && layout.width > 0) {
      draw(canvas.current, layout, view, colours, cell, { ratio: window.devicePixelRatio, background: null, text });
    }
  }, [layout, view, colours, cell, text]);

  // the wheel scrolls the page; with Ctrl it zooms
  useEffect(() => {
    const element = canvas.current;
    const turned = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      setView((before) => zoomed(layout, before, Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY));
    };
    element?.addEventListener("wheel", turned, { passive: false });
    return () => element?.removeEventListener("wheel", turned);
  }, [layout, setView]);

  const here = ({ nativeEvent }: PointerEvent) => ({ x: nativeEvent.offsetX, y: nativeEvent.offsetY });
  const move = (event: PointerEvent) => {
    const now = here(event);
    const before = held.current.get(event.pointerId);
    if (before !== undefined) {
      held.current.set(event.pointerId, now);
      far.current += Math.hypot(now.x - before.x, now.y - before.y);
      const other = [...held.current].find(([id]) => id !== event.pointerId)?.[1];
      if (other === undefined) setView((whole) => moved(layout, whole, now.x - before.x, now.y - before.y));
      else {
        const factor = Math.hypot(now.x - other.x, now.y - other.y) / Math.hypot(before.x - other.x, before.y - other.y);
        setView((whole) => zoomed(layout, whole, factor, (now.x + other.x) / 2, (now.y + other.y) / 2));
      }
    }
    setPointed(event.pointerType === "touch" ? null : now);
  };
  const release = ({ pointerId }: PointerEvent) => void held.current.delete(pointerId);

  return (
    <div ref={container} className="map" style={{ height: layout.height }}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={name}
        style={{ touchAction: isWhole ? "pan-y" : "none" }}
        onPointerDown={(event) => {
          if (held.current.size === 0) far.current = 0;
          held.current.set(event.pointerId, here(event));
          if (!isWhole) event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={move}
        onPointerUp={release}
        onPointerCancel={release}
        onPointerLeave={(event) => {
          release(event);
          setPointed(null);
        }}
        onClick={({ nativeEvent: { offsetX, offsetY } }) => {
          const picked = at(layout, view, offsetX, offsetY);
          if (picked !== null && far.current < CLICK) onPick(picked);
        }}
      />
      {pointed && cell !== null && (
        <div className="map-label" aria-hidden style={beside(layout, pointed)}>
          {label(cell)}
        </div>
      )}
    </div>
  );
}

/** Beside the pointer, on the side where there is room. */
function beside({ width, height }: Layout, { x, y }: { x: number; y: number }) {
  return {
    ...(x < width / 2 ? { left: x + 12 } : { right: width - x + 12 }),
    ...(y < height / 2 ? { top: y + 12 } : { bottom: height - y + 12 }),
  };
}

function draw(
  canvas: HTMLCanvasElement,
  { width, height, size, columns }: Layout,
  { scale, left, top }: View,
  colours: readonly string[],
  marked: number | null,
  { ratio, background, text }: { ratio: number; background: string | null; text: string },
): void {
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const pen = canvas.getContext("2d");
  if (pen === null) return;
  if (background !== null) {
    pen.fillStyle = background;
    pen.fillRect(0, 0, canvas.width, canvas.height);
  }
  pen.scale(ratio, ratio);
  const side = size * scale;
  const gap = side > 7 ? 1 : 0;
  const corner = (index: number) => [1 + (index % columns) * side - left, 1 + Math.floor(index / columns) * side - top] as const;
  colours.forEach((colour, index) => {
    const [x, y] = corner(index);
    if (x + side < 0 || y + side < 0 || x > width || y > height) return;
    pen.fillStyle = colour;
    pen.fillRect(x, y, side - gap, side - gap);
  });
  if (marked === null) return;
  const [x, y] = corner(marked);
  pen.strokeStyle = text;
  pen.lineWidth = 2;
  pen.strokeRect(x, y, side - gap, side - gap);
}
