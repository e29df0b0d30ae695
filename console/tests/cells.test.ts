import { expect, it } from "vitest";

import type { TaskCell } from "../src/api/types";
import { at, layOut, moved, shownWhole, zoomed } from "../src/charts/mapView";
import { chosen, describe as told, kindOf, sorted } from "../src/pages/tasks/cells";
import { readFilters, toParameters, toSearch } from "../src/pages/trajectories/filters";

function cell(task_index: number, n: number, solved: number, reward_mean: number | null): TaskCell {
  return { environment: "doors", split: "train", task: `t${task_index}`, task_index, n, solved, reward_mean, last_at: task_index } as TaskCell;
}

const CELLS = [cell(0, 4, 4, 1), cell(1, 4, 0, 0), cell(2, 4, 1, null)];
const indexes = (cells: TaskCell[]) => cells.map(({ task_index }) => task_index);

it("tasks are chosen by how often they were solved, and by text", () => {
  expect(CELLS.map(kindOf)).toEqual(["always", "never", "sometimes"]);
  expect(indexes(chosen(CELLS, "sometimes", ""))).toEqual([2]);
  expect(indexes(chosen(CELLS, "all", " TRAIN/1 "))).toEqual([1]);
});

it("tasks are ordered, and those without a reward come before the lowest", () => {
  expect(indexes(sorted(CELLS, "task"))).toEqual([0, 1, 2]);
  expect(indexes(sorted(CELLS, "solved"))).toEqual([1, 2, 0]);
  expect(indexes(sorted(CELLS, "reward"))).toEqual([2, 1, 0]);
  expect(indexes(sorted(CELLS, "-last"))).toEqual([2, 1, 0]);
  expect(told(cell(2, 4, 1, 0.25))).toBe("doors train/2\nsolved 1 of 4 (25%)\nmean reward 0.25");
});

it("the cell under the pointer stays there when the map grows", () => {
  const layout = layOut(1000, 600);
  const [x, y] = [301, 101];
  const before = at(layout, shownWhole, x, y);
  expect(before).not.toBeNull();
  expect(at(layout, zoomed(layout, shownWhole, 4, x, y), x, y)).toBe(before);
});

it("a map is not moved beyond its edges, nor made smaller than whole", () => {
  const layout = layOut(1000, 600);
  expect(moved(layout, shownWhole, 50, 50)).toEqual(shownWhole);
  expect(zoomed(layout, shownWhole, 0.1, 10, 10)).toEqual(shownWhole);
  expect(at(layout, shownWhole, layout.width + 50, 5)).toBeNull();
});

it("filters are those of the address, and times are sent as seconds", () => {
  const filters = readFilters(new URLSearchParams("text=a+b&unknown=1&step=0&run="));
  expect(filters).toEqual({ text: "a b", step: "0" });
  expect(toSearch(filters)).toBe("?text=a+b&step=0");
  expect(toSearch({})).toBe("");
  expect(toParameters({ since: "2026-03-01T00:00:00Z", until: "never" })).toEqual({ since: "1772323200", until: undefined });
});
