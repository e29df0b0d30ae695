// A map of tasks: what is solved, what never; each cell leads to the trajectories of its task.
import { Anchor, Group, Pagination, SegmentedControl, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { memo, useCallback, useMemo } from "react";
import { Link, useHref, useNavigate } from "react-router";

import { unlessJustLoaded, useEnvironments } from "../../api/queries";
import type { TaskCell } from "../../api/types";
import "../../charts/charts.css";
import { HeatMap } from "../../charts/HeatMap";
import { Recorded } from "../trajectories/Recorded";
import "../trajectories/trajectories.css";
import { NEVER, rampColour } from "../../charts/palette";
import { count, number, percent, taskName } from "../../format";
import { SelectField } from "../../shared/Fields";
import { linkOf } from "../../shared/links";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing } from "../../shared/states";
import { When } from "../../shared/When";
import { useAddress } from "../trajectories/address";
import { useEnvironmentNames, useRunNames } from "../trajectories/queries";
import { SearchText } from "../trajectories/SearchText";
import { chosen, colourOf, describe, kindOf, SHOWS, solvedShare, sorted, SORTS, type Show, type Sort } from "./cells";
import { readWanted, tasksQuery, type Wanted } from "./queries";

const ROWS = 50;
const NO_CELLS: TaskCell[] = [];

