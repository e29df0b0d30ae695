// Facts about a session, without its messages.
import { Anchor, Badge, Group, Paper, SimpleGrid, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";

import type { Trajectory } from "../../api/types";
import { count, dateTime, duration, number, secondsBetween, taskName } from "../../format";
import { CopyIcon } from "../../shared/Code";
import { toSearch } from "./filters";
import { Outcome } from "./Outcome";

export function Facts({ of }: { of: Trajectory }) {
  const sameTask = toSearch({ environment: of.environment, task: of.task ?? undefined });
  const other = Object.entries(of.labels ?? {});
  return (
    <Paper withBorder p="md" component="section" aria-label="Facts">
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 5 }} spacing="sm" verticalSpacing="xs">
        <Fact name="Outcome">
          <Outcome of={of} />
        </Fact>
        <Fact name="Reward">
          <Text fw={700} className="numeric" component="span">
            {number(of.reward)}
          </Text>
          {of.reward_sum !== null && of.reward_sum !== of.reward && (
            <Text size="xs" c="dimmed">{`sum ${number(of.reward_sum)}`}</Text>
          )}
        </Fact>
        <Fact name="Calls">
          {count(of.calls)}
          {of.faults > 0 && <Text size="xs" c="dimmed">{`${count(of.faults)} with a fault`}</Text>}
        </Fact>
        <Fact name="Task">
          <Anchor component={Link} to={`/trajectories${sameTask}`} size="sm" className="wrap-anywhere">
            {taskName(of)}
          </Anchor>
        </Fact>
        <Fact name="Environment">
          <Anchor component={Link} to={`/trajectories${toSearch({ environment: of.environment })}`} size="sm">
            {of.environment}
          </Anchor>
          {of.replayable && (
            <Badge variant="light" color="gray" size="xs" className="mark" ml={6}>
              replayable
            </Badge>
          )}
        </Fact>
        <Fact name="Run">
          <Anchor component={Link} to={`/runs/compare?run=${encodeURIComponent(of.run)}`} size="sm" className="wrap-anywhere">
            {of.run}
          </Anchor>
        </Fact>
        {of.step !== null && (
          <Fact name="Step">
            <Anchor component={Link} to={`/trajectories${toSearch({ run: of.run, step: String(of.step) })}`} size="sm">
              {count(of.step)}
            </Anchor>
          </Fact>
        )}
        {of.rollout !== null && <Fact name="Rollout">{of.rollout}</Fact>}
        <Fact name="Started">{dateTime(of.started_at)}</Fact>
        <Fact name="Duration">
          {duration(secondsBetween(of.started_at, of.ended_at))}
          {of.setup_s !== null && <Text size="xs" c="dimmed">{`setup ${duration(of.setup_s)}`}</Text>}
        </Fact>
        {of.end_reason && <Fact name="Ended because">{of.end_reason}</Fact>}
        {of.client && <Fact name="Client">{of.client}</Fact>}
        {of.owner && <Fact name="Key">{of.owner}</Fact>}
        {other.map(([name, value]) => (
          <Fact key={name} name={name}>
            {typeof value === "string" ? value : JSON.stringify(value)}
          </Fact>
        ))}
        <Identifier name="Session" value={of.sid} />
        <Identifier name="Trace" value={of.trace ?? ""} />
      </SimpleGrid>
    </Paper>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <Text size="xs" c="dimmed">
        {name}
      </Text>
      <Text size="sm" component="div" className="wrap-anywhere">
        {children}
      </Text>
    </div>
  );
}

function Identifier({ name, value }: { name: string; value: string }) {
  if (!value) return null;
  return (
    <Fact name={name}>
      <Group gap={6} wrap="nowrap">
        <Text size="xs" ff="monospace" truncate title={value}>
          {value}
        </Text>
        <CopyIcon text={value} what={name.toLowerCase()} />
      </Group>
    </Fact>
  );
}
