// Choice of environment, split and task.
import {
  Alert,
  Button,
  Group,
  NumberInput,
  PasswordInput,
  SegmentedControl,
  Select,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Dices, Plus } from "lucide-react";
import { type FormEvent, useState } from "react";

import type { JsonObject } from "../../api/json";
import type { EnvironmentEntry } from "../../api/types";
import { count } from "../../format";
import { JsonText } from "../../forms/JsonText";
import { countTasks, readTask, type Secrets, type TaskChoice } from "../../ors/requests";
import { Json } from "../../shared/Code";

export interface Chosen {
  split: string | null;
  index: number | null;
}

export function Chooser({
  environments,
  environment,
  chosen,
  onEnvironment,
  onChoose,
  onStart,
  busy,
}: {
  environments: EnvironmentEntry[];
  environment: EnvironmentEntry;
  chosen: Chosen;
  onEnvironment: (key: string) => void;
  onChoose: (chosen: Chosen) => void;
  onStart: (choice: TaskChoice, secrets: Secrets) => void;
  busy: boolean;
}) {
  const split =
    environment.splits.find((each) => each.name === chosen.split)?.name ?? environment.splits[0]?.name ?? null;
  const [way, setWay] = useState<"split" | "own">("split");
  const [own, setOwn] = useState<unknown>({});
  const [broken, setBroken] = useState<string | null>(null);
  const [secrets, setSecrets] = useState<[string, string][]>([]);
  const size = useQuery({
    queryKey: ["num_tasks", environment.key, split],
    queryFn: ({ signal }) => countTasks(environment.key, split ?? "", signal),
    enabled: split !== null,
    staleTime: 60_000,
  });
  const index = chosen.index ?? 0;

  function start(event: FormEvent) {
    event.preventDefault();
    const given: Secrets = Object.fromEntries(secrets.filter(([name]) => name.trim() !== ""));
    if (way === "own") onStart({ task_spec: (own ?? {}) as JsonObject }, given);
    else if (split !== null) onStart({ split, index }, given);
  }

  function startRandom() {
    if (split === null || !size.data) return;
    const random = Math.floor(Math.random() * size.data);
    onChoose({ split, index: random });
    onStart({ split, index: random }, Object.fromEntries(secrets.filter(([name]) => name.trim() !== "")));
  }

  return (
    <form onSubmit={start} aria-label="Choose a task">
      <Stack>
        <Group align="flex-end" gap="sm">
          <Select
            label="Environment"
            data={environments.map((each) => ({ value: each.key, label: each.name }))}
            value={environment.key}
            onChange={(key) => key !== null && onEnvironment(key)}
            allowDeselect={false}
            searchable
            w={{ base: "100%", xs: 240 }}
          />
          {way === "split" && (
            <>
              <Select
                label="Split"
                data={environment.splits.map((each) => each.name)}
                value={split}
                onChange={(name) => onChoose({ split: name, index: null })}
                allowDeselect={false}
                w={{ base: "100%", xs: 160 }}
              />
              <NumberInput
                label="Task"
                description={size.data === undefined ? undefined : `0 to ${count(size.data - 1)}`}
                value={index}
                min={0}
                max={size.data === undefined ? undefined : size.data - 1}
                allowDecimal={false}
                inputWrapperOrder={["label", "input", "description", "error"]}
                onChange={(value) => onChoose({ split, index: typeof value === "number" ? value : null })}
                w={{ base: "100%", xs: 120 }}
                styles={{ root: { position: "relative" }, description: { position: "absolute", marginTop: 4 } }}
              />
            </>
          )}
          <Button
            type="submit"
            loading={busy}
            disabled={way === "own" ? broken !== null : split === null || size.data === 0}
          >
            Start
          </Button>
          {way === "split" && (
            <Button
              variant="default"
              leftSection={<Dices size={16} aria-hidden />}
              onClick={startRandom}
              disabled={busy || !size.data}
            >
              Random task
            </Button>
          )}
        </Group>
        {size.isError && way === "split" && (
          <Alert color="gray" variant="outline" title="The tasks of this split cannot be counted">
            {size.error.message}
          </Alert>
        )}
        {size.data === 0 && way === "split" && <Text c="dimmed">This split has no tasks.</Text>}
        <details>
          <summary>More: the task itself, a task of your own, secrets</summary>
          <Stack mt="sm" maw={640}>
            <SegmentedControl
              value={way}
              onChange={(value) => setWay(value as "split" | "own")}
              aria-label="Task source"
              data={[
                { value: "split", label: "From a split" },
                { value: "own", label: "Custom task" },
              ]}
              style={{ alignSelf: "flex-start" }}
            />
            {way === "own" ? (
              <JsonText label="Task" description="A JSON object" value={own} onChange={setOwn} onProblem={setBroken} />
            ) : (
              split !== null && <TaskText environment={environment.key} split={split} index={index} />
            )}
            <SecretFields secrets={secrets} onChange={setSecrets} />
          </Stack>
        </details>
      </Stack>
    </form>
  );
}

function TaskText({ environment, split, index }: { environment: string; split: string; index: number }) {
  const task = useQuery({
    queryKey: ["task", environment, split, index],
    queryFn: () => readTask(environment, split, index),
    staleTime: 60_000,
    retry: false,
  });
  if (task.isError) {
    return (
      <Text size="sm" c="dimmed">
        {task.error.message}
      </Text>
    );
  }
  return task.data === undefined ? null : <Json value={task.data} label={`Task ${split}/${index}`} maxHeight={240} />;
}

function SecretFields({
  secrets,
  onChange,
}: {
  secrets: [string, string][];
  onChange: (secrets: [string, string][]) => void;
}) {
  const change = (at: number, pair: [string, string]) => onChange(secrets.map((each, i) => (i === at ? pair : each)));
  return (
    <Stack gap="xs" align="flex-start">
      {secrets.map(([name, value], at) => (
        <Group key={at} align="flex-end" gap="xs">
          <TextInput
            label={`Name of secret ${at + 1}`}
            value={name}
            onChange={(event) => change(at, [event.currentTarget.value, value])}
            autoComplete="off"
          />
          <PasswordInput
            label={`Value of secret ${at + 1}`}
            value={value}
            onChange={(event) => change(at, [name, event.currentTarget.value])}
            autoComplete="off"
            w={220}
            visibilityToggleButtonProps={{ "aria-label": "Show the value" }}
          />
        </Group>
      ))}
      <Button
        variant="default"
        size="xs"
        leftSection={<Plus size={14} aria-hidden />}
        onClick={() => onChange([...secrets, ["", ""]])}
      >
        Add a secret
      </Button>
    </Stack>
  );
}
