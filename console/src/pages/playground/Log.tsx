// The calls of the session in order: input, what came back, reward; faults look like faults, not like answers.
import { Alert, Badge, Button, Card, Code, Group, Loader, Stack, Text } from "@mantine/core";
import { useEffect, useRef } from "react";

import { duration, number, pretty } from "../../format";
import { BlockList } from "../../shared/BlockList";
import { Json } from "../../shared/Code";
import type { Entry } from "./play";

export function Log({ entries, onCancel }: { entries: Entry[]; onCancel: (entry: Entry) => void }) {
  const last = useRef<HTMLDivElement>(null);
  const changes = entries.filter(({ outcome }) => outcome !== null).length + entries.length;
  useEffect(() => {
    if (changes > 0) last.current?.scrollIntoView({ block: "nearest" });
  }, [changes]);
  if (entries.length === 0) {
    return (
      <Text c="dimmed" size="sm">
        No calls yet. Choose a tool, fill in its form and call it.
      </Text>
    );
  }
  return (
    <div role="log" aria-label="Calls" aria-live="polite">
      <Stack component="ol" gap="sm" p={0} m={0} style={{ listStyle: "none" }}>
        {entries.map((entry, index) => (
          <li key={entry.number}>
            <Card
              withBorder
              p="sm"
              style={{ scrollMargin: "160px 0 24px" }}
              ref={index === entries.length - 1 ? last : undefined}
            >
              <Stack gap="xs">
                <Head entry={entry} />
                <Input entry={entry} />
                <Answer entry={entry} onCancel={onCancel} />
              </Stack>
            </Card>
          </li>
        ))}
      </Stack>
    </div>
  );
}

function Head({ entry }: { entry: Entry }) {
  const { number: which, tool, outcome, tookMs } = entry;
  return (
    <Group justify="space-between" gap="xs">
      <Group gap="xs">
        <Text size="sm" c="dimmed" className="numeric">
          {which}
        </Text>
        <Code fz="sm">{tool}</Code>
        {outcome?.kind === "output" && outcome.output.reward !== null && (
          <Badge variant="outline" color="gray" tt="none">
            reward {number(outcome.output.reward)}
          </Badge>
        )}
        {outcome?.kind === "output" && outcome.output.finished && (
          <Badge variant="filled" tt="none">
            finished
          </Badge>
        )}
        {outcome?.kind === "refused" && (
          <Badge variant="outline" color="gray" tt="none">
            {outcome.reason ?? "refused"}
          </Badge>
        )}
      </Group>
      {tookMs !== null && (
        <Text size="xs" c="dimmed" className="numeric">
          {duration(tookMs / 1000)}
        </Text>
      )}
    </Group>
  );
}

function Input({ entry }: { entry: Entry }) {
  const text = JSON.stringify(entry.input);
  if (text === "{}") return null;
  if (text.length <= 120) {
    return (
      <Text size="sm" ff="monospace" c="dimmed" className="wrap-anywhere">
        {text}
      </Text>
    );
  }
  return (
    <details>
      <summary>Input</summary>
      <Code block className="as-typed" tabIndex={0} role="region" aria-label={`Input of call ${entry.number}`}>
        {pretty(entry.input)}
      </Code>
    </details>
  );
}

function Answer({ entry, onCancel }: { entry: Entry; onCancel: (entry: Entry) => void }) {
  const { outcome } = entry;
  if (outcome === null) {
    return (
      <Group gap="xs">
        <Loader size="xs" aria-hidden />
        <Text size="sm" c="dimmed">
          running…
        </Text>
        {entry.taskId !== null && (
          <Button size="compact-xs" variant="default" onClick={() => onCancel(entry)}>
            Cancel the call
          </Button>
        )}
      </Group>
    );
  }
  if (outcome.kind === "fault") {
    const { class: name, message, id, retryable } = outcome.fault;
    return (
      <Alert color="red" variant="outline" title={`Fault: ${name}`} role="alert">
        <Text size="sm" className="as-typed">
          {message || "No message."}
        </Text>
        <Text size="xs" c="dimmed" mt={4}>
          No result and no reward.{retryable && " The call may work in a new session."}
          {id !== null && ` The server’s log calls it ${id}.`}
        </Text>
      </Alert>
    );
  }
  if (outcome.kind === "refused") {
    return (
      <Text size="sm" className="as-typed" ff="monospace">
        {outcome.error}
      </Text>
    );
  }
  const { blocks, metadata } = outcome.output;
  return (
    <>
      {blocks.length === 0 ? (
        <Text size="sm" c="dimmed">
          The tool returned no content.
        </Text>
      ) : (
        <BlockList blocks={blocks} />
      )}
      {metadata !== null && metadata !== undefined && (
        <details>
          <summary>Metadata</summary>
          <Json value={metadata} label={`metadata of call ${entry.number}`} maxHeight={240} />
        </details>
      )}
    </>
  );
}
