// Two evaluations side by side, and whether their difference is more than noise.
import { Alert, Anchor, NativeSelect, Paper, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { useMemo } from "react";
import { Link } from "react-router";

import type { SavedEvaluation } from "../../api/types";
import { count, dateTime, duration, NONE, number } from "../../format";
import { PageHeader } from "../../shared/PageHeader";
import { Failure, Nothing, Waiting } from "../../shared/states";
import { share, signed, withInterval } from "../runs/words";
import { useAddress } from "../trajectories/address";
import "../trajectories/trajectories.css";
import { compare, type Comparison, type Difference, type TaskChange } from "./compare";
import { total, useEvaluation, useEvaluations } from "./report";

const NOISE = 0.05;
const MOST = 15;

export function CompareEvaluations() {
  const [search, change] = useAddress();
  const [one, other] = [search.get("a") ?? "", search.get("b") ?? ""];
  const a = useEvaluation(one);
  const b = useEvaluation(other);
  const all = useEvaluations().data ?? [];
  const choices = [
    { value: "", label: "Choose one" },
    ...all.map(({ id, name, model, started_at }) => ({ value: id, label: `${name}, ${model}, ${dateTime(started_at)}` })),
  ];
  const choose = (side: "a" | "b", id: string) => change({ [side]: id });
  const failed = [a, b].find(({ isError, data }) => isError && data === undefined);
  return (
    <>
      <PageHeader
        title="Compare two evaluations"
        about={
          <Anchor component={Link} to="/evaluations" size="sm">
            All evaluations
          </Anchor>
        }
      />
      <Stack>
        <SimpleGrid cols={{ base: 1, sm: 2 }}>
          <NativeSelect label="Evaluation A" value={one} data={choices} onChange={(event) => choose("a", event.currentTarget.value)} />
          <NativeSelect label="Evaluation B" value={other} data={choices} onChange={(event) => choose("b", event.currentTarget.value)} />
        </SimpleGrid>
        {!one || !other ? (
          <Nothing title="Select two evaluations">
            <Text size="sm">Select them above.</Text>
          </Nothing>
        ) : failed ? (
          <Failure error={failed.error} retry={() => void failed.refetch()} />
        ) : !a.data || !b.data ? (
          <Waiting what="Loading both evaluations" />
        ) : (
          <Both a={a.data} b={b.data} />
        )}
      </Stack>
    </>
  );
}

function Both({ a, b }: { a: SavedEvaluation; b: SavedEvaluation }) {
  const comparable = a.environment === b.environment && a.split === b.split;
  const found = useMemo(() => (comparable ? compare(a, b) : null), [a, b, comparable]);
  return (
    <>
      {!comparable ? (
        <Alert variant="outline" color="yellow" className="notice" role="status">
          {`A is of ${a.environment} ${a.split ?? ""}, B of ${b.environment} ${b.split ?? ""}: their tasks differ.`}
        </Alert>
      ) : found === null ? (
        <Alert variant="outline" color="yellow" className="notice" role="status">
          No task was scored in both.
        </Alert>
      ) : (
        <Verdict of={found} />
      )}
      <Metrics a={a} b={b} found={found} />
      {found && <Changes tasks={found.tasks} a={a} b={b} />}
    </>
  );
}

function Verdict({ of }: { of: Comparison }) {
  const { difference, p } = of.reward;
  const noise = p >= NOISE;
  const size = withInterval(difference.mean, difference.low, difference.high, signed);
  return (
    <Paper withBorder p="md" role="status">
      <Text fw={600}>
        {noise
          ? `The difference of ${size} may well be noise (p = ${number(p)}).`
          : `B is ${difference.mean > 0 ? "better" : "worse"} than A by ${size}, which is more than noise (p = ${number(p)}).`}
      </Text>
      <Text size="sm" c="dimmed">
        {`Paired by task, over the ${count(of.tasks.length)} tasks scored in both`}
        {of.leftOut > 0 ? `; ${count(of.leftOut)} that only one has are left out.` : "."}
      </Text>
    </Paper>
  );
}

function Metrics({ a, b, found }: { a: SavedEvaluation; b: SavedEvaluation; found: Comparison | null }) {
  const change = (of: Difference | undefined) =>
    of ? `${withInterval(of.difference.mean, of.difference.low, of.difference.high, signed)}, p = ${number(of.p)}` : NONE;
  const ks = [...new Set([...a.summary.pass_at_k, ...b.summary.pass_at_k].map(({ k }) => k))].sort((x, y) => x - y);
  const passed = (of: SavedEvaluation, k: number) => {
    const point = of.summary.pass_at_k.find((each) => each.k === k);
    return withInterval(point?.mean, point?.low, point?.high, share);
  };
  const both = (read: (of: SavedEvaluation) => string): [string, string] => [read(a), read(b)];
  const rows: [string, string, string, string?][] = [
    ["Model", ...both((of) => of.model)],
    [
      "Mean reward",
      ...both(({ summary: { mean_reward: of } }) => withInterval(of?.mean, of?.low, of?.high)),
      change(found?.reward),
    ],
    [
      "Success",
      ...both(({ summary: { success: of } }) => withInterval(of?.mean, of?.low, of?.high, share)),
      change(found?.success),
    ],
    ...ks.map((k): [string, string, string] => [`pass@${k}`, ...both((of) => passed(of, k))]),
    ["Episodes scored", ...both(({ summary }) => `${count(summary.scored)} of ${count(summary.planned)}`)],
    ["Lost to faults", ...both(({ summary }) => count(total(summary.faults)))],
    ["Input tokens", ...both(({ summary }) => count(summary.tokens.input))],
    ["Output tokens", ...both(({ summary }) => count(summary.tokens.output))],
    ["Latency, median", ...both(({ summary }) => duration(summary.latency?.p50))],
    ["Turns, mean", ...both(({ summary }) => number(summary.turns?.mean, 1))],
  ];
  return (
    <div className="scroll-x" tabIndex={0} role="region" aria-label="Metrics of both">
      <Table withTableBorder verticalSpacing={6}>
        <Table.Thead>
          <Table.Tr>
            <Table.Td />
            <Table.Th>
              <Anchor component={Link} to={`/evaluations/${a.id}`} size="sm">{`A: ${a.name}`}</Anchor>
            </Table.Th>
            <Table.Th>
              <Anchor component={Link} to={`/evaluations/${b.id}`} size="sm">{`B: ${b.name}`}</Anchor>
            </Table.Th>
            <Table.Th>B − A</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map(([name, one, other, difference]) => (
            <Table.Tr key={name}>
              <Table.Th scope="row">{name}</Table.Th>
              <Table.Td className="numeric wrap-anywhere">{one}</Table.Td>
              <Table.Td className="numeric wrap-anywhere">{other}</Table.Td>
              <Table.Td className="numeric">{difference}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Changes({ tasks, a, b }: { tasks: TaskChange[]; a: SavedEvaluation; b: SavedEvaluation }) {
  const changed = tasks.filter((task) => task.a !== task.b).sort((one, other) => other.b - other.a - (one.b - one.a));
  const better = changed.filter((task) => task.b > task.a);
  const worse = changed.filter((task) => task.b < task.a).reverse();
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }}>
      <ChangeTable title={`Better in B: ${count(better.length)}`} tasks={better} a={a} b={b} />
      <ChangeTable title={`Worse in B: ${count(worse.length)}`} tasks={worse} a={a} b={b} />
    </SimpleGrid>
  );
}

function ChangeTable({ title, tasks, a, b }: { title: string; tasks: TaskChange[]; a: SavedEvaluation; b: SavedEvaluation }) {
  return (
    <section aria-label={title}>
      <Title order={2} size="h5" mb={6}>
        {title}
      </Title>
      {tasks.length > 0 && (
        <Table verticalSpacing={4}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Task</Table.Th>
              <Table.Th ta="right">A</Table.Th>
              <Table.Th ta="right">B</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {tasks.slice(0, MOST).map((task) => (
              <Table.Tr key={task.task}>
                <Table.Td>{task.task}</Table.Td>
                <Table.Td ta="right" className="numeric">
                  <TaskLink of={a} task={task.task} value={task.a} side="A" />
                </Table.Td>
                <Table.Td ta="right" className="numeric">
                  <TaskLink of={b} task={task.task} value={task.b} side="B" />
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      {tasks.length > MOST && <Text size="xs" c="dimmed">{`and ${count(tasks.length - MOST)} more`}</Text>}
    </section>
  );
}

function TaskLink({ of, task, value, side }: { of: SavedEvaluation; task: string; value: number; side: string }) {
  const search = new URLSearchParams({ environment: of.environment, run: of.run, task }).toString();
  return (
    <Anchor component={Link} to={`/trajectories?${search}`} size="sm" aria-label={`${task} in ${side}: ${number(value)}`}>
      {number(value)}
    </Anchor>
  );
}
