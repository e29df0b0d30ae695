// Two rollouts of one task side by side: calls that belong together in one row, and what differs marked.
import { Alert, Anchor, Button, Group, NativeSelect, Paper, Stack, Switch, Table, Text, Title } from "@mantine/core";
import { ArrowLeftRight } from "lucide-react";
import { useMemo, type ReactNode } from "react";
import { Link, useSearchParams } from "react-router";

import type { Message, Step, Trajectory } from "../../api/types";
import { Bars } from "../../charts/Bars";
import "../../charts/charts.css";
import { count, dateTime, duration, NONE, number, secondsBetween, taskName } from "../../format";
import { BlockList } from "../../shared/BlockList";
import { PageHeader } from "../../shared/PageHeader";
import { Failure, Nothing, Waiting } from "../../shared/states";
import { useAddress } from "./address";
import { align, differs, imagesOf, inputText, resultText, type Pair } from "./align";
import { toSearch } from "./filters";
import { KeyHelp, moveFocus, type KeyAction } from "./keys";
import { Outcome } from "./Outcome";
import { useRollouts, useTrajectory } from "./queries";
import { Marks } from "./StepCard";
import { DiffText } from "./TextDiff";
import "./trajectories.css";
import "./diff.css";

export function Diff() {
  const [search] = useSearchParams();
  const [one, other] = [search.get("a") ?? "", search.get("b") ?? ""];
  const a = useTrajectory(one || undefined);
  const b = useTrajectory(other || undefined);
  if (a.data && b.data) return <Both a={a.data} b={b.data} />;
  const failed = [a, b].find(({ isError, data }) => isError && data === undefined);
  return (
    <>
      <PageHeader title="Compare two trajectories" />
      {!one || !other ? (
        <Nothing title="Select two trajectories">
          <Text size="sm">Open a trajectory and choose another rollout of its task under “Compare”.</Text>
          <Button component={Link} to="/trajectories">
            Go to trajectories
          </Button>
        </Nothing>
      ) : failed ? (
        <Failure error={failed.error} retry={() => void failed.refetch()} />
      ) : (
        <Waiting what="Loading both trajectories" />
      )}
    </>
  );
}

function Both({ a, b }: { a: Trajectory; b: Trajectory }) {
  const [search, set] = useAddress();
  const only = search.get("only") === "differences";
  const pairs = useMemo(() => align(a.steps, b.steps), [a.steps, b.steps]);
  const rows = useMemo(() => pairs.map((pair) => ({ pair, different: isDifferent(pair, a.steps, b.steps) })), [pairs, a, b]);
  const different = rows.filter((row) => row.different).length;
  const actions: KeyAction[] = [
    { keys: ["j", "ArrowDown"], does: "next difference", run: () => moveFocus("[data-different]", 1) },
    { keys: ["k", "ArrowUp"], does: "previous difference", run: () => moveFocus("[data-different]", -1) },
    { keys: ["s"], does: "swap the sides", run: () => set({ a: b.id, b: a.id }) },
    { keys: ["d"], does: "only differences, or all", run: () => set({ only: only ? null : "differences" }) },
  ];
  return (
    <>
      <PageHeader
        title={`Compare ${a.environment} ${taskName(a)}`}
        about={
          <Anchor component={Link} size="sm" to={`/trajectories${toSearch({ environment: a.environment, task: a.task ?? undefined })}`}>
            All rollouts of this task
          </Anchor>
        }
        actions={
          <>
            <Button variant="default" leftSection={<ArrowLeftRight size={16} aria-hidden />} onClick={() => set({ a: b.id, b: a.id })}>
              Swap
            </Button>
            <KeyHelp actions={actions} />
          </>
        }
      />
      <Stack>
        {(a.environment !== b.environment || a.task !== b.task) && (
          <Alert variant="outline" color="yellow" className="notice" role="status">
            These are not rollouts of one task: {`${a.environment} ${taskName(a)} and ${b.environment} ${taskName(b)}.`}
          </Alert>
        )}
        <div className="sides">
          <Side of={a} other={b} name="A" choose={(id) => set({ a: id })} />
          <Side of={b} other={a} name="B" choose={(id) => set({ b: id })} />
        </div>
        <Totals a={a} b={b} />
        {openingText(a) !== openingText(b) && <Openings a={a} b={b} />}
        <Group justify="space-between">
          <Title order={2} size="h5">
            Calls
          </Title>
          <Group gap="md">
            <Text size="sm" role="status">
              {different === 0 ? "No call differs." : `${different} of ${rows.length} rows differ.`}
            </Text>
            <Switch
              label="Only differences"
              checked={only}
              onChange={(event) => set({ only: event.currentTarget.checked ? "differences" : null })}
            />
          </Group>
        </Group>
        <ol className="pairs">
          {rows.map((row) =>
            only && !row.different ? null : (
              <Row key={`${row.pair.a} ${row.pair.b}`} pair={row.pair} different={row.different} a={a} b={b} />
            ),
          )}
        </ol>
      </Stack>
    </>
  );
}

