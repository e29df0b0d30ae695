// Live view of the server: sessions, calls per second, latency, faults.
import { Alert, Button, Card, SimpleGrid, Stack, Text } from "@mantine/core";
import { Pause, Play } from "lucide-react";
import { useState } from "react";

import { type Feed, useLive } from "../../api/live";
import type { Snapshot } from "../../api/types";
import { count, duration, number } from "../../format";
import { PageHeader } from "../../shared/PageHeader";
import { Failure, Waiting } from "../../shared/states";
import { Faults } from "./Faults";
import { Sandboxes } from "./Sandboxes";
import { Sessions } from "./Sessions";
import { Spark } from "./Spark";

export function Live() {
  const feed = useLive();
  const [held, setHeld] = useState<Feed | null>(null);
  const { snapshot, past, problem } = held ?? feed;
  return (
    <>
      <PageHeader
        title="Live"
        about="Sessions, calls and faults of this server, live."
        actions={
          snapshot && (
            <Button
              variant="default"
              leftSection={held ? <Play size={16} aria-hidden /> : <Pause size={16} aria-hidden />}
              onClick={() => setHeld(held ? null : feed)}
            >
              {held ? "Resume" : "Pause"}
            </Button>
          )
        }
      />
      <Stack gap="lg">
        {problem !== null && snapshot === null && <Failure error={problem} retry={feed.retry} />}
        {problem !== null && snapshot !== null && (
          <Alert color="red" variant="outline" role="alert" title="The live feed was interrupted">
            {problem.message} What is shown is of before; the page tries again by itself.
          </Alert>
        )}
        {snapshot === null && problem === null && <Waiting what="Waiting for the live feed" />}
        {snapshot !== null && (
          <>
            <Metrics snapshot={snapshot} past={past} />
            <Sessions snapshot={snapshot} />
            {snapshot.sandboxes !== null && snapshot.sandboxes.length > 0 && <Sandboxes list={snapshot.sandboxes} />}
          </>
        )}
        <Faults />
      </Stack>
    </>
  );
}

function Metrics({ snapshot, past }: { snapshot: Snapshot; past: Feed["past"] }) {
  const { sessions, latency_ms } = snapshot;
  const others = (["opening", "starting", "failed", "closing"] as const)
    .filter((state) => sessions[state] > 0)
    .map((state) => `${count(sessions[state])} ${state}`);
  const ms = (value: number | null) => duration(value === null ? null : value / 1000);
  return (
    <SimpleGrid cols={{ base: 1, xs: 2, lg: 4 }}>
      <Metric
        name="Sessions"
        value={count(snapshot.total)}
        more={[`${count(sessions.ready)} ready`, ...others].join(", ")}
      />
      <Metric
        name="Calls per second"
        value={number(snapshot.calls_per_s, 1)}
        more={`${count(snapshot.calls_running)} running`}
      >
        <Spark values={past.map((each) => each.calls)} label="Calls per second, last two minutes" />
      </Metric>
      <Metric
        name="Latency, median"
        value={ms(latency_ms.p50)}
        more={`95%: ${ms(latency_ms.p95)}, 99%: ${ms(latency_ms.p99)}`}
      />
      <Metric name="Faults per second" value={number(snapshot.faults_per_s, 2)} more="the newest are listed below">
        <Spark values={past.map((each) => each.faults)} label="Faults per second, last two minutes" />
      </Metric>
    </SimpleGrid>
  );
}

function Metric({
  name,
  value,
  more,
  children,
}: {
  name: string;
  value: string;
  more: string;
  children?: React.ReactNode;
}) {
  return (
    <Card withBorder p="md" component="section" aria-label={name}>
      <Text size="sm" c="dimmed">
        {name}
      </Text>
      <Text fz={26} fw={700} className="numeric">
        {value}
      </Text>
      <Text size="sm" c="dimmed" className="numeric">
        {more}
      </Text>
      {children}
    </Card>
  );
}
