// Colours of the plots. Every colour of a series stands out from its background by at least 3:1, and neighbours differ
// in lightness as well as in hue, so that they can be distinguished without colour vision.

export type Scheme = "light" | "dark";

const SERIES: Record<Scheme, readonly string[]> = {
  light: ["#0b62b8", "#c2410c", "#0f766e", "#9d174d", "#6d28d9", "#4d5a14", "#334155", "#a16207"],
  dark: ["#6cb6ff", "#ffa057", "#4fd6b8", "#ff8fc0", "#bd9bff", "#cddc5c", "#cbd5e1", "#f2c94c"],
};

export function seriesColour(scheme: Scheme, index: number): string {
  const colours = SERIES[scheme];
  return colours[index % colours.length] ?? "#888888";
}

/** Colours of everything but data: text, axes, grid, background. */
export interface Ink {
  text: string;
  axis: string;
  grid: string;
  background: string;
  surface: string;
}

const INK: Record<Scheme, Ink> = {
  light: { text: "#343a40", axis: "#868e96", grid: "#e9ecef", background: "#ffffff", surface: "#ffffff" },
  dark: { text: "#dee2e6", axis: "#828a94", grid: "#3b3f45", background: "#1f2226", surface: "#2e3238" },
};

export function ink(scheme: Scheme): Ink {
  return INK[scheme];
}

// From "seldom" to "always": the ends of viridis, which grow evenly in lightness.
const RAMP: readonly [number, number, number][] = [
  [68, 57, 131],
  [49, 104, 142],
  [33, 145, 140],
  [94, 201, 98],
  [240, 229, 60],
];

/** The colour of a share between 0 and 1. */
export function rampColour(share: number): string {
  const position = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const low = RAMP[Math.floor(position)] ?? [0, 0, 0];
  const high = RAMP[Math.ceil(position)] ?? low;
  const part = position - Math.floor(position);
  const mixed = low.map((value, channel) => Math.round(value + ((high[channel] ?? value) - value) * part));
  return `rgb(${mixed.join(", ")})`;
}

/** A task that was tried and never solved: apart from every colour of the ramp. */
export const NEVER = "#d6336c";