export function Tasks() {
  const [search, change] = useAddress();
  const at = (name: string) => search.get(name) ?? "";
  const wanted = readWanted(search);
  const show = SHOWS.find(({ value }) => value === at("show"))?.value ?? "all";
  const sort = SORTS.find(({ value }) => value === at("sort"))?.value ?? "task";
  const text = at("text");
  const found = useQuery({
    ...tasksQuery(wanted),
    placeholderData: keepPreviousData,
    refetchOnMount: unlessJustLoaded,
    refetchInterval: 30_000,
  });
  const set = useCallback(
    (name: string, value: string, replace = false) => change({ [name]: value, page: null }, replace),
    [change],
  );
  const turn = useCallback((page: number) => change({ page: String(page) }), [change]);
  const cells = useMemo(() => sorted(chosen(found.data ?? NO_CELLS, show, text), sort), [found.data, show, text, sort]);

  return (
    <>
      <PageHeader title="Tasks" about="Completed episodes of each task, and how many solved it with a reward of 1 or more." />
      <Stack>
        <Fields
          environment={wanted.environment}
          run={wanted.run}
          split={wanted.split}
          text={text}
          sort={sort}
          set={set}
          settled={!found.isPending}
        />
        <Recorded of={found} what="Loading tasks">
          {(all) =>
            all.length === 0 ? (
              <Empty filtered={Object.values(wanted).some(Boolean)} />
            ) : (
              <>
                <Kinds cells={all} show={show} choose={(value) => set("show", value === "all" ? "" : value)} />
                {cells.length === 0 ? (
                  <Text size="sm">No matching tasks.</Text>
                ) : (
                  <>
                    <Heat cells={cells} run={wanted.run} />
                    <Rows cells={cells} run={wanted.run} page={Number(at("page")) || 1} turn={turn} />
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
    <Nothing title={filtered ? "No matching tasks" : "No tasks played yet"}>
      <Text size="sm">
        {filtered ? "No episode that matches the filters has ended." : "A task appears here once one of its episodes has ended."}
      </Text>
      <Anchor component={Link} to={filtered ? "/tasks" : "/environments"}>
        {filtered ? "All tasks" : "Choose an environment"}
      </Anchor>
    </Nothing>
  );
}

const Fields = memo(function Fields({
  text,
  sort,
  set,
  settled,
  ...wanted
}: Wanted & {
  text: string;
  sort: Sort;
  set: (name: string, value: string, replace?: boolean) => void;
  /** The map is there, and what can be chosen may be asked for. */
  settled: boolean;
}) {
  const environments = useEnvironments().data ?? [];
  const runs = useRunNames(settled).data ?? [];
  const splits = environments.find(({ name }) => name === wanted.environment)?.splits ?? environments.flatMap((each) => each.splits);
  const options = (known: string[], value: string) => [
    { value: "", label: "All" },
    ...[...new Set(value ? [...known, value] : known)].map((name) => ({ value: name, label: name })),
  ];
  const field = (name: keyof Wanted, label: string, known: string[]) => (
    <SelectField label={label} value={wanted[name]} options={options(known, wanted[name])} onChange={(value) => set(name, value)} />
  );
  return (
    <div className="fields fields-5">
      {field("environment", "Environment", useEnvironmentNames(settled))}
      {field("run", "Run", runs.map(({ run }) => run))}
      {field("split", "Split", splits.map(({ name }) => name))}
      <SelectField label="Order" value={sort} options={SORTS} onChange={(value) => set("sort", value === "task" ? "" : value)} />
      <SearchText label="Name" value={text} onChange={(value) => set("text", value, true)} />
    </div>
  );
});

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

/** As the address of the list of its trajectories has it. */
function searchOf(cell: TaskCell, run: string): string {
  const search = new URLSearchParams({ environment: cell.environment, task: cell.task });
  if (run) search.set("run", run);
  return `?${search.toString()}`;
}

const Heat = memo(function Heat({ cells, run }: { cells: TaskCell[]; run: string }) {
  const navigate = useNavigate();
  const colours = useMemo(() => cells.map(colourOf), [cells]);
  const never = cells.filter((cell) => cell.solved === 0).length;
  return (
    <HeatMap
      title="Map of tasks"
      summary={`${cells.length} tasks, ${never} of them never solved. The table below has the same.`}
      colours={colours}
      label={(index) => {
        const cell = cells[index];
        return cell ? describe(cell) : "";
      }}
      table={() => ({
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
      })}
      file="tasks"
      legend={<Ramp />}
      onPick={(index) => {
        const cell = cells[index];
        if (cell) void navigate(`/trajectories${searchOf(cell, run)}`);
      }}
    />
  );
});

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

const Rows = memo(function Rows({
  cells,
  run,
  page,
  turn,
}: {
  cells: TaskCell[];
  run: string;
  page: number;
  turn: (page: number) => void;
}) {
  const navigate = useNavigate();
  const address = useHref("/trajectories");
  const pages = Math.max(1, Math.ceil(cells.length / ROWS));
  const here = Math.min(Math.max(1, page), pages);
  const shown = cells.slice((here - 1) * ROWS, here * ROWS);
  return (
    <section aria-label="Tasks as a table">
      <Title order={2} size="h5" mb={6}>
        {`${count(cells.length)} ${cells.length === 1 ? "task" : "tasks"}`}
      </Title>
      <div
        className="scroll-x"
        onClick={(event) => {
          const index = linkOf(event, "a[data-index]")?.dataset.index;
          const cell = index === undefined ? undefined : shown[Number(index)];
          if (cell) void navigate(`/trajectories${searchOf(cell, run)}`);
        }}
      >
        <table className="list list-dense">
          <thead>
            <tr>
              <th>Task</th>
              <th className="right">Solved</th>
              <th className="right">Episodes</th>
              <th className="right">Mean reward</th>
              <th className="from-sm">Last</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((cell, index) => (
              <tr key={`${cell.environment} ${cell.task}`}>
                <td>
                  <svg width={12} height={12} aria-hidden className="swatch">
                    <rect width={12} height={12} fill={colourOf(cell)} />
                  </svg>
                  <a href={address + searchOf(cell, run)} data-index={index} className="link row-name">
                    {`${cell.environment} ${taskName(cell)}`}
                  </a>
                </td>
                <td className="numeric right">{percent(solvedShare(cell), 0)}</td>
                <td className="numeric right">{count(cell.n)}</td>
                <td className="numeric right">{number(cell.reward_mean)}</td>
                <td className="from-sm">
                  <When at={cell.last_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
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
});