function isDifferent(pair: Pair, a: readonly Step[], b: readonly Step[]): boolean {
  const one = pair.a === null ? undefined : a[pair.a];
  const other = pair.b === null ? undefined : b[pair.b];
  return one === undefined || other === undefined || differs(one, other);
}

function Side({ of, other, name, choose }: { of: Trajectory; other: Trajectory; name: string; choose: (id: string) => void }) {
  const rollouts = useRollouts(of).data ?? [];
  const choices = [
    ...rollouts.filter(({ id }) => id !== other.id),
    of,
  ].map((item) => ({
    value: item.id,
    label: `reward ${number(item.reward)}, ${item.calls} calls, ${item.run}${item.step === null ? "" : ` step ${item.step}`}, ${dateTime(item.started_at)}`,
  }));
  return (
    <Paper withBorder p="sm" component="section" aria-label={`Trajectory ${name}`}>
      <NativeSelect
        label={`Trajectory ${name}`}
        value={of.id}
        data={choices}
        onChange={(event) => choose(event.currentTarget.value)}
        mb="xs"
      />
      <Anchor component={Link} to={`/trajectories/${of.id}`} size="sm" mb="xs" display="inline-block">
        {`Open trajectory ${name}`}
      </Anchor>
      <Bars
        name={`Rewards of ${name}`}
        bars={of.steps.map((step, index) => ({ label: `call ${index + 1}`, value: step.reward, faded: step.discarded }))}
      />
    </Paper>
  );
}

function Totals({ a, b }: { a: Trajectory; b: Trajectory }) {
  const lasted = (of: Trajectory) => secondsBetween(of.started_at, of.ended_at);
  const metrics: [string, number | null, number | null, (value: number | null) => string][] = [
    ["Reward", a.reward, b.reward, number],
    ["Sum of rewards", a.reward_sum, b.reward_sum, number],
    ["Calls", a.calls, b.calls, count],
    ["Faults", a.faults, b.faults, count],
    ["Duration", lasted(a), lasted(b), duration],
  ];
  return (
    <div className="scroll-x">
      <Table withTableBorder aria-label="Totals" verticalSpacing={6}>
        <Table.Thead>
          <Table.Tr>
            <Table.Td />
            <Table.Th>A</Table.Th>
            <Table.Th>B</Table.Th>
            <Table.Th>B minus A</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          <Line name="Outcome" a={<Outcome of={a} />} b={<Outcome of={b} />} />
          {metrics.map(([name, one, other, format]) => (
            <Line key={name} name={name} a={format(one)} b={format(other)} change={change(one, other, format)} />
          ))}
          <Line name="Run" a={runName(a)} b={runName(b)} />
        </Table.Tbody>
      </Table>
    </div>
  );
}

function change(one: number | null, other: number | null, format: (value: number | null) => string): string {
  if (one === null || other === null) return NONE;
  if (one === other) return "same";
  return `${other > one ? "+" : "−"}${format(Math.abs(other - one))}`;
}

