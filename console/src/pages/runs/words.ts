// Metrics with their intervals, in words.
import { NONE, number, percent } from "../../format";

/** `0.53 (0.47 to 0.59)`. */
export function withInterval(
  mean: number | null | undefined,
  low: number | null | undefined,
  high: number | null | undefined,
  format: (value: number | null | undefined) => string = number,
): string {
  if (mean === null || mean === undefined) return NONE;
  if (low === null || low === undefined || high === null || high === undefined) return format(mean);
  return `${format(mean)} (${format(low)} to ${format(high)})`;
}

/** A difference with its sign, so that it cannot be taken for a metric of its own. */
export function signed(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  return value > 0 ? `+${number(value)}` : number(value).replace("-", "−");
}

export function share(value: number | null | undefined): string {
  return percent(value);
}
