// One evaluation: what it measured with its intervals, what went wrong, what it cost, and task by task.
import { Alert, Anchor, Button, Group, Paper, SimpleGrid, Stack, Text } from "@mantine/core";
import { FileJson, FileSpreadsheet, TriangleAlert } from "lucide-react";
import { useMemo, type ReactNode } from "react";
import { Link, useParams } from "react-router";

import { saveFile } from "../../api/request";
import type { Quantiles, SavedEvaluation } from "../../api/types";
import { Chart } from "../../charts/Chart";
import "../../charts/charts.css";
import { fileName, saveCsv } from "../../charts/csv";
import { curvesOption, spreadOption } from "../../charts/options";
import { count, dateTime, duration, NONE, number, percent, pretty } from "../../format";
import { Json } from "../../shared/Code";
import { PageHeader } from "../../shared/PageHeader";
import { share, withInterval } from "../runs/words";
import { Recorded } from "../trajectories/Recorded";
import "../trajectories/trajectories.css";
import { State } from "./Evaluations";
import { histogram } from "./histogram";
import { scored, total, useEvaluation } from "./report";
import { TaskTable } from "./TaskTable";

export function EvaluationPage() {
  const { id } = useParams();
  const found = useEvaluation(id);
  return (
    <>
      {found.data === undefined && <PageHeader title="Evaluation" />}
      <Recorded of={found} what="Loading the evaluation">
        {(report) => <Whole of={report} />}
      </Recorded>
    </>
  );
}

function Whole({ of }: { of: SavedEvaluation }) {
  const { summary } = of;
  const file = `evaluation-${of.name}`;
  return (
    <>
      <PageHeader
        title={of.name}
        about={
          <>
            {`${of.model} on ${of.environment}${of.split ? ` ${of.split}` : ""}, ${dateTime(of.started_at)} `}
            <State of={of} />
          </>
        }
        actions={
          <>
            <Button
              variant="default"
              leftSection={<FileJson size={16} aria-hidden />}
              onClick={() => saveFile(new Blob([pretty(of)], { type: "application/json" }), `${fileName(file)}.json`)}
            >
              JSON
            </Button>
            <Button variant="default" leftSection={<FileSpreadsheet size={16} aria-hidden />} onClick={() => saveCsv(episodesTable(of), file)}>
              CSV
            </Button>
          </>
        }
      />
      <Stack>
        <Group gap="md">
          <Anchor component={Link} to="/evaluations" size="sm">
            All evaluations
          </Anchor>
          <Anchor component={Link} to={`/trajectories?${new URLSearchParams({ run: of.run }).toString()}`} size="sm">
            Its trajectories
          </Anchor>
          <Anchor component={Link} to={`/runs/compare?${new URLSearchParams({ run: of.run }).toString()}`} size="sm">
            Its run
          </Anchor>
        </Group>
        <SimpleGrid cols={{ base: 2, md: 4 }} spacing="sm">
          <Metric
            name="Mean reward"
            value={number(summary.mean_reward?.mean)}
            note={withBounds(summary.mean_reward?.low, summary.mean_reward?.high, number)}
          />
          <Metric
            name={`Success (reward of ${number(summary.success_threshold)} or more)`}
            value={percent(summary.success?.mean)}
            note={withBounds(summary.success?.low, summary.success?.high, share)}
          />
          <Metric
            name="Episodes"
            value={count(summary.scored)}
            note={`scored, of ${count(summary.planned)}: ${count(summary.n_tasks)} tasks, ${count(summary.k)} attempts`}
          />
          <Metric name="Duration" value={duration(summary.wall_seconds)} note={`an episode ${spread(summary.seconds, duration)}`} />
        </SimpleGrid>
        <Faults of={of} />
        <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
          <PassAtK of={of} />
          <Distribution of={of} />
        </SimpleGrid>
        <Cost of={of} />
        <TaskTable of={of} />
        <details>
          <summary>
            <Text size="sm" component="span" fw={500}>
              Settings
            </Text>
          </summary>
          <Json value={of.settings} label="Settings of the evaluation" />
        </details>
      </Stack>
    </>
  );
}

function withBounds(low: number | null | undefined, high: number | null | undefined, format: (value: number | null) => string): string {
  if (low === null || low === undefined || high === null || high === undefined) return "no interval";
  return `95%: ${format(low)} to ${format(high)}`;
}

function spread(of: Quantiles | null, format: (value: number) => string): string {
  return of === null ? NONE : `${format(of.p50)}, p95 ${format(of.p95)}`;
}

function Metric({ name, value, note }: { name: string; value: ReactNode; note: string }) {
  return (
    <Paper withBorder p="sm">
      <Text size="xs" c="dimmed">
        {name}
      </Text>
      <Text size="xl" fw={700} className="numeric">
        {value}
      </Text>
      <Text size="xs" c="dimmed" className="numeric">
        {note}
      </Text>
    </Paper>
  );
}

