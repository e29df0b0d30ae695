// Intervals of 95% for metrics that the server sends without one.

const Z = 1.959963984540054; // 97.5% quantile of the normal distribution

export interface Interval {
  mean: number;
  low: number | null;
  high: number | null;
}

/** The mean of independent values with Student's interval; no bounds for one value, null for none. */
export function meanInterval(values: readonly number[]): Interval | null {
  const n = values.length;
  if (n === 0) return null;
  const mean = values.reduce((total, value) => total + value, 0) / n;
  if (n === 1) return { mean, low: null, high: null };
  const spread = values.reduce((total, value) => total + (value - mean) ** 2, 0);
  const half = studentQuantile(n - 1) * Math.sqrt(spread / (n - 1) / n);
  return { mean, low: mean - half, high: mean + half };
}

/** The difference of two independent means; half the width of its interval follows from theirs. */
export function differenceOf(one: Interval, other: Interval): Interval {
  const mean = other.mean - one.mean;
  if (one.low === null || one.high === null || other.low === null || other.high === null) {
    return { mean, low: null, high: null };
  }
  const half = Math.hypot((one.high - one.low) / 2, (other.high - other.low) / 2);
  return { mean, low: mean - half, high: mean + half };
}

/** True if an interval excludes 0; null where there is no interval. */
export function isClear({ low, high }: Interval): boolean | null {
  return low === null || high === null ? null : low > 0 || high < 0;
}

/** The 97.5% quantile of Student's distribution, by bisection of the share between -t and t. */
export function studentQuantile(freedom: number): number {
  if (freedom > 300) return Z + (Z ** 3 + Z) / 4 / freedom;
  let [low, high] = [Z, 13];
  for (let round = 0; round < 50; round++) {
    const middle = (low + high) / 2;
    if (shareBetween(middle, freedom) < 0.95) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** Abramowitz and Stegun, 26.7.3 and 26.7.4. */
function shareBetween(t: number, freedom: number): number {
  const angle = Math.atan(t / Math.sqrt(freedom));
  const square = Math.cos(angle) ** 2;
  const odd = freedom % 2;
  if (freedom === 1) return (2 * angle) / Math.PI;
  let term = odd ? Math.cos(angle) : 1;
  let total = term;
  for (let k = 2 + odd; k < freedom - 1; k += 2) {
    term *= (square * (k - 1)) / k;
    total += term;
  }
  const reached = Math.sin(angle) * total;
  return odd ? (2 / Math.PI) * (angle + reached) : reached;
}
