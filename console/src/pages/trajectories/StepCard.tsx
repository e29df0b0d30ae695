// One call: what was asked, what came back, and what it was worth. A fault is set apart from an answer.
import { Alert, Anchor, Badge, Group, Paper, Stack, Text } from "@mantine/core";
import { TriangleAlert } from "lucide-react";
import { Link, useLocation } from "react-router";

import type { Step } from "../../api/types";
import { number } from "../../format";
import { Blocks } from "./Blocks";
import { Timing } from "./Timing";
import { Value } from "./Value";

export function StepCard({ of, place, longest, ended }: { of: Step; place: number; longest: number; ended: boolean }) {
  const { state } = useLocation(); // a link within the page keeps the list one came from
  return (
    <Paper
      withBorder
      p="sm"
      component="li"
      id={`step-${place}`}
      tabIndex={-1}
      data-step={place}
      aria-label={`Call ${place}: ${of.name ?? of.kind}`}
      className={of.fault ? "step step-fault" : of.discarded ? "step step-discarded" : "step"}
    >
      <Group justify="space-between" gap="xs" mb="xs">
        <Group gap="xs">
          <Anchor
            component={Link}
            to={`#step-${place}`}
            state={state}
            replace
            size="xs"
            className="numeric"
            aria-label={`Link to call ${place}`}
          >
            {`#${place}`}
          </Anchor>
          <Text fw={600} ff="monospace" size="sm">
            {of.kind === "score_group" ? "score_group" : of.name}
          </Text>
          <Marks of={of} ended={ended} />
        </Group>
        <Timing of={of} longest={longest} />
      </Group>
      <div className="step-body">
        <section aria-label={`Input of call ${place}`}>
          <Value value={of.input} />
        </section>
        <section aria-label={`Result of call ${place}`} className="step-result">
          <StepResult of={of} ended={ended} />
        </section>
      </div>
    </Paper>
  );
}

export function Marks({ of, ended }: { of: Step; ended: boolean }) {
  return (
    <Group gap={6}>
      {of.reward !== null && (
        <Badge variant="light" color={of.reward > 0 ? "green" : "gray"} className="mark numeric">
          {`reward ${number(of.reward)}`}
        </Badge>
      )}
      {of.finished && (
        <Badge variant="light" color="green" className="mark">
          finished
        </Badge>
      )}
      {of.discarded && (
        <Badge variant="light" color="yellow" className="mark" title="It came after the end of the episode and counts for nothing.">
          discarded
        </Badge>
      )}
      {of.fault && (
        <Badge variant="light" color="red" className="mark">
          {`fault ${of.fault}`}
        </Badge>
      )}
      {of.error && (
        <Badge variant="light" color="orange" className="mark">
          refused
        </Badge>
      )}
      {of.number === null && (
        <Badge variant="light" color="blue" className="mark">
          {ended ? "cut off" : "running"}
        </Badge>
      )}
    </Group>
  );
}

export function StepResult({ of, ended }: { of: Step; ended: boolean }) {
  if (of.fault) {
    return (
      <Alert
        color="red"
        variant="outline"
        className="notice"
        icon={<TriangleAlert size={18} aria-hidden />}
        title={`Fault: ${of.fault}`}
      >
        <Text size="sm" className="as-typed">
          {of.message || "There is no answer of the environment."}
        </Text>
        {of.fault_id && <Text size="xs" c="dimmed" mt={4}>{`In the log as ${of.fault_id}`}</Text>}
      </Alert>
    );
  }
  if (of.error) {
    return (
      <Alert color="orange" variant="outline" className="notice" title="The tool did not run">
        <Text size="sm" className="as-typed">
          {of.error}
        </Text>
      </Alert>
    );
  }
  if (of.number === null) {
    return (
      <Text size="sm" c="dimmed">
        {ended ? "The server stopped before there was a result." : "No result yet."}
      </Text>
    );
  }
  const scores = Array.isArray(of.scores) ? of.scores : [];
  return (
    <Stack gap="xs">
      {(of.blocks.length > 0 || scores.length === 0) && <Blocks blocks={of.blocks} />}
      {scores.length > 0 && <Value value={scores} />}
      {hasContent(of.metadata) && (
        <details>
          <summary>
            <Text size="xs" c="dimmed" component="span">
              Metadata
            </Text>
          </summary>
          <Value value={of.metadata} />
        </details>
      )}
    </Stack>
  );
}

function hasContent(value: unknown): boolean {
  return value !== null && value !== undefined && !(typeof value === "object" && Object.keys(value).length === 0);
}
