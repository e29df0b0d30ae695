// The fields that narrow the list down.
import { Autocomplete, Button, Group } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { ChevronDown, ChevronUp, X } from "lucide-react";
import { memo, useEffect, useMemo, useRef, type RefObject } from "react";

import { useEnvironments } from "../../api/queries";
import { SelectField, TextField, type Option } from "../../shared/Fields";
import { useAhead } from "./address";
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

const FAULT_CHOICES: Option[] = [
  { value: "none", label: "Without a fault" },
  { value: "any", label: "With any fault" },
  ...FAULTS.map((fault) => ({ value: fault, label: fault })),
];

const FINISHED_CHOICES: Option[] = [
  { value: "true", label: "Finished" },
  { value: "false", label: "Not finished" },
];

const NO_NAMES: string[] = [];

/** `settled`: the first list is there, and what can be chosen may be asked for. */
export const FilterBar = memo(function FilterBar({
  state,
  searchField,
  settled,
}: {
  state: FilterState;
  searchField: RefObject<HTMLInputElement | null>;
  settled: boolean;
}) {
  const { filters, change, clear } = state;
  const environments = useEnvironments().data;
  const runs = useRunNames(settled).data;
  const [open, { toggle }] = useDisclosure(RARE.some((name) => filters[name] !== undefined));
  const environment = environments?.find(({ name }) => name === filters.environment);
  const known = useEnvironmentNames(settled).map((name) => ({ value: name, label: name }));
  const runNames = useMemo(() => runs?.map(({ run }) => run) ?? NO_NAMES, [runs]);
  return (
    <form role="search" aria-label="Trajectories" onSubmit={(event) => event.preventDefault()}>
      <div className="fields fields-4">
        <TypedField name="text" label="Text" placeholder="in prompts, calls and results" state={state} field={searchField} sought />
        <SelectField
          label="Environment"
          value={filters.environment ?? ""}
          onChange={(value) => change({ environment: value, split: null })}
          options={choices("All", known, filters.environment)}
        />
        <TypedField name="run" label="Run" placeholder="All" state={state} options={runNames} />
        <SelectField
          label="Fault"
          value={filters.fault ?? ""}
          onChange={(value) => change({ fault: value })}
          options={choices("With or without", FAULT_CHOICES, filters.fault)}
        />
        <TypedField name="reward_min" label="Reward from" type="number" state={state} />
        <TypedField name="reward_max" label="Reward to" type="number" state={state} />
        <SelectField
          label="Finished"
          value={filters.finished ?? ""}
          onChange={(value) => change({ finished: value })}
          options={choices("Either", FINISHED_CHOICES, filters.finished)}
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
      </div>
      {open && (
        <div className="fields fields-5 fields-more">
          <TypedField
            name="split"
            label="Split"
            placeholder="All"
            state={state}
            options={environment?.splits.map(({ name }) => name) ?? NO_NAMES}
          />
          <TypedField name="task" label="Task" placeholder="train:17" state={state} />
          <TypedField name="step" label="Step of the run" type="number" state={state} />
          <TypedField name="since" label="Started since" type="datetime-local" state={state} />
          <TypedField name="until" label="Started until" type="datetime-local" state={state} />
        </div>
      )}
    </form>
  );
});

/** All choices; a value from the address that is none of them is one more. */
function choices(all: string, known: Option[], value: string | undefined): Option[] {
  const missing = value && !known.some((choice) => choice.value === value) ? [{ value, label: value }] : [];
  return [{ value: "", label: all }, ...known, ...missing];
}

interface FieldProps {
  name: FilterName;
  label: string;
  state: FilterState;
  placeholder?: string;
  type?: string;
  options?: string[];
  field?: RefObject<HTMLInputElement | null>;
  sought?: boolean;
}

/** A field that reaches the address a moment after the last key, or at once with Enter and when it is left. */
function TypedField(props: FieldProps) {
  return <OneField key={props.state.cleared} {...props} />;
}

function OneField({
  name,
  label,
  state: { filters, change },
  placeholder,
  type = "text",
  options,
  field,
  sought = false,
}: FieldProps) {
  const current = filters[name] ?? "";
  const { shown: typed, show: setTyped, sent } = useAhead(current);
  const last = useRef(current); // what the address has, or will have
  useEffect(() => {
    last.current = current;
  }, [current]);
  useEffect(() => {
    if (typed === last.current) return;
    const timer = setTimeout(() => send(typed), PAUSE_MS);
    return () => clearTimeout(timer);
  });
  const send = (value: string) => {
    if (value === last.current) return;
    const typing = last.current !== "" && value !== "";
    last.current = value;
    sent(value);
    change({ [name]: value || null }, typing);
  };
  const common = {
    label,
    placeholder,
    value: typed,
    onKeyDown: (event: React.KeyboardEvent) => event.key === "Enter" && send(typed),
    // not later: by then one may be on the way to another page, and would be called back from it
    onBlur: () => send(typed),
  };
  if (options) return <Autocomplete {...common} data={[...new Set(options)]} limit={30} onChange={setTyped} />;
  return (
    <TextField
      {...common}
      ref={field}
      type={type}
      step="any"
      onChange={(event) => setTyped(event.currentTarget.value)}
      sought={sought}
    />
  );
}
