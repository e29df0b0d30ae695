// Readable input of a tool: texts as they are, with their line breaks; everything else as JSON.
import { Button } from "@mantine/core";
import { useState } from "react";

import { pretty } from "../../format";

const MOST_LINES = 30;
const MOST_LETTERS = 4000;

export function Value({ value }: { value: unknown }) {
  if (value === null || value === undefined) return <p className="plain small dimmed">none</p>;
  if (typeof value === "string") return <Long text={value} />;
  if (typeof value !== "object" || Array.isArray(value)) return <Long text={pretty(value)} />;
  const entries = Object.entries(value);
  if (entries.length === 0) return <p className="plain small dimmed">nothing</p>;
  return (
    <dl className="value">
      {entries.map(([name, part]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof part === "string" && part !== "" ? <Long text={part} /> : <Long text={pretty(part)} />}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A text as it was typed; a long one is cut until one asks for all of it. */
export function Long({ text }: { text: string }) {
  const [all, setAll] = useState(false);
  const lines = text.split("\n");
  const short = lines.length <= MOST_LINES && text.length <= MOST_LETTERS;
  const shown = all || short ? text : lines.slice(0, MOST_LINES).join("\n").slice(0, MOST_LETTERS);
  return (
    <>
      <p className="plain small typewriter as-typed">
        {shown}
        {shown.length < text.length && "…"}
      </p>
      {!short && (
        <Button variant="default" size="compact-xs" mt={4} onClick={() => setAll(!all)} aria-expanded={all}>
          {all ? "Less" : `All ${lines.length > MOST_LINES ? `${lines.length} lines` : `${text.length} characters`}`}
        </Button>
      )}
    </>
  );
}
