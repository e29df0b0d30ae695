// A map of tasks: what is solved, what never; each cell leads to the trajectories of its task.
import { Anchor, Group, NativeSelect, Pagination, SegmentedControl, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useNavigate } from "react-router";

import { useEnvironments } from "../../api/queries";
import { get } from "../../api/request";
import type { TaskCell } from "../../api/types";
import { Chart } from "../../charts/Chart";
import "../../charts/charts.css";
import { Recorded } from "../trajectories/Recorded";
import "../trajectories/trajectories.css";
import { heatOption } from "../../charts/options";
import { NEVER, rampColour } from "../../charts/palette";
import { count, number, percent, taskName } from "../../format";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing } from "../../shared/states";
import { When } from "../../shared/When";
import { useAddress } from "../trajectories/address";
import { useEnvironmentNames, useRunNames } from "../trajectories/queries";
import { SearchText } from "../trajectories/SearchText";
import { chosen, colourOf, describe, kindOf, SHOWS, solvedShare, sorted, SORTS, type Show, type Sort } from "./cells";

const ROWS = 50;
const LARGEST = 24; // pixels of a cell
const TALLEST = 520; // pixels of the map

export function Tasks() {
  const [search, change] = useAddress();
  const at = (name: string) => search.get(name) ?? "";
  const wanted = { environment: at("environment"), run: at("run"), split: at("split") };
  const show = SHOWS.find(({ value }) => value === at("show"))?.value ?? "all";
  const sort = SORTS.find(({ value }) => value === at("sort"))?.value ?? "task";
  const text = at("text");
  const found = useQuery({
    queryKey: ["tasks", wanted],
    queryFn: ({ signal }) => get<TaskCell[]>("tasks", wanted, signal),
    placeholderData: keepPreviousData,
    refetchOnMount: "always",
    refetchInterval: 30_000,
  });
  const set = (name: string, value: string, replace = false) => change({ [name]: value, page: null }, replace);
  const cells = useMemo(() => sorted(chosen(found.data ?? [], show, text), sort), [found.data, show, text, sort]);

  return (
    <>
      <PageHeader title="Tasks" about="How often each task was played to an end, and solved: with a reward of 1 or more." />
      <Stack>
        <Fields wanted={wanted} text={text} sort={sort} set={set} />
        <Recorded of={found} what="Adding up the tasks">
          {(all) =>
            all.length === 0 ? (
              <Empty filtered={Object.values(wanted).some(Boolean)} />
            ) : (
              <>
                <Kinds cells={all} show={show} choose={(value) => set("show", value === "all" ? "" : value)} />
                {cells.length === 0 ? (
                  <Text size="sm">No task fits.</Text>
                ) : (
                  <>
                    <Heat cells={cells} run={wanted.run} />
                    <Rows
                      cells={cells}
                      run={wanted.run}
                      page={Number(at("page")) || 1}
                      turn={(page) => change({ page: String(page) })}
                    />
                  </>
                )}
              </>
            )
          }
        </Recorded>
      </Stack>
    </>
  );
}

function Empty({ filtered }: { filtered: boolean }) {
  return (
    <Nothing title={filtered ? "No task fits" : "No task was played yet"}>
      <Text size="sm">
        {filtered ? "Nothing was played to its end there." : "Each task appears here when an episode of it has ended."}
      </Text>
      <Anchor component={Link} to={filtered ? "/tasks" : "/environments"}>
        {filtered ? "All tasks" : "Choose an environment"}
      </Anchor>
    </Nothing>
  );
}

function Fields({
  wanted,
  text,
  sort,
  set,
}: {
  wanted: { environment: string; run: string; split: string };
  text: string;
  sort: Sort;
  set: (name: string, value: string, replace?: boolean) => void;
}) {
  const environments = useEnvironments().data ?? [];
  const runs = useRunNames().data ?? [];
  const splits = environments.find(({ name }) => name === wanted.environment)?.splits ?? environments.flatMap((each) => each.splits);
  const options = (known: string[], value: string) => [
    { value: "", label: "All" },
    ...[...new Set(value ? [...known, value] : known)].map((name) => ({ value: name, label: name })),
  ];
  const field = (name: "environment" | "run" | "split", label: string, known: string[]) => (
    <NativeSelect
      label={label}
      value={wanted[name]}
      data={options(known, wanted[name])}
      onChange={(event) => set(name, event.currentTarget.value)}
    />
  );
  return (
    <SimpleGrid cols={{ base: 2, md: 5 }} spacing="sm">
      {field("environment", "Environment", useEnvironmentNames())}
      {field("run", "Run", runs.map(({ run }) => run))}
      {field("split", "Split", splits.map(({ name }) => name))}
      <NativeSelect
        label="Order"
        value={sort}
        data={SORTS}
        onChange={(event) => set("sort", event.currentTarget.value === "task" ? "" : event.currentTarget.value)}
      />
      <SearchText label="Name" value={text} onChange={(value) => set("text", value, true)} />
    </SimpleGrid>
  );
}