function Faults({ of }: { of: SavedEvaluation }) {
  const { faults, retried } = of.summary;
  const lost = total(faults);
  const again = total(retried);
  if (lost === 0 && again === 0) return null;
  const list = (counts: Record<string, number>) =>
    Object.entries(counts)
      .map(([fault, times]) => `${count(times)} ${fault}`)
      .join(", ");
  return (
    <Alert
      variant="outline"
      color={lost ? "red" : "yellow"}
      className="notice"
      icon={<TriangleAlert size={18} aria-hidden />}
      title={
        lost
          ? `${count(lost)} ${lost === 1 ? "episode was" : "episodes were"} lost to faults`
          : `${count(again)} ${again === 1 ? "fault" : "faults"}, after which an episode was played again`
      }
    >
      <Text size="sm">
        {lost > 0 && `${list(faults)}. They have no reward and are left out of the means. `}
        {again > 0 && `Retried after: ${list(retried)}.`}
      </Text>
    </Alert>
  );
}

function PassAtK({ of }: { of: SavedEvaluation }) {
  const points = of.summary.pass_at_k;
  const option = useMemo(
    () => (scheme: "light" | "dark") =>
      curvesOption(
        [{ name: "pass@k", points: points.map(({ k, mean, low, high }) => ({ x: k, y: mean, low, high })) }],
        { kind: "step", label: (k) => `k = ${k}`, format: (value) => percent(value), bounds: [0, 1] },
        scheme,
      ),
    [points],
  );
  if (points.length === 0) return null;
  return (
    <Chart
      title="pass@k"
      summary={points.map(({ k, mean }) => `pass@${k} ${percent(mean)}`).join(", ")}
      option={option}
      table={() => ({ columns: ["k", "pass@k", "low", "high"], rows: points.map(({ k, mean, low, high }) => [k, mean, low, high]) })}
      file="pass-at-k"
      legend={
        <Text size="sm" className="numeric">
          {points.map(({ k, mean, low, high }) => `pass@${k} ${withInterval(mean, low, high, share)}`).join(" · ")}
        </Text>
      }
    />
  );
}

function Distribution({ of }: { of: SavedEvaluation }) {
  const spreadOf = useMemo(() => histogram(scored(of.episodes).map(({ reward }) => reward)), [of.episodes]);
  const option = useMemo(
    () => (scheme: "light" | "dark") => spreadOption([{ name: of.name, ...spreadOf }], scheme),
    [of.name, spreadOf],
  );
  if (spreadOf.counts.length === 0) return null;
  return (
    <Chart
      title="Distribution of rewards"
      summary="The share of episodes with a reward in each range."
      option={option}
      table={() => ({
        columns: ["from", "to", "episodes"],
        rows: spreadOf.counts.map((each, bin) => [spreadOf.edges[bin], spreadOf.edges[bin + 1], each]),
      })}
      file="evaluation-rewards"
    />
  );
}

function Cost({ of }: { of: SavedEvaluation }) {
  const { tokens, latency, turns, stops, scored: episodes } = of.summary;
  const each = (value: number) => (episodes ? `${count(value / episodes)} an episode` : "");
  return (
    <SimpleGrid cols={{ base: 2, md: 4 }} spacing="sm">
      <Metric
        name="Input tokens"
        value={count(tokens.input)}
        note={`${each(tokens.input)}${tokens.cached ? `, ${count(tokens.cached)} from the cache` : ""}`}
      />
      <Metric
        name="Output tokens"
        value={count(tokens.output)}
        note={`${each(tokens.output)}${tokens.reasoning ? `, ${count(tokens.reasoning)} of them reasoning` : ""}`}
      />
      <Metric
        name="Answer latency"
        value={duration(latency?.p50)}
        note={latency ? `median; p95 ${duration(latency.p95)}, longest ${duration(latency.max)}` : "no model"}
      />
      <Metric
        name="Turns"
        value={number(turns?.mean, 1)}
        note={Object.entries(stops)
          .map(([stop, times]) => `${stop} ${count(times)}`)
          .join(", ")}
      />
    </SimpleGrid>
  );
}

function episodesTable(of: SavedEvaluation) {
  return {
    columns: ["task", "attempt", "reward", "success", "fault", "stop", "turns", "calls", "tokens_in", "tokens_out", "seconds", "sid"],
    rows: of.episodes.map((episode) => [
      episode.task,
      episode.attempt,
      episode.reward,
      episode.success,
      episode.fault,
      episode.stop,
      episode.turns,
      episode.calls,
      episode.tokens.input,
      episode.tokens.output,
      episode.seconds,
      episode.sid,
    ]),
  };
}
