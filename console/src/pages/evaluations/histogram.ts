// Histogram of values over ranges of equal width; the last one holds its upper edge too.

const BINS = 20;

export function histogram(values: readonly number[]): { edges: number[]; counts: number[] } {
  if (values.length === 0) return { edges: [], counts: [] };
  let low = values.reduce((least, value) => Math.min(least, value));
  let high = values.reduce((most, value) => Math.max(most, value));
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const width = (high - low) / BINS;
  const counts = Array.from({ length: BINS }, () => 0);
  for (const value of values) {
    const bin = Math.min(BINS - 1, Math.floor((value - low) / width));
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  return { edges: [...counts.map((_, bin) => low + width * bin), high], counts };
}
