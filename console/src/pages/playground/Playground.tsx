// Playing an environment by hand, as a model would: the same prompt, the same tools, the same rewards.
import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import { useEffect, useState, useSyncExternalStore } from "react";
import { useBlocker, useNavigate, useParams, useSearchParams } from "react-router";

import { useEnvironments } from "../../api/queries";
import type { EnvironmentEntry } from "../../api/types";
import type { Secrets, TaskChoice } from "../../ors/requests";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing, Result } from "../../shared/states";
import { playgroundPath } from "../environments/paths";
import { Chooser, type Chosen } from "./Chooser";
import { isFinished, Play } from "./play";
import { Playing } from "./Playing";

export function Playground() {
  const { environment: name = "" } = useParams();
  const environments = useEnvironments();
  return (
    <Result of={environments} what="Loading environments">
      {(list) => {
        const environment =
          name === "" ? list[0] : list.find((each) => each.key === name.toLowerCase() || each.name === name);
        if (environment === undefined) return <Missing name={name} />;
        return <Ground environments={list} environment={environment} />;
      }}
    </Result>
  );
}

function Ground({ environments, environment }: { environments: EnvironmentEntry[]; environment: EnvironmentEntry }) {
  const navigate = useNavigate();
  const [search] = useSearchParams();
  const [play, setPlay] = useState<Play | null>(null);
  const [secrets, setSecrets] = useState<Secrets>({});
  const wanted = search.get("index");
  const chosen: Chosen = {
    split: search.get("split"),
    index: wanted !== null && /^\d+$/.test(wanted) ? Number(wanted) : null,
  };

  useEffect(() => setPlay(null), [environment.key]);
  useSessionEnd(play);

  function choose({ split, index }: Chosen) {
    const task = split === null ? undefined : { split, ...(index === null ? {} : { index }) };
    // at once: whoever starts right after a choice means that choice
    void navigate(playgroundPath(environment.key, task), { replace: true, flushSync: true });
  }

  function start(choice: TaskChoice, given: Secrets) {
    const next = new Play(environment.key, choice, given);
    setSecrets(given);
    setPlay(next);
    void next.open();
  }

  return (
    <>
      <PageHeader title={`Playground: ${environment.name}`} about={environment.description?.split("\n", 1)[0]} />
      <Stack>
        <Chooser
          key={environment.key}
          environments={environments}
          environment={environment}
          chosen={chosen}
          onEnvironment={(key) => void navigate(playgroundPath(key))}
          onChoose={choose}
          onStart={start}
          busy={false}
        />
        {play !== null && <Guard play={play} />}
        {play !== null && <Playing key={plays(play)} play={play} onAgain={() => start(play.choice, secrets)} />}
      </Stack>
    </>
  );
}

let made = 0;
const numbers = new WeakMap<Play, number>();

/** A name for React: forms and logs of one session do not become those of the next. */
function plays(play: Play): number {
  let number = numbers.get(play);
  if (number === undefined) {
    made += 1;
    number = made;
    numbers.set(play, number);
  }
  return number;
}

/** A session ends on the server when the page goes on to another one, is left, or is closed. */
function useSessionEnd(play: Play | null): void {
  useEffect(() => {
    if (play === null) return;
    const leave = () => void play.end(true);
    window.addEventListener("pagehide", leave);
    return () => {
      window.removeEventListener("pagehide", leave);
      void play.end();
    };
  }, [play]);
}

/** Asks before a link or the back button ends an episode that is under way. */
function Guard({ play }: { play: Play }) {
  const state = useSyncExternalStore(play.subscribe, play.snapshot);
  const under = state.phase === "ready" && state.entries.length > 0 && !isFinished(state.entries);
  const blocker = useBlocker(
    ({ currentLocation, nextLocation }) => under && currentLocation.pathname !== nextLocation.pathname,
  );
  return (
    <Modal opened={blocker.state === "blocked"} onClose={() => blocker.reset?.()} title="End the session?" centered>
      <Stack>
        <Text size="sm">The episode is not finished. Its session ends when you leave this page.</Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={() => blocker.reset?.()} data-autofocus>
            Stay
          </Button>
          <Button onClick={() => blocker.proceed?.()}>End session and leave</Button>
        </Group>
      </Stack>
    </Modal>
  );
}

function Missing({ name }: { name: string }) {
  const title = name ? `This server hosts no environment named “${name}”` : "This server hosts no environment";
  return (
    <>
      <PageHeader title="Playground" />
      <Nothing title={title}>
        <Text size="sm">The Environments page lists those that it hosts.</Text>
      </Nothing>
    </>
  );
}
