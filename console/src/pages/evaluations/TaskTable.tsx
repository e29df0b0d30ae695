// An evaluation task by task, with every attempt.
import { Anchor, Badge, Group, NativeSelect, Pagination, Table, Title } from "@mantine/core";
import { useMemo, useState } from "react";
import { Link } from "react-router";

import type { EvaluatedEpisode, SavedEvaluation } from "../../api/types";
import { duration, number } from "../../format";
import { byTask, scored } from "./report";

const ROWS = 50;

type Order = "task" | "worst" | "best" | "faults";

export function TaskTable({ of }: { of: SavedEvaluation }) {
  const [page, setPage] = useState(1);
  const [order, setOrder] = useState<Order>("task");
  const tasks = useMemo(() => {
    const found = [...byTask(of.episodes)].map(([task, episodes]) => {
      const rewards = scored(episodes).map(({ reward }) => reward);
      return {
        task,
        episodes,
        mean: rewards.length ? rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length : null,
        solved: episodes.filter(({ success }) => success === true).length,
        faults: episodes.filter(({ fault }) => fault !== null).length,
      };
    });
    const last = Number.POSITIVE_INFINITY;
    if (order === "worst") found.sort((a, b) => (a.mean ?? last) - (b.mean ?? last));
    if (order === "best") found.sort((a, b) => (b.mean ?? -last) - (a.mean ?? -last));
    if (order === "faults") found.sort((a, b) => b.faults - a.faults);
    return found;
  }, [of.episodes, order]);
  const pages = Math.max(1, Math.ceil(tasks.length / ROWS));
  const here = Math.min(page, pages);
  return (
    <section aria-label="Tasks">
      <Group justify="space-between" align="flex-end" mb={6}>
        <Title order={2} size="h5">
          Tasks
        </Title>
        <NativeSelect
          aria-label="Order of the tasks"
          value={order}
          onChange={(event) => setOrder(event.currentTarget.value as Order)}
          data={[
            { value: "task", label: "In order of play" },
            { value: "worst", label: "Lowest reward first" },
            { value: "best", label: "Highest reward first" },
            { value: "faults", label: "Most faults first" },
          ]}
        />
      </Group>
      <div className="scroll-x">
        <Table highlightOnHover verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Task</Table.Th>
              <Table.Th ta="right">Mean reward</Table.Th>
              <Table.Th ta="right">Solved</Table.Th>
              <Table.Th>Attempts</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {tasks.slice((here - 1) * ROWS, here * ROWS).map(({ task, episodes, mean, solved }) => (
              <Table.Tr key={task}>
                <Table.Td>
                  <Anchor
                    component={Link}
                    to={`/trajectories?${new URLSearchParams({ environment: of.environment, run: of.run, task }).toString()}`}
                    size="sm"
                    className="wrap-anywhere"
                  >
                    {task}
                  </Anchor>
                </Table.Td>
                <Table.Td ta="right" className="numeric">
                  {number(mean)}
                </Table.Td>
                <Table.Td ta="right" className="numeric">{`${solved} of ${episodes.length}`}</Table.Td>
                <Table.Td>
                  <Group gap={4}>
                    {episodes.map((episode) => (
                      <Attempt key={episode.attempt} of={episode} />
                    ))}
                  </Group>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
      {pages > 1 && (
        <Pagination
          mt="sm"
          total={pages}
          value={here}
          onChange={setPage}
          getItemProps={(each) => ({ "aria-label": `Page ${each}` })}
          getControlProps={(control) => ({ "aria-label": `${control} page` })}
        />
      )}
    </section>
  );
}

function Attempt({ of }: { of: EvaluatedEpisode }) {
  const title = [`attempt ${of.attempt + 1}`, of.stop, `${of.calls} calls`, duration(of.seconds), of.fault_message]
    .filter(Boolean)
    .join(", ");
  return (
    <Badge
      variant="light"
      color={of.fault !== null ? "red" : of.success ? "green" : "gray"}
      className="mark numeric"
      title={title}
    >
      {of.fault ?? number(of.reward)}
    </Badge>
  );
}
