// Tasks as they are shown: how often each was solved, which of them are shown, and in which order.
import type { TaskCell } from "../../api/types";
import { milliseconds, number, percent, taskName } from "../../format";
import { NEVER, rampColour } from "../../charts/palette";

export type Show = "all" | "never" | "sometimes" | "always";
export type Sort = "task" | "solved" | "-solved" | "reward" | "-reward" | "n" | "-n" | "-last";

export const SHOWS: { value: Show; label: string }[] = [
  { value: "all", label: "All" },
  { value: "never", label: "Never solved" },
  { value: "sometimes", label: "Sometimes" },
  { value: "always", label: "Always solved" },
];

export const SORTS: { value: Sort; label: string }[] = [
  { value: "task", label: "Task" },
  { value: "solved", label: "Least solved first" },
  { value: "-solved", label: "Most solved first" },
  { value: "reward", label: "Lowest reward first" },
  { value: "-reward", label: "Highest reward first" },
  { value: "n", label: "Least played first" },
  { value: "-n", label: "Most played first" },
  { value: "-last", label: "Last played first" },
];

export function solvedShare(cell: TaskCell): number {
  return cell.n > 0 ? cell.solved / cell.n : 0;
}

export function kindOf(cell: TaskCell): Exclude<Show, "all"> {
  if (cell.solved === 0) return "never";
  return cell.solved >= cell.n ? "always" : "sometimes";
}

export function colourOf(cell: TaskCell): string {
  return cell.solved === 0 ? NEVER : rampColour(solvedShare(cell));
}

export function describe(cell: TaskCell): string {
  return [
    `${cell.environment} ${taskName(cell)}`,
    `solved ${cell.solved} of ${cell.n} (${percent(solvedShare(cell), 0)})`,
    `mean reward ${number(cell.reward_mean)}`,
  ].join("\n");
}

export function chosen(cells: readonly TaskCell[], show: Show, text: string): TaskCell[] {
  const wanted = text.trim().toLowerCase();
  return cells.filter(
    (cell) =>
      (show === "all" || kindOf(cell) === show) &&
      (wanted === "" || `${cell.environment} ${taskName(cell)} ${cell.task}`.toLowerCase().includes(wanted)),
  );
}

const ORDERS: Record<string, (cell: TaskCell) => number> = {
  solved: solvedShare,
  reward: (cell) => cell.reward_mean ?? Number.NEGATIVE_INFINITY,
  n: (cell) => cell.n,
  last: (cell) => milliseconds(cell.last_at),
};

/** The server sends them by environment, split and index; equal ones stay in that order. */
export function sorted(cells: TaskCell[], sort: Sort): TaskCell[] {
  const order = ORDERS[sort.replace("-", "")];
  if (order === undefined) return cells;
  const sign = sort.startsWith("-") ? -1 : 1;
  const compared = (one: number, other: number) => (one < other ? -1 : one > other ? 1 : 0);
  return [...cells].sort((one, other) => sign * compared(order(one), order(other)));
}
