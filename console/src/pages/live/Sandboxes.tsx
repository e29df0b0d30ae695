// The living sandboxes as a table; each can be ended from here.
import { Anchor, Badge, Button, Card, Group, Modal, Stack, Table, Text, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useState } from "react";
import { Link } from "react-router";

import { post } from "../../api/request";
import type { LivingSandbox } from "../../api/types";
import { count, duration, NONE, number, short, size } from "../../format";

export function Sandboxes({ list }: { list: readonly LivingSandbox[] }) {
  const [ending, setEnding] = useState<LivingSandbox | null>(null);
  return (
    <section aria-labelledby="sandboxes">
      <Title order={2} size="h4" id="sandboxes" mb="xs">
        Sandboxes now
      </Title>
      <Card withBorder p={0} className="scroll-x" tabIndex={0} role="region" aria-label="Table of sandboxes">
        <Table miw={860} verticalSpacing={6} horizontalSpacing="sm" highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Image</Table.Th>
              <Table.Th>Session</Table.Th>
              <Table.Th>State</Table.Th>
              <Table.Th ta="right">CPU</Table.Th>
              <Table.Th ta="right">Memory</Table.Th>
              <Table.Th>Network</Table.Th>
              <Table.Th ta="right">Age</Table.Th>
              <Table.Th ta="right">Idle</Table.Th>
              <Table.Th ta="right">Commands</Table.Th>
              <Table.Th>
                <span className="visually-hidden">Actions</span>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {list.map((sandbox) => (
              <Row key={sandbox.id} of={sandbox} onEnd={() => setEnding(sandbox)} />
            ))}
          </Table.Tbody>
        </Table>
      </Card>
      <EndDialog of={ending} onClose={() => setEnding(null)} />
    </section>
  );
}

function Row({ of, onEnd }: { of: LivingSandbox; onEnd: () => void }) {
  return (
    <Table.Tr>
      <Table.Td title={of.id}>{short(of.image, 40)}</Table.Td>
      <Table.Td>
        {of.sid === null ? (
          NONE
        ) : of.session === null ? (
          short(of.sid)
        ) : (
          <Anchor component={Link} to={`/trajectories/${of.session}`} inherit>
            {short(of.sid)}
          </Anchor>
        )}
      </Table.Td>
      <Table.Td>
        <Badge variant="outline" color="gray" tt="none">
          {of.state}
        </Badge>
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {number(of.cpus)}
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {size(of.memory_bytes)}
      </Table.Td>
      <Table.Td>{of.network}</Table.Td>
      <Table.Td ta="right" className="numeric">
        {duration(of.age_s)}
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {duration(of.idle_s)}
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {count(of.commands)}
        {of.running > 0 && ` (${count(of.running)} now)`}
      </Table.Td>
      <Table.Td ta="right">
        <Button size="compact-xs" variant="default" onClick={onEnd} aria-label={`End the sandbox of ${of.image}`}>
          End
        </Button>
      </Table.Td>
    </Table.Tr>
  );
}

function EndDialog({ of, onClose }: { of: LivingSandbox | null; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  async function end() {
    if (of === null) return;
    setBusy(true);
    try {
      await post(`sandboxes/${encodeURIComponent(of.id)}/end`);
      notifications.show({ message: "The sandbox has ended." });
      onClose();
    } catch (problem) {
      notifications.show({
        color: "red",
        title: "The sandbox could not be ended",
        message: problem instanceof Error ? problem.message : String(problem),
      });
    } finally {
      setBusy(false);
    }
  }
  return (
    <Modal opened={of !== null} onClose={onClose} title="End this sandbox?" centered>
      <Stack>
        <Text size="sm" className="wrap-anywhere">
          {of?.image}, {of?.id}: running commands are killed, and its session gets an error.
        </Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus>
            Keep sandbox
          </Button>
          <Button color="red.9" onClick={() => void end()} loading={busy}>
            End the sandbox
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
