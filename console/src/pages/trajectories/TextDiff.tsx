// Two texts side by side, with what differs marked: words in short texts, lines in long ones.
import { Text } from "@mantine/core";
import { diffLines, diffWordsWithSpace, type Change } from "diff";
import { useMemo } from "react";

const LONG = 4000;
const TIME_MS = 300;
const MOST = 20_000; // characters shown of each

export function changes(a: string, b: string): Change[] {
  if (a === b) return [{ value: a, added: false, removed: false, count: 1 }];
  const options = { timeout: TIME_MS };
  const found = a.length + b.length > LONG ? diffLines(a, b, options) : diffWordsWithSpace(a, b, options);
  return found ?? [
    { value: a, added: false, removed: true, count: 1 },
    { value: b, added: true, removed: false, count: 1 },
  ];
}

/** The text of one side. `side` "a" shows what only a has as deleted, "b" what only b has as inserted. */
export function DiffText({ a, b, side }: { a: string; b: string; side: "a" | "b" }) {
  const parts = useMemo(() => changes(a.slice(0, MOST), b.slice(0, MOST)), [a, b]);
  const own = side === "a" ? a : b;
  return (
    <Text size="sm" ff="monospace" className="as-typed" component="div">
      {parts.map((part, index) => {
        if (part.removed) return side === "a" ? <del key={index}>{part.value}</del> : null;
        if (part.added) return side === "b" ? <ins key={index}>{part.value}</ins> : null;
        return <span key={index}>{part.value}</span>;
      })}
      {own === "" && <Text component="span" size="sm" c="dimmed">nothing</Text>}
      {own.length > MOST && "…"}
    </Text>
  );
}
