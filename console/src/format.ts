// Formats of numbers, times and names. Missing values are an en dash, everywhere.


export const NONE = "–";

// by digits: to make one takes a hundred times as long as to use it
const formats = new Map<number, Intl.NumberFormat>();

function formatOf(digits: number): Intl.NumberFormat {
  const known = formats.get(digits);
  if (known) return known;
  const made = new Intl.NumberFormat("en", { maximumFractionDigits: digits });
  formats.set(digits, made);
  return made;
}

/** At most `digits` significant digits after the point, without trailing zeros. */
export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  return formatOf(digits).format(value);
}

/** A whole number with thousands marked. */
export function count(value: number | null | undefined): string {
  return number(value, 0);
}

/** A share of 1 as a percentage. */
export function percent(value: number | null | undefined, digits = 1): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  return `${number(value * 100, digits)}%`;
}

/** A span in the largest unit that suits: `340 ms`, `12.5 s`, `3 min 20 s`, `5 h 2 min`, `3 d 4 h`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 0.001) return `${number(seconds * 1e6, 0)} µs`;
  if (seconds < 1) return `${number(seconds * 1000, seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${number(seconds, 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return parts(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return parts(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return parts(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

function parts(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A size in bytes in the largest unit that suits: `512 B`, `1.5 GiB`. */
export function size(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return NONE;
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  return `${number(bytes / 1024 ** power, 1)} ${UNITS[power]}`;
}

/** A time of the API, in seconds since 1970, as milliseconds. */
export function milliseconds(at: number): number {
  return at * 1000;
}

/** Seconds between two times of the API; null while the second one is missing. */
export function secondsBetween(from: number | null | undefined, to: number | null | undefined): number | null {
  return from && to ? to - from : null;
}

/** `2026-03-01 14:05:09`, in the person's own zone. */
export function dateTime(at: number | null | undefined): string {
  if (!at) return NONE;
  const date = new Date(milliseconds(at));
  const two = (value: number) => String(value).padStart(2, "0");
  return (
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}` +
    ` ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
  );
}

/** `12 s ago`, `5 min ago`, `3 h ago`, `2 d ago`. */
export function ago(at: number | null | undefined, now: number = Date.now()): string {
  if (!at) return NONE;
  const seconds = Math.max(0, (now - milliseconds(at)) / 1000);
  if (seconds < 1) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** A task for a person: `train/3`, or the hash of a task that no split holds. */
export function taskName(task: { task?: string | null; split?: string | null; task_index?: number | null }): string {
  if (task.split && task.task_index !== null && task.task_index !== undefined) {
    return `${task.split}/${task.task_index}`;
  }
  return task.task || NONE;
}

/** Long ids, so that they fit into a table: the first characters tell them apart. */
export function short(text: string, length = 10): string {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

/** JSON as a person reads it. */
export function pretty(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "null";
}
