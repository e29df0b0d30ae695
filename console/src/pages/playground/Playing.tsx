// A session that is played: prompt and calls at one side, tools at the other, reward and ways out on top.
import {
  Alert,
  Anchor,
  Badge,
  Button,
  Card,
  Grid,
  Group,
  Modal,
  Paper,
  SegmentedControl,
  Stack,
  Text,
  Title,
} from "@mantine/core";
import { useState, useSyncExternalStore } from "react";
import { Link } from "react-router";

import { useServer } from "../../api/queries";
import type { Message } from "../../api/types";
import { number } from "../../format";
import { serverUrl } from "../../urls";
import { BlockList } from "../../shared/BlockList";
import { Code } from "../../shared/Code";
import { Failure, Waiting } from "../../shared/states";
import { Log } from "./Log";
import { isFinished, type Play, type PlayState, rewardsOf } from "./play";
import { useTrajectoryOf } from "./queries";
import { asCurl, asPython } from "./scripts";
import classes from "./Playing.module.css";
import { Tools } from "./Tools";

export function Playing({ play, onAgain }: { play: Play; onAgain: () => void }) {
  const state = useSyncExternalStore(play.subscribe, play.snapshot);
  const finished = isFinished(state.entries);
  const running = state.entries.some(({ outcome }) => outcome === null);
  return (
    <Stack>
      <Bar play={play} state={state} finished={finished} onAgain={onAgain} />
      {state.phase === "failed" && (
        <Failure error={state.problem} retry={onAgain} title="The session could not be opened" />
      )}
      {state.phase === "ended" && state.problem !== null && (
        <Alert color="red" variant="outline" role="alert" title="The session has ended">
          {state.problem instanceof Error ? state.problem.message : String(state.problem)}
        </Alert>
      )}
      {finished && (
        <Alert variant="outline" color="lake" role="status" title="The episode is finished">
          Total reward: {number(total(state))}. Start the task again, or choose another one.
        </Alert>
      )}
      {(state.phase === "opening" || state.phase === "starting") && (
        <Waiting what={state.phase === "opening" ? "Opening a session" : "The environment is being set up"} />
      )}
      {state.listing !== null && state.messages !== null && (
        <Grid gap="lg">
          <Grid.Col span={{ base: 12, md: 7 }}>
            <Stack>
              <Prompt messages={state.messages} />
              <section aria-labelledby="calls">
                <Title order={2} size="h4" id="calls" mb="xs">
                  Calls
                </Title>
                <Log entries={state.entries} onCancel={(entry) => void play.cancel(entry)} />
              </section>
            </Stack>
          </Grid.Col>
          <Grid.Col span={{ base: 12, md: 5 }}>
            <Card withBorder component="section" aria-labelledby="tools" className={classes.tools}>
              <Title order={2} size="h4" id="tools" mb="xs">
                Tools
              </Title>
              <Tools
                listing={state.listing}
                disabled={state.phase !== "ready"}
                running={running}
                onCall={(tool, input) => void play.call(tool, input)}
              />
            </Card>
          </Grid.Col>
        </Grid>
      )}
    </Stack>
  );
}

function total(state: PlayState): number {
  return rewardsOf(state.entries).reduce((sum, reward) => sum + reward, 0);
}

function Bar({
  play,
  state,
  finished,
  onAgain,
}: {
  play: Play;
  state: PlayState;
  finished: boolean;
  onAgain: () => void;
}) {
  const [copying, setCopying] = useState(false);
  const rewards = rewardsOf(state.entries);
  const last = rewards.at(-1);
  const trajectory = useTrajectoryOf(state.sid);
  const open = state.phase === "starting" || state.phase === "ready";
  return (
    <Paper withBorder p="sm" component="section" aria-label="Session" className={classes.bar}>
      <Group justify="space-between" gap="sm">
        <Group gap="md">
          <Badge variant={finished ? "filled" : "outline"} color={finished ? "lake" : "gray"} tt="none">
            {finished ? "finished" : state.phase}
          </Badge>
          <Text size="sm" aria-live="polite">
            Reward so far:{" "}
            <Text span fw={700} className="numeric">
              {rewards.length ? number(total(state)) : "none"}
            </Text>
            {last !== undefined && <Text span c="dimmed">{` (last ${number(last)})`}</Text>}
          </Text>
          {trajectory !== undefined && (
            <Anchor component={Link} size="sm" to={`/trajectories/${trajectory}`}>
              Its trajectory
            </Anchor>
          )}
        </Group>
        <Group gap="xs">
          <Button size="xs" variant="default" onClick={() => setCopying(true)}>
            Copy as code
          </Button>
          {open && (
            <Button size="xs" variant="default" onClick={() => void play.end()}>
              End the session
            </Button>
          )}
          {(finished || state.phase === "ended") && (
            <Button size="xs" onClick={onAgain}>
              Play again
            </Button>
          )}
        </Group>
      </Group>
      <CopyDialog play={play} state={state} opened={copying} onClose={() => setCopying(false)} />
    </Paper>
  );
}

function CopyDialog({
  play,
  state,
  opened,
  onClose,
}: {
  play: Play;
  state: PlayState;
  opened: boolean;
  onClose: () => void;
}) {
  const [kind, setKind] = useState<"python" | "curl">("python");
  const keys = useServer().data?.keys ?? false;
  const recorded = {
    url: serverUrl,
    environment: play.environment,
    choice: play.choice,
    calls: state.entries,
    keys,
    secrets: play.hasSecrets,
  };
  const text = kind === "python" ? asPython(recorded) : asCurl(recorded);
  return (
    <Modal opened={opened} onClose={onClose} title="This session as code" size="xl">
      <Stack>
        <SegmentedControl
          value={kind}
          onChange={(value) => setKind(value as "python" | "curl")}
          aria-label="Language"
          data={[
            { value: "python", label: "Python" },
            { value: "curl", label: "curl" },
          ]}
          style={{ alignSelf: "flex-start" }}
        />
        <Code text={text} label={kind === "python" ? "the Python code" : "the shell script"} />
        {keys && (
          <Text size="sm" c="dimmed">
            API keys are not included: set the variable ORSAY_API_KEY.
          </Text>
        )}
      </Stack>
    </Modal>
  );
}

function Prompt({ messages }: { messages: Message[] }) {
  const plain = messages.length === 1 && messages[0]?.role === "user";
  return (
    <section aria-labelledby="prompt">
      <Title order={2} size="h4" id="prompt" mb="xs">
        Prompt
      </Title>
      <Stack gap="sm">
        {messages.length === 0 && <Text c="dimmed">The prompt is empty.</Text>}
        {messages.map((message, index) => (
          <Card key={index} withBorder p="sm">
            {!plain && (
              <Text size="xs" c="dimmed" mb={4}>
                {message.role}
              </Text>
            )}
            <BlockList blocks={message.blocks} />
          </Card>
        ))}
      </Stack>
    </section>
  );
}
