// The fields that narrow the list down.
import { Autocomplete, Button, Collapse, Group, NativeSelect, SimpleGrid, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { ChevronDown, ChevronUp, Search, X } from "lucide-react";
import { useEffect, useRef, useState, type RefObject } from "react";

import { useEnvironments } from "../../api/queries";
import { FILTERS, RARE, type FilterName, type FilterState } from "./filters";
import { useEnvironmentNames, useRunNames } from "./queries";

const PAUSE_MS = 350; // after the last key

/** Classes of faults, as docs/faults.md lists them; others can be written into the address. */
const FAULTS = [
  "tool_error",
  "bad_reward",
  "setup_error",
  "prompt_error",
  "score_error",
  "task_error",
  "time_limit",
  "result_too_large",
  "cancelled",
  "worker_lost",
  "session_gone",
  "overloaded",
  "shutdown",
  "internal",
];

export function FilterBar({ state, searchField }: { state: FilterState; searchField: RefObject<HTMLInputElement | null> }) {
  const { filters, change, clear } = state;
  const environments = useEnvironments().data ?? [];
  const runs = useRunNames().data ?? [];
  const [open, { toggle }] = useDisclosure(RARE.some((name) => filters[name] !== undefined));
  const environment = environments.find(({ name }) => name === filters.environment);
  const known = useEnvironmentNames().map((name) => ({ value: name, label: name }));
  return (
    <form role="search" aria-label="Trajectories" onSubmit={(event) => event.preventDefault()}>
      <SimpleGrid cols={{ base: 2, md: 4 }} spacing="sm" verticalSpacing="xs">
        <TypedField name="text" label="Text" placeholder="in prompts, calls and results" state={state} field={searchField} icon />
        <NativeSelect
          label="Environment"
          value={filters.environment ?? ""}
          onChange={(event) => change({ environment: event.currentTarget.value, split: null })}
          data={choices("All", known, filters.environment)}
        />
        <TypedField name="run" label="Run" placeholder="All" state={state} options={runs.map(({ run }) => run)} />
        <NativeSelect
          label="Fault"
          value={filters.fault ?? ""}
          onChange={(event) => change({ fault: event.currentTarget.value })}
          data={choices(
            "With or without",
            [
              { value: "none", label: "Without a fault" },
              { value: "any", label: "With any fault" },
              ...FAULTS.map((fault) => ({ value: fault, label: fault })),
            ],
            filters.fault,
          )}
        />
        <TypedField name="reward_min" label="Reward from" type="number" state={state} />
        <TypedField name="reward_max" label="Reward to" type="number" state={state} />
        <NativeSelect
          label="Finished"
          value={filters.finished ?? ""}
          onChange={(event) => change({ finished: event.currentTarget.value })}
          data={choices(
            "Either",
            [
              { value: "true", label: "Finished" },
              { value: "false", label: "Not finished" },
            ],
            filters.finished,
          )}
        />
        <Group align="flex-end" gap="xs">
          <Button
            variant="default"
            onClick={toggle}
            aria-expanded={open}
            rightSection={open ? <ChevronUp size={16} aria-hidden /> : <ChevronDown size={16} aria-hidden />}
          >
            More
          </Button>
          {FILTERS.some((name) => filters[name] !== undefined) && (
            <Button variant="default" leftSection={<X size={16} aria-hidden />} onClick={clear}>
              Clear
            </Button>
          )}
        </Group>
      </SimpleGrid>
      <Collapse expanded={open}>
        <SimpleGrid cols={{ base: 2, md: 5 }} spacing="sm" verticalSpacing="xs" mt="xs">
          <TypedField
            name="split"
            label="Split"
            placeholder="All"
            state={state}
            options={environment?.splits.map(({ name }) => name) ?? []}
          />
          <TypedField name="task" label="Task" placeholder="train:17" state={state} />
          <TypedField name="step" label="Step of the run" type="number" state={state} />
          <TypedField name="since" label="Started since" type="datetime-local" state={state} />
          <TypedField name="until" label="Started until" type="datetime-local" state={state} />
        </SimpleGrid>
      </Collapse>
    </form>
  );
}

interface Choice {
  value: string;
  label: string;
}

/** All choices; a value from the address that is none of them is one more. */
function choices(all: string, known: Choice[], value: string | undefined): Choice[] {
  const missing = value && !known.some((choice) => choice.value === value) ? [{ value, label: value }] : [];
  return [{ value: "", label: all }, ...known, ...missing];
}

/** A field that reaches the address a moment after the last key, or at once with Enter. */
function TypedField({
  name,
  label,
  state: { filters, change },
  placeholder,
  type = "text",
  options,
  field,
  icon = false,
}: {
  name: FilterName;
  label: string;
  state: FilterState;
  placeholder?: string;
  type?: string;
  options?: string[];
  field?: RefObject<HTMLInputElement | null>;
  icon?: boolean;
}) {
  const current = filters[name] ?? "";
  const [typed, setTyped] = useState(current);
  const sent = useRef(current);
  useEffect(() => {
    // the address changed by itself: the back button, a link, "clear"
    if (current !== sent.current) {
      sent.current = current;
      setTyped(current);
    }
  }, [current]);
  useEffect(() => {
    if (typed === sent.current) return;
    const timer = setTimeout(() => send(typed), PAUSE_MS);
    return () => clearTimeout(timer);
  });
  const send = (value: string) => {
    if (value === sent.current) return;
    const typing = sent.current !== "" && value !== "";
    sent.current = value;
    change({ [name]: value || null }, typing);
  };
  const common = {
    label,
    placeholder,
    value: typed,
    onKeyDown: (event: React.KeyboardEvent) => event.key === "Enter" && send(typed),
  };
  if (options) return <Autocomplete {...common} data={[...new Set(options)]} limit={30} onChange={setTyped} />;
  return (
    <TextInput
      {...common}
      ref={field}
      type={type}
      step="any"
      onChange={(event) => setTyped(event.currentTarget.value)}
      leftSection={icon ? <Search size={16} aria-hidden /> : undefined}
    />
  );
}
