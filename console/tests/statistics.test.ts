import { expect, it } from "vitest";

import { differenceOf, isClear, meanInterval, studentQuantile } from "../src/charts/statistics";
import { swapTest } from "../src/pages/evaluations/compare";
import { histogram } from "../src/pages/evaluations/histogram";

it.each([
  [1, 12.7062],
  [2, 4.3027],
  [5, 2.5706],
  [30, 2.0423],
  [1000, 1.9623],
])("the quantile of Student's distribution with %d degrees of freedom is %d", (freedom, value) => {
  expect(studentQuantile(freedom)).toBeCloseTo(value, 3);
});

it("the interval of a mean needs two values", () => {
  expect(meanInterval([])).toBeNull();
  expect(meanInterval([3])).toEqual({ mean: 3, low: null, high: null });
  const found = meanInterval([1, 2, 3, 4]);
  expect(found?.mean).toBe(2.5);
  expect(found?.low).toBeCloseTo(0.4457, 3);
  expect(found?.high).toBeCloseTo(4.5543, 3);
});

it("a difference is clear when its interval leaves out 0", () => {
  const far = differenceOf({ mean: 0, low: -3, high: 3 }, { mean: 6, low: 2, high: 10 });
  expect(far).toEqual({ mean: 6, low: 1, high: 11 });
  expect(isClear(far)).toBe(true);
  expect(isClear({ mean: 0, low: -1, high: 1 })).toBe(false);
  expect(isClear({ mean: 0, low: null, high: null })).toBeNull();
});

it("the test by swaps counts the ways that are at least as far apart", () => {
  expect(swapTest([0, 0])).toBe(1);
  expect(swapTest([1, 1, 1])).toBe(0.25);
  expect(swapTest([1, -1])).toBe(1);
  expect(swapTest(Array.from({ length: 40 }, () => 1))).toBeLessThan(0.001);
});

it("a histogram holds every value, the greatest too", () => {
  const { edges, counts } = histogram([0, 0.5, 1]);
  expect([edges.length, edges[0], edges.at(-1)]).toEqual([21, 0, 1]);
  expect([counts[0], counts[10], counts[19]]).toEqual([1, 1, 1]);
  expect(histogram([2, 2]).edges[0]).toBe(1.5);
  expect(histogram([])).toEqual({ edges: [], counts: [] });
});
