// Geometry of a map: as wide as possible, with cells large enough to click, and the visible part of it.

const LARGEST = 24; // pixels of a cell
const SMALLEST = 3;
const TALLEST = 520; // pixels of a map, unless its cells would be too small

/** In pixels, but for the number of columns and of cells. */
export interface Layout {
  width: number;
  height: number;
  size: number;
  columns: number;
  cells: number;
}

/** Few cells do not fill the width: they stay as wide as they are high. */
export function layOut(cells: number, width: number): Layout {
  const size = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(Math.sqrt((width * TALLEST) / Math.max(1, cells)))));
  const columns = Math.max(1, Math.floor((width - 2) / size));
  return { width, height: Math.ceil(cells / columns) * size + 2, size, columns, cells };
}

/** Zoom factor, and the pixels beyond the left and the upper edge. */
export interface View {
  scale: number;
  left: number;
  top: number;
}

export const shownWhole: View = { scale: 1, left: 0, top: 0 };

const LARGEST_SCALE = 40;

/** The cell at a point; null beside them. */
export function at({ size, columns, cells }: Layout, { scale, left, top }: View, x: number, y: number): number | null {
  const column = Math.floor((x - 1 + left) / (size * scale));
  const row = Math.floor((y - 1 + top) / (size * scale));
  const index = row * columns + column;
  return column >= 0 && column < columns && row >= 0 && index < cells ? index : null;
}

/** Larger by `factor`, with what is at that point staying there. */
export function zoomed(layout: Layout, view: View, factor: number, x: number, y: number): View {
  const scale = Math.min(LARGEST_SCALE, Math.max(1, view.scale * factor));
  const by = scale / view.scale;
  return within(layout, { scale, left: (x + view.left) * by - x, top: (y + view.top) * by - y });
}

export function moved(layout: Layout, view: View, x: number, y: number): View {
  return within(layout, { ...view, left: view.left - x, top: view.top - y });
}

function within({ width, height }: Layout, { scale, left, top }: View): View {
  const between = (value: number, most: number) => Math.min(Math.max(0, value), most);
  return { scale, left: between(left, width * (scale - 1)), top: between(top, height * (scale - 1)) };
}
