// A text area that holds JSON: shows errors at once, and passes on valid JSON only.
import { Textarea } from "@mantine/core";
import { useState } from "react";

import { pretty } from "../format";

export function JsonText({
  id,
  label,
  description,
  value,
  onChange,
  required,
  onProblem,
  minRows = 3,
}: {
  id?: string;
  label: string;
  description?: string;
  value: unknown;
  onChange: (value: unknown) => void;
  required?: boolean;
  /** Called with true while the text is JSON. */
  onProblem?: (problem: string | null) => void;
  minRows?: number;
}) {
  const [text, setText] = useState(() => (value === undefined ? "" : pretty(value)));
  const [problem, setProblem] = useState<string | null>(null);

  function take(next: string) {
    setText(next);
    let found: string | null = null;
    if (next.trim() === "") {
      onChange(undefined);
    } else {
      try {
        onChange(JSON.parse(next));
      } catch (error) {
        found = `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
      }
    }
    setProblem(found);
    onProblem?.(found);
  }

  return (
    <Textarea
      id={id}
      label={label}
      description={description}
      required={required}
      value={text}
      onChange={(event) => take(event.currentTarget.value)}
      error={problem}
      autosize
      minRows={minRows}
      maxRows={20}
      spellCheck={false}
      styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }}
    />
  );
}
