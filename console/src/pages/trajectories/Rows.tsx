// The list itself: a table, of which a phone shows the columns that matter most. Its elements are plain ones, and a row is
// drawn again only when something in it changed: a list is drawn often.
import { memo, useMemo } from "react";
import { useHref, useNavigate } from "react-router";

import type { Summary } from "../../api/types";
import { count, duration, number, secondsBetween, taskName } from "../../format";
import { linkOf } from "../../shared/links";
import { Tick } from "../../shared/Tick";
import { When } from "../../shared/When";
import { Outcome } from "./Outcome";

/** State that a list shares with the pages of its trajectories. */
export interface ListContext {
  /** The address of the list, to go back to. */
  list: string;
  ids: string[];
}

export function Rows({
  items,
  context,
  marked,
  onMark,
}: {
  items: Summary[];
  context: ListContext;
  marked: Summary[];
  /** The same function as long as the items are the same. */
  onMark: (id: string) => void;
}) {
  const navigate = useNavigate();
  const address = useHref("/trajectories");
  const now = useMemo(() => Date.now(), [items]);
  return (
    <div
      className="scroll-x"
      tabIndex={-1}
      onClick={(event) => {
        const id = linkOf(event, "a[data-row]")?.dataset.row;
        if (id !== undefined) void navigate(`/trajectories/${id}`, { state: context });
      }}
    >
      <table className="list" aria-label="Trajectories">
        <thead>
          <tr>
            <th className="from-md">
              <span className="only-read">Compare</span>
            </th>
            <th>Started</th>
            <th>Task</th>
            <th className="from-sm">Run</th>
            <th className="from-lg">Step</th>
            <th className="right">Reward</th>
            <th className="right from-md">Sum</th>
            <th className="right from-sm">Calls</th>
            <th className="right from-md">Duration</th>
            <th>Outcome</th>
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <Row
              key={item.id}
              item={item}
              address={address}
              now={now}
              marked={marked.some(({ id }) => id === item.id)}
              onMark={onMark}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const Row = memo(function Row({
  item,
  address,
  now,
  marked,
  onMark,
}: {
  item: Summary;
  address: string;
  now: number;
  marked: boolean;
  onMark: (id: string) => void;
}) {
  const name = `${item.environment} ${taskName(item)}`;
  return (
    <tr data-marked={marked || undefined}>
      <td className="from-md">
        <Tick checked={marked} onChange={() => onMark(item.id)} label={`Compare ${name}`} tabIndex={-1} />
      </td>
      <td className="one-line">
        <When at={item.started_at} now={now} />
      </td>
      <td>
        <a href={`${address}/${item.id}`} data-row={item.id} className="link link-strong row-name">
          {name}
        </a>
      </td>
      <td className="from-sm">
        <span className="cut wrap-anywhere" title={item.run}>
          {item.run}
        </span>
      </td>
      <td className="numeric from-lg">{count(item.step)}</td>
      <td className="numeric right">{number(item.reward)}</td>
      <td className="numeric right from-md">{number(item.reward_sum)}</td>
      <td className="numeric right from-sm">{count(item.calls)}</td>
      <td className="numeric right from-md one-line">{duration(secondsBetween(item.started_at, item.ended_at))}</td>
      <td>
        <Outcome of={item} />
      </td>
    </tr>
  );
});
