// Fields of a form for dates and times: the browser's own inputs, which know the person's habits and the pickers of phones.
import { TextInput } from "@mantine/core";
import type { WidgetProps } from "@rjsf/utils";
import { useState, type SyntheticEvent } from "react";

import { fromField, INCOMPLETE, toField, type Moment } from "./moments";

const TYPES: Record<Moment, string> = { date: "date", "date-time": "datetime-local", time: "time" };
/** Years have four digits. */
const LAST: Record<Moment, string | undefined> = { date: "9999-12-31", "date-time": "9999-12-31T23:59:59", time: undefined };

function MomentInput({ kind, ...props }: WidgetProps & { kind: Moment }) {
  const { schema, options, id, name, label, hideLabel, value, required, disabled, readonly, rawErrors, onChange } = props;
  // as long as the value is the one that was made of it, what is typed is not written anew
  const [typed, setTyped] = useState<{ shown: string; value: unknown }>({ shown: "", value: undefined });
  const known = value as unknown;
  const shown = known === typed.value ? typed.shown : toField(kind, known);
  const zone = kind === "date" ? "" : "In your time zone.";
  const about = [options.description ?? schema.description, zone].filter(Boolean).join(" ");

  function read(event: SyntheticEvent<HTMLInputElement>) {
    const { value: now, validity } = event.currentTarget;
    if (now === shown && validity.badInput === (known === INCOMPLETE)) return;
    const next = validity.badInput ? INCOMPLETE : fromField(kind, now);
    setTyped({ shown: now, value: next });
    onChange(next);
  }

  return (
    <TextInput
      type={TYPES[kind]}
      id={id}
      name={name}
      label={hideLabel ? undefined : label}
      aria-label={hideLabel ? label : undefined}
      description={hideLabel ? undefined : about || undefined}
      required={required}
      disabled={disabled || readonly}
      error={rawErrors?.length ? rawErrors.join("\n") : undefined}
      value={shown}
      step={kind === "date" ? undefined : 1}
      max={LAST[kind]}
      onChange={read}
      // a part that is missing changes no value, and so is no change to the browser
      onKeyUp={read}
      onBlur={read}
    />
  );
}

export function DateWidget(props: WidgetProps) {
  return <MomentInput kind="date" {...props} />;
}

export function DateTimeWidget(props: WidgetProps) {
  return <MomentInput kind="date-time" {...props} />;
}

export function TimeWidget(props: WidgetProps) {
  return <MomentInput kind="time" {...props} />;
}
