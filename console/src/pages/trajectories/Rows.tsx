// The list itself: a table, of which a phone shows the columns that matter most.
import { Anchor, Checkbox, Table, Text } from "@mantine/core";
import { Link } from "react-router";

import type { Summary } from "../../api/types";
import { count, duration, number, secondsBetween, taskName } from "../../format";
import { When } from "../../shared/When";
import { Outcome } from "./Outcome";

/** How a list and the pages of its trajectories know of each other. */
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
  marked: string[];
  onMark: (id: string) => void;
}) {
  return (
    <div className="scroll-x" tabIndex={-1}>
      <Table highlightOnHover aria-label="Trajectories" verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th visibleFrom="md">
              <span className="only-read">Compare</span>
            </Table.Th>
            <Table.Th>Started</Table.Th>
            <Table.Th>Task</Table.Th>
            <Table.Th visibleFrom="sm">Run</Table.Th>
            <Table.Th visibleFrom="lg">Step</Table.Th>
            <Table.Th ta="right">Reward</Table.Th>
            <Table.Th ta="right" visibleFrom="md">
              Sum
            </Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              Calls
            </Table.Th>
            <Table.Th ta="right" visibleFrom="md">
              Lasted
            </Table.Th>
            <Table.Th>Outcome</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items.map((item) => (
            <Row key={item.id} item={item} context={context} marked={marked.includes(item.id)} onMark={onMark} />
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Row({
  item,
  context,
  marked,
  onMark,
}: {
  item: Summary;
  context: ListContext;
  marked: boolean;
  onMark: (id: string) => void;
}) {
  const name = `${item.environment} ${taskName(item)}`;
  return (
    <Table.Tr data-marked={marked || undefined} bg={marked ? "var(--mantine-color-default-hover)" : undefined}>
      <Table.Td visibleFrom="md">
        <Checkbox checked={marked} onChange={() => onMark(item.id)} aria-label={`Compare ${name}`} size="xs" tabIndex={-1} />
      </Table.Td>
      <Table.Td>
        <Text size="sm" component="span" style={{ whiteSpace: "nowrap" }}>
          <When at={item.started_at} />
        </Text>
      </Table.Td>
      <Table.Td>
        <Anchor component={Link} to={`/trajectories/${item.id}`} state={context} data-row={item.id} size="sm" fw={500} className="row-name">
          {name}
        </Anchor>
      </Table.Td>
      <Table.Td visibleFrom="sm">
        <Text size="sm" lineClamp={1} title={item.run} className="wrap-anywhere">
          {item.run}
        </Text>
      </Table.Td>
      <Table.Td visibleFrom="lg" className="numeric">
        {count(item.step)}
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {number(item.reward)}
      </Table.Td>
      <Table.Td ta="right" className="numeric" visibleFrom="md">
        {number(item.reward_sum)}
      </Table.Td>
      <Table.Td ta="right" className="numeric" visibleFrom="sm">
        {count(item.calls)}
      </Table.Td>
      <Table.Td ta="right" className="numeric" visibleFrom="md" style={{ whiteSpace: "nowrap" }}>
        {duration(secondsBetween(item.started_at, item.ended_at))}
      </Table.Td>
      <Table.Td>
        <Outcome of={item} />
      </Table.Td>
    </Table.Tr>
  );
}