function Kinds({ cells, show, choose }: { cells: TaskCell[]; show: Show; choose: (show: Show) => void }) {
  const numbers: Record<Show, number> = { all: cells.length, never: 0, sometimes: 0, always: 0 };
  for (const cell of cells) numbers[kindOf(cell)] += 1;
  return (
    <div className="scroll-x">
      <SegmentedControl
        aria-label="Which tasks"
        value={show}
        onChange={(value) => choose(value as Show)}
        data={SHOWS.map(({ value, label }) => ({ value, label: `${label} ${count(numbers[value])}` }))}
      />
    </div>
  );
}

function trajectoriesOf(cell: TaskCell, run: string): string {
  const search = new URLSearchParams({ environment: cell.environment, task: cell.task });
  if (run) search.set("run", run);
  return `/trajectories?${search.toString()}`;
}

function Heat({ cells, run }: { cells: TaskCell[]; run: string }) {
  const navigate = useNavigate();
  const [width, setWidth] = useState(800);
  const size = Math.max(3, Math.min(LARGEST, Math.floor(Math.sqrt((width * TALLEST) / cells.length))));
  const columns = Math.max(1, Math.floor((width - 2) / size));
  const rows = Math.ceil(cells.length / columns);
  // few cells do not fill the width: the columns stay as wide as they are high
  const option = useMemo(
    () => (scheme: "light" | "dark") =>
      heatOption(
        cells.map((cell) => ({ colour: colourOf(cell), label: describe(cell) })),
        columns,
        scheme,
      ),
    [cells, columns],
  );
  const never = cells.filter((cell) => cell.solved === 0).length;
  return (
    <Chart
      title="Map of tasks"
      summary={`${cells.length} tasks, ${never} of them never solved. The table below has the same.`}
      option={option}
      height={rows * size + 2}
      table={{
        columns: ["environment", "task", "split", "index", "episodes", "solved", "mean reward"],
        rows: cells.map((cell) => [
          cell.environment,
          cell.task,
          cell.split,
          cell.task_index,
          cell.n,
          cell.solved,
          cell.reward_mean,
        ]),
      }}
      file="tasks"
      zoom={false}
      legend={<Ramp />}
      onWidth={setWidth}
      onPick={({ dataIndex }) => {
        const cell = cells[dataIndex];
        if (cell) void navigate(trajectoriesOf(cell, run));
      }}
    />
  );
}

function Ramp() {
  const shares = Array.from({ length: 21 }, (_, index) => index / 20);
  return (
    <Group gap="md" mb="xs">
      <Group gap={6}>
        <svg width={12} height={12} aria-hidden>
          <rect width={12} height={12} fill={NEVER} />
        </svg>
        <Text size="xs">never</Text>
      </Group>
      <Group gap={6}>
        <Text size="xs">seldom</Text>
        <svg width={126} height={12} aria-hidden>
          {shares.map((share, index) => (
            <rect key={share} x={index * 6} width={6} height={12} fill={rampColour(share)} />
          ))}
        </svg>
        <Text size="xs">always</Text>
      </Group>
    </Group>
  );
}

function Rows({ cells, run, page, turn }: { cells: TaskCell[]; run: string; page: number; turn: (page: number) => void }) {
  const pages = Math.max(1, Math.ceil(cells.length / ROWS));
  const here = Math.min(Math.max(1, page), pages);
  return (
    <section aria-label="Tasks as a table">
      <Title order={2} size="h5" mb={6}>
        {`${count(cells.length)} ${cells.length === 1 ? "task" : "tasks"}`}
      </Title>
      <div className="scroll-x">
        <Table highlightOnHover verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Task</Table.Th>
              <Table.Th ta="right">Solved</Table.Th>
              <Table.Th ta="right">Episodes</Table.Th>
              <Table.Th ta="right">Mean reward</Table.Th>
              <Table.Th visibleFrom="sm">Last</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {cells.slice((here - 1) * ROWS, here * ROWS).map((cell) => (
              <Table.Tr key={`${cell.environment} ${cell.task}`}>
                <Table.Td>
                  <Group gap={8} wrap="nowrap">
                    <svg width={12} height={12} aria-hidden className="swatch">
                      <rect width={12} height={12} fill={colourOf(cell)} />
                    </svg>
                    <Anchor component={Link} to={trajectoriesOf(cell, run)} size="sm" className="row-name">
                      {`${cell.environment} ${taskName(cell)}`}
                    </Anchor>
                  </Group>
                </Table.Td>
                <Table.Td ta="right" className="numeric">
                  {percent(solvedShare(cell), 0)}
                </Table.Td>
                <Table.Td ta="right" className="numeric">
                  {count(cell.n)}
                </Table.Td>
                <Table.Td ta="right" className="numeric">
                  {number(cell.reward_mean)}
                </Table.Td>
                <Table.Td visibleFrom="sm">
                  <When at={cell.last_at} />
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
          onChange={turn}
          getItemProps={(number_) => ({ "aria-label": `Page ${number_}` })}
          getControlProps={(control) => ({ "aria-label": `${control} page` })}
        />
      )}
    </section>
  );
}