function runName(of: Trajectory): string {
  return of.step === null ? of.run : `${of.run}, step ${of.step}`;
}

function Line({ name, a, b, change: difference }: { name: string; a: ReactNode; b: ReactNode; change?: string }) {
  return (
    <Table.Tr>
      <Table.Th scope="row">{name}</Table.Th>
      <Table.Td className="numeric wrap-anywhere">{a}</Table.Td>
      <Table.Td className="numeric wrap-anywhere">{b}</Table.Td>
      <Table.Td className="numeric">{difference}</Table.Td>
    </Table.Tr>
  );
}

function openingText(of: Trajectory): string {
  const shown = (block: Message["blocks"][number]) => ("text" in block ? block.text : `[${block.type}]`);
  if (of.messages?.length) return of.messages.map(({ role, blocks }) => `${role}: ${blocks.map(shown).join("\n")}`).join("\n");
  return (of.prompt ?? []).map((block) => (block.type === "text" ? block.text : "[image]")).join("\n");
}

function Openings({ a, b }: { a: Trajectory; b: Trajectory }) {
  const [one, other] = [openingText(a), openingText(b)];
  return (
    <section aria-label="Prompts">
      <Title order={2} size="h5" mb={6}>
        Prompts
      </Title>
      <Paper withBorder p="sm" className="pair different">
        <div className="sides">
          <DiffText a={one} b={other} side="a" />
          <DiffText a={one} b={other} side="b" />
        </div>
      </Paper>
    </section>
  );
}

function Row({ pair, different, a, b }: { pair: Pair; different: boolean; a: Trajectory; b: Trajectory }) {
  const one = pair.a === null ? undefined : a.steps[pair.a];
  const other = pair.b === null ? undefined : b.steps[pair.b];
  const label = [pair.a === null ? "nothing in A" : `call ${pair.a + 1} of A`, pair.b === null ? "nothing in B" : `call ${pair.b + 1} of B`];
  return (
    <Paper
      withBorder
      p="sm"
      component="li"
      tabIndex={-1}
      className={different ? "pair different" : "pair"}
      data-different={different || undefined}
      aria-label={`${label.join(" and ")}: ${different ? "different" : "the same"}`}
    >
      <div className="sides">
        <Half of={one} position={pair.a} one={one} other={other} side="a" ended={a.ended_at !== null} />
        <Half of={other} position={pair.b} one={one} other={other} side="b" ended={b.ended_at !== null} />
      </div>
    </Paper>
  );
}

function Half({
  of,
  position,
  one,
  other,
  side,
  ended,
}: {
  of: Step | undefined;
  position: number | null;
  one: Step | undefined;
  other: Step | undefined;
  side: "a" | "b";
  ended: boolean;
}) {
  if (of === undefined || position === null) {
    return (
      <Text size="sm" c="dimmed">
        {`No such call in ${side.toUpperCase()}.`}
      </Text>
    );
  }
  const texts = (read: (step: Step) => string) => ({ a: one ? read(one) : "", b: other ? read(other) : "", side });
  const alone = one === undefined || other === undefined;
  const images = imagesOf(of);
  return (
    <Stack gap={6}>
      <Group gap="xs">
        <Text size="xs" c="dimmed" className="numeric">{`#${position + 1}`}</Text>
        <Text size="sm" fw={600} ff="monospace">
          {of.name}
        </Text>
        <Marks of={of} ended={ended} />
      </Group>
      {alone ? <Plain text={inputText(of.input)} /> : <DiffText {...texts((step) => inputText(step.input))} />}
      <div className="step-result">
        {alone ? <Plain text={resultText(of)} /> : <DiffText {...texts(resultText)} />}
        {images.length > 0 && <BlockList blocks={images} />}
      </div>
    </Stack>
  );
}

function Plain({ text }: { text: string }) {
  return (
    <Text size="sm" ff="monospace" className="as-typed">
      {text}
    </Text>
  );
}
