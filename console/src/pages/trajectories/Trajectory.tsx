// One session from its prompt to its end.
import { Anchor, Button, Group, Menu, Paper, Stack, Text, Title } from "@mantine/core";
import { ArrowLeft, ArrowRight, ChevronDown, GitCompare, ListTree } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { Link, useHref, useLocation, useNavigate, useParams } from "react-router";

import type { Message, Step, Summary, Trajectory } from "../../api/types";
import { Bars } from "../../charts/Bars";
import "../../charts/charts.css";
import { dateTime, NONE, number, pretty, taskName } from "../../format";
import { CopyIcon } from "../../shared/Code";
import { linkOf } from "../../shared/links";
import { PageHeader } from "../../shared/PageHeader";
import { Recorded } from "./Recorded";
import { Blocks } from "./Blocks";
import { Facts } from "./Facts";
import { readFilters, toSearch } from "./filters";
import { KeyHelp, moveFocus, type KeyAction } from "./keys";
import { useBelow, useRollouts, useTrajectory } from "./queries";
import type { ListContext } from "./Rows";
import { StepCard } from "./StepCard";
import { Terminal } from "./Terminal";
import { longestCall } from "./Timing";
import "./trajectories.css";
import { Value } from "./Value";

const STEPS_AT_ONCE = 200;

/** The page of a trajectory. Its links to the neighbours stay where they are from page to page, so that each click hits. */
export function TrajectoryPage() {
  const { id = "" } = useParams();
  const navigate = useNavigate();
  const found = useTrajectory(id);
  const of = found.data;
  const { previous, next, list, state } = useNeighbours(id, of);
  const actions: KeyAction[] = [
    { keys: ["j", "ArrowDown"], does: "next call", run: () => moveFocus("[data-step]", 1) },
    { keys: ["k", "ArrowUp"], does: "previous call", run: () => moveFocus("[data-step]", -1) },
    { keys: ["p", "ArrowLeft"], does: "newer trajectory", run: () => previous && void navigate(previous, { state }) },
    { keys: ["n", "ArrowRight"], does: "older trajectory", run: () => next && void navigate(next, { state }) },
    { keys: ["u"], does: "back to the list", run: () => void navigate(list) },
  ];
  return (
    <>
      <PageHeader
        title={of ? `${of.environment} ${taskName(of)}` : "Trajectory"}
        about={of ? `${of.run}, ${dateTime(of.started_at)}` : NONE}
        actions={
          <>
            {of && <CompareMenu key={of.id} of={of} />}
            {of && <CopyIcon text={pretty(of)} what="the trajectory as JSON" />}
            <Group gap={4}>
              <StepButton to={previous} state={state} label="Newer" before />
              <StepButton to={next} state={state} label="Older" />
            </Group>
            <KeyHelp actions={actions} />
          </>
        }
      />
      <Stack>
        <Anchor component={Link} to={list} size="sm">
          <Group gap={6} component="span">
            <ListTree size={14} aria-hidden /> All trajectories
          </Group>
        </Anchor>
        <Recorded of={found} what="Loading the trajectory">
          {(trajectory) => <Whole key={trajectory.id} of={trajectory} />}
        </Recorded>
      </Stack>
    </>
  );
}

function Whole({ of }: { of: Trajectory }) {
  return (
    <>
      <Facts of={of} />
      <Rewards steps={of.steps} />
      <Opening of={of} />
      {of.sandbox.length > 0 && (
        <Section title="Sandbox, outside of calls">
          <Terminal items={of.sandbox} label="Commands outside of calls" />
        </Section>
      )}
      <Timeline of={of} />
    </>
  );
}

function StepButton({ to, state, label, before = false }: { to: string | null; state: unknown; label: string; before?: boolean }) {
  const icon = before ? <ArrowLeft size={16} aria-hidden /> : <ArrowRight size={16} aria-hidden />;
  const sections = before ? { leftSection: icon } : { rightSection: icon };
  if (to === null) {
    return (
      <Button variant="default" disabled {...sections}>
        {label}
      </Button>
    );
  }
  return (
    <Button variant="default" component={Link} to={to} state={state} {...sections}>
      {label}
    </Button>
  );
}

/** The trajectories beside this one in the list one came from; without a list, among those of the same task. */
function useNeighbours(id: string, of: Trajectory | undefined) {
  const given = useLocation().state as ListContext | null;
  const fromList = given !== null && Array.isArray(given.ids) && given.ids.includes(id);
  const rollouts = useRollouts(fromList ? undefined : of).data;
  const siblings = useMemo(() => [...(rollouts ?? []).map((rollout) => rollout.id), id].sort(newestFirst), [rollouts, id]);
  const ids = fromList ? given.ids : siblings;
  const here = ids.indexOf(id);
  const atEnd = fromList && here === ids.length - 1;
  const below = useBelow(id, fromList ? readFilters(new URL(given.list, "http://here").searchParams) : {}, atEnd).data;
  const all = atEnd && below !== undefined ? [...ids, below] : ids;
  const address = (other: string | undefined) => (other === undefined ? null : `/trajectories/${other}`);
  const ofTask = of ? toSearch({ environment: of.environment, task: of.task ?? undefined }) : "";
  return {
    previous: here > 0 ? address(ids[here - 1]) : null,
    next: address(all[here + 1]),
    list: fromList ? given.list : `/trajectories${ofTask}`,
    state: fromList ? { ...given, ids: all } : null,
  };
}

/** Ids are decimal numbers that grow with time, too large for JavaScript's numbers. */
function newestFirst(one: string, other: string): number {
  return other.length - one.length || (other > one ? 1 : other < one ? -1 : 0);
}

