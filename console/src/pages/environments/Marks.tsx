// Small facts about an environment: whether it is ready, what it can do, how busy it is.
import { Badge, Group, Text } from "@mantine/core";

import type { EnvironmentEntry } from "../../api/types";
import { count } from "../../format";

export function Marks({ environment }: { environment: EnvironmentEntry }) {
  return (
    <Group gap={6} justify="flex-end">
      {environment.state === "pending" && (
        <Badge variant="outline" color="gray">
          loading
        </Badge>
      )}
      {environment.replayable && (
        <Badge variant="outline" color="gray" title="Its sessions are recovered after a server crash">
          replayable
        </Badge>
      )}
    </Group>
  );
}

export function Load({ environment }: { environment: EnvironmentEntry }) {
  const { splits, runtime, sessions, calls_running, state } = environment;
  if (state === "pending") {
    return (
      <Text size="sm" c="dimmed">
        Its runtime is still starting. This page refreshes by itself.
      </Text>
    );
  }
  return (
    <Text size="sm" c="dimmed" className="wrap-anywhere">
      {splits.map((split) => split.name).join(", ") || "no splits"} · runs in {runtime} · {count(sessions)}{" "}
      {sessions === 1 ? "session" : "sessions"}, {count(calls_running)} {calls_running === 1 ? "call" : "calls"} now
    </Text>
  );
}
