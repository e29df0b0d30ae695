// Dates and times as a browser's inputs have them, without a time zone, and as JSON schema wants them: RFC 3339, whose times
// name their zone. What is typed is meant in the person's zone, and what came with another one is shown in theirs.

export type Moment = "date" | "date-time" | "time";

/** Stands for a date or time of which a part is missing; it fits no format. */
export const INCOMPLETE = "incomplete";

const ZONE = /(?:z|[+-]\d\d:?\d\d)$/i;
const DAY = /^\d{4}-\d\d-\d\d$/;
const CLOCK = /^\d\d:\d\d(?::\d\d)?/;

/** Text of the input for a value; empty for an invalid one. */
export function toField(kind: Moment, value: unknown): string {
  if (typeof value !== "string" || value === INCOMPLETE) return "";
  if (kind === "date") return DAY.test(value) ? value : "";
  if (kind === "time" && !CLOCK.test(value)) return "";
  const at = new Date(kind === "time" ? `${today()}T${value}` : value);
  if (Number.isNaN(at.getTime())) return "";
  return kind === "time" ? clockOf(at) : `${dayOf(at)}T${clockOf(at)}`;
}

/** The value for what the input shows; undefined when it is empty. */
export function fromField(kind: Moment, shown: string): string | undefined {
  if (shown === "") return undefined;
  if (kind === "date") return shown;
  const whole = /^(?:.*T)?\d\d:\d\d$/.test(shown) ? `${shown}:00` : shown;
  return whole + zoneAt(new Date(kind === "time" ? `${today()}T${whole}` : whole));
}

/** True if a time names its zone, as the formats require. */
export function hasZone(value: string): boolean {
  return ZONE.test(value);
}

function today(): string {
  return dayOf(new Date());
}

function dayOf(at: Date): string {
  return [String(at.getFullYear()).padStart(4, "0"), two(at.getMonth() + 1), two(at.getDate())].join("-");
}

/** Without seconds where there are none, as browsers have it. */
function clockOf(at: Date): string {
  const parts = [at.getHours(), at.getMinutes(), at.getSeconds()];
  return (parts[2] ? parts : parts.slice(0, 2)).map(two).join(":");
}

/** `+02:00`, as it is in the person's zone at that time; `Z` for none. */
function zoneAt(at: Date): string {
  const minutes = -Math.round(at.getTimezoneOffset());
  if (!minutes) return "Z";
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

function two(part: number): string {
  return String(part).padStart(2, "0");
}