function CompareMenu({ of }: { of: Trajectory }) {
  const [opened, setOpened] = useState(false);
  const rollouts = useRollouts(opened ? of : undefined);
  const others = rollouts.data ?? [];
  return (
    <Menu opened={opened} onChange={setOpened} position="bottom-end" width={320}>
      <Menu.Target>
        <Button
          variant="default"
          leftSection={<GitCompare size={16} aria-hidden />}
          rightSection={<ChevronDown size={14} aria-hidden />}
        >
          Compare
        </Button>
      </Menu.Target>
      <Menu.Dropdown mah={420} style={{ overflowY: "auto" }}>
        <Menu.Label>Other rollouts of this task</Menu.Label>
        {rollouts.isPending && <Menu.Item disabled>Loading…</Menu.Item>}
        {rollouts.isSuccess && others.length === 0 && <Menu.Item disabled>No other rollouts.</Menu.Item>}
        {others.map((other) => (
          <Menu.Item key={other.id} component={Link} to={`/trajectories/diff?a=${of.id}&b=${other.id}`}>
            <Rollout of={other} />
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Item
          component={Link}
          to={`/trajectories${toSearch({ environment: of.environment, task: of.task ?? undefined })}`}
        >
          All rollouts of this task
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

export function Rollout({ of }: { of: Summary }) {
  return (
    <>
      <Text size="sm" truncate>
        {`reward ${number(of.reward)}, ${of.calls} calls`}
      </Text>
      <Text size="xs" c="dimmed" truncate>
        {`${of.run}${of.step === null ? "" : `, step ${of.step}`}, ${dateTime(of.started_at)}`}
      </Text>
    </>
  );
}

function Rewards({ steps }: { steps: readonly Step[] }) {
  const bars = steps.map((step, index) => ({
    label: `call ${index + 1}`,
    value: step.reward,
    faded: step.discarded,
  }));
  if (bars.every(({ value }) => value === null)) return null;
  const total = steps.reduce((sum, step) => sum + (step.discarded ? 0 : (step.reward ?? 0)), 0);
  return (
    <Paper withBorder p="md" component="section" aria-label="Rewards">
      <Group justify="space-between" mb={6}>
        <Title order={2} size="h5">
          Rewards
        </Title>
        <Text size="xs" c="dimmed" className="numeric">
          {`sum ${number(total)} over ${steps.length} calls`}
        </Text>
      </Group>
      <Bars bars={bars} name="Rewards" onPick={(index) => showStep(index + 1)} />
    </Paper>
  );
}

function showStep(position: number): void {
  const element = document.getElementById(`step-${position}`);
  element?.focus({ preventScroll: true });
  element?.scrollIntoView({ block: "center" });
}

/** Messages before the model's first call. */
function Opening({ of }: { of: Trajectory }) {
  return (
    <>
      {of.messages !== null && of.messages.length > 0 ? (
        <Section title="Messages">
          <Stack gap="sm">
            {of.messages.map((message, index) => (
              <OneMessage key={index} message={message} />
            ))}
          </Stack>
        </Section>
      ) : (
        of.prompt !== null && (
          <Section title="Prompt">
            <Blocks blocks={of.prompt} />
          </Section>
        )
      )}
      <Paper withBorder p="md" component="section" aria-label="Task and tools">
        <details>
          <summary>
            <Text size="sm" component="span" fw={500}>
              {`Task${of.tools === null ? "" : ` and ${of.tools.length} tools`}`}
            </Text>
          </summary>
          <Stack gap="sm" mt="sm">
            <Value value={of.request} />
            {of.tools?.map((tool) => (
              <div key={tool.name}>
                <Text size="sm" ff="monospace" fw={600}>
                  {tool.name}
                </Text>
                <Text size="sm" className="as-typed">
                  {tool.description || NONE}
                </Text>
              </div>
            ))}
          </Stack>
        </details>
      </Paper>
    </>
  );
}

function Section({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <Paper withBorder p="md" component="section" aria-label={title}>
      <Title order={2} size="h5" mb={6}>
        {title}
      </Title>
      {children}
    </Paper>
  );
}

function OneMessage({ message }: { message: Message }) {
  return (
    <div className={`message message-${message.role}`}>
      <Text size="xs" c="dimmed" fw={600}>
        {message.role}
      </Text>
      <Blocks blocks={message.blocks} />
    </div>
  );
}

function Timeline({ of }: { of: Trajectory }) {
  const { hash, state } = useLocation();
  const navigate = useNavigate();
  const address = useHref("");
  const asked = Number(/^#step-(\d+)$/.exec(hash)?.[1] ?? 0);
  const [shown, setShown] = useState(Math.max(STEPS_AT_ONCE, asked));
  const longest = useMemo(() => longestCall(of.steps), [of.steps]);
  useEffect(() => {
    if (asked > 0) showStep(asked);
  }, [asked]);
  return (
    <section aria-label="Calls">
      <Title order={2} size="h5" mb={6}>
        Calls
      </Title>
      {of.steps.length === 0 && (
        <Text size="sm" c="dimmed">
          {of.ended_at === null ? "No call yet." : "The session ended without a call."}
        </Text>
      )}
      <ol
        className="steps"
        onClick={(event) => {
          const link = linkOf(event, "a[data-link]");
          if (link) void navigate(link.hash, { state, replace: true }); // the list one came from stays known
        }}
      >
        {of.steps.slice(0, shown).map((step, index) => (
          <StepCard
            key={step.id}
            of={step}
            position={index + 1}
            longest={longest}
            ended={of.ended_at !== null}
            address={address}
          />
        ))}
      </ol>
      {of.steps.length > shown && (
        <Button variant="default" onClick={() => setShown(shown + STEPS_AT_ONCE)}>
          {`${of.steps.length - shown} more calls`}
        </Button>
      )}
    </section>
  );
}
