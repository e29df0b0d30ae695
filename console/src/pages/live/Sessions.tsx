// The sessions of now as a table; each can be ended from here.
import { Anchor, Badge, Button, Card, Group, Modal, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { Search } from "lucide-react";
import { useState } from "react";
import { Link } from "react-router";

import { post } from "../../api/request";
import type { LiveSession, Snapshot } from "../../api/types";
import { count, duration, NONE, number, short } from "../../format";
import { Nothing } from "../../shared/states";

export function Sessions({ snapshot }: { snapshot: Snapshot }) {
  const [text, setText] = useState("");
  const [ending, setEnding] = useState<LiveSession | null>(null);
  const wanted = text.trim().toLowerCase();
  const shown = snapshot.list.filter((each) => words(each).includes(wanted));
  return (
    <section aria-labelledby="sessions">
      <Group justify="space-between" align="flex-end" mb="xs">
        <div>
          <Title order={2} size="h4" id="sessions">
            Sessions now
          </Title>
          {snapshot.total > snapshot.list.length && (
            <Text size="sm" c="dimmed">
              The newest {count(snapshot.list.length)} of {count(snapshot.total)}.
            </Text>
          )}
        </div>
        {snapshot.list.length > 0 && (
          <TextInput
            type="search"
            aria-label="Search the sessions"
            placeholder="Environment, task, run, state"
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
            leftSection={<Search size={16} aria-hidden />}
            w={{ base: "100%", xs: 280 }}
          />
        )}
      </Group>
      {snapshot.list.length === 0 ? (
        <Nothing title="No session is open">
          <Text size="sm">
            Sessions appear here as soon as a client, a trainer or the{" "}
            <Anchor component={Link} to="/playground" inherit underline="always">
              playground
            </Anchor>{" "}
            opens one.
          </Text>
        </Nothing>
      ) : (
        <Card withBorder p={0} className="scroll-x" tabIndex={0} role="region" aria-label="Table of sessions">
          <Table miw={860} verticalSpacing={6} horizontalSpacing="sm" highlightOnHover>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Environment</Table.Th>
                <Table.Th>Task</Table.Th>
                <Table.Th>Run</Table.Th>
                <Table.Th>State</Table.Th>
                <Table.Th ta="right">Age</Table.Th>
                <Table.Th ta="right">Idle</Table.Th>
                <Table.Th ta="right">Calls</Table.Th>
                <Table.Th ta="right">Reward</Table.Th>
                <Table.Th>
                  <span className="visually-hidden">Actions</span>
                </Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {shown.map((session) => (
                <Row key={session.sid} session={session} onEnd={() => setEnding(session)} />
              ))}
              {shown.length === 0 && (
                <Table.Tr>
                  <Table.Td colSpan={9}>
                    <Text size="sm" c="dimmed">
                      No session matches “{text}”.
                    </Text>
                  </Table.Td>
                </Table.Tr>
              )}
            </Table.Tbody>
          </Table>
        </Card>
      )}
      <EndDialog session={ending} onClose={() => setEnding(null)} />
    </section>
  );
}

function words({ environment, task, run, state, sid, owner }: LiveSession): string {
  return [environment, task, run, state, sid, owner].filter(Boolean).join("\n").toLowerCase();
}

function Row({ session, onEnd }: { session: LiveSession; onEnd: () => void }) {
  const { sid, id, environment, task, run, state, age_s, idle_s, calls, running, reward, finished } = session;
  const name = task ? short(task, 24) : short(sid);
  return (
    <Table.Tr>
      <Table.Td>{environment}</Table.Td>
      <Table.Td>
        {id === null ? (
          name
        ) : (
          <Anchor component={Link} to={`/trajectories/${id}`} inherit>
            {name}
          </Anchor>
        )}
      </Table.Td>
      <Table.Td>
        {run === null ? (
          NONE
        ) : (
          <Anchor component={Link} to={`/trajectories?run=${encodeURIComponent(run)}`} inherit>
            {short(run, 24)}
          </Anchor>
        )}
      </Table.Td>
      <Table.Td>
        <Badge variant="outline" color={state === "failed" ? "red" : "gray"} tt="none">
          {finished ? "finished" : state}
        </Badge>
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {duration(age_s)}
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {duration(idle_s)}
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {count(calls)}
        {running > 0 && ` (${count(running)} now)`}
      </Table.Td>
      <Table.Td ta="right" className="numeric">
        {number(reward)}
      </Table.Td>
      <Table.Td ta="right">
        <Button
          size="compact-xs"
          variant="default"
          onClick={onEnd}
          aria-label={`End the session of ${environment}, ${name}`}
        >
          End
        </Button>
      </Table.Td>
    </Table.Tr>
  );
}

function EndDialog({ session, onClose }: { session: LiveSession | null; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  async function end() {
    if (session === null) return;
    setBusy(true);
    try {
      await post(`sessions/${encodeURIComponent(session.sid)}/end`);
      notifications.show({ message: "The session has ended." });
      onClose();
    } catch (problem) {
      notifications.show({
        color: "red",
        title: "The session could not be ended",
        message: problem instanceof Error ? problem.message : String(problem),
      });
    } finally {
      setBusy(false);
    }
  }
  return (
    <Modal opened={session !== null} onClose={onClose} title="End this session?" centered>
      <Stack>
        <Text size="sm" className="wrap-anywhere">
          {session?.environment}, {session?.task ?? session?.sid}: running calls are cancelled, and its client gets an error.
        </Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus>
            Keep session
          </Button>
          <Button color="red.9" onClick={() => void end()} loading={busy}>
            End the session
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
