// Alignment of the calls of two trajectories: equal ones first, then, between those, calls of the same tool in order.
import { diffArrays } from "diff";

import type { Step } from "../../api/types";

export interface Pair {
  /** Places in the two trajectories, from 0; null where one has no such call. */
  a: number | null;
  b: number | null;
}

export function align(a: readonly Step[], b: readonly Step[]): Pair[] {
  return walk(
    a.map((_, index) => index),
    b.map((_, index) => index),
    (index) => `${a[index]?.name} ${canonical(a[index]?.input)}`,
    (index) => `${b[index]?.name} ${canonical(b[index]?.input)}`,
    (lone, other) =>
      walk(
        lone,
        other,
        (index) => a[index]?.name ?? "",
        (index) => b[index]?.name ?? "",
        (left, right) => [...left.map((position) => ({ a: position, b: null })), ...right.map((position) => ({ a: null, b: position }))],
      ),
  );
}

/** Pairs what has equal names; what stands between is left to `rest`. */
function walk(
  a: number[],
  b: number[],
  nameA: (index: number) => string,
  nameB: (index: number) => string,
  rest: (a: number[], b: number[]) => Pair[],
): Pair[] {
  const pairs: Pair[] = [];
  let [atA, atB] = [0, 0];
  let lone: number[] = [];
  let other: number[] = [];
  const flush = () => {
    pairs.push(...rest(lone, other));
    lone = [];
    other = [];
  };
  for (const part of diffArrays(a.map(nameA), b.map(nameB))) {
    if (part.removed) {
      lone = lone.concat(a.slice(atA, atA + part.count));
      atA += part.count;
    } else if (part.added) {
      other = other.concat(b.slice(atB, atB + part.count));
      atB += part.count;
    } else {
      if (lone.length || other.length) flush();
      for (let index = 0; index < part.count; index++) pairs.push({ a: a[atA + index] ?? null, b: b[atB + index] ?? null });
      atA += part.count;
      atB += part.count;
    }
  }
  if (lone.length || other.length) flush();
  return pairs;
}

/** JSON that is the same for the same value, whatever the order of its keys. */
export function canonical(value: unknown): string {
  return (
    JSON.stringify(value, (_, part: unknown) =>
      part !== null && typeof part === "object" && !Array.isArray(part)
        ? Object.fromEntries(Object.entries(part).sort(([one], [other]) => (one < other ? -1 : 1)))
        : part,
    ) ?? "null"
  );
}

/** Result of a call, as one text to compare. */
export function resultText(step: Step): string {
  const blocks = step.blocks.map((block) => (block.type === "text" ? block.text : `[image ${block.mimeType}, ${block.data.length} characters]`));
  const shown = step.fault ? [`fault ${step.fault}: ${step.message ?? ""}`] : step.error ? [`refused: ${step.error}`] : blocks;
  return shown.join("\n");
}

/** The input of a call as text: strings with their line breaks, the rest as JSON. */
export function inputText(input: unknown): string {
  if (typeof input === "string") return input;
  if (input === null || typeof input !== "object" || Array.isArray(input)) return canonical(input);
  return Object.keys(input)
    .sort()
    .map((name) => {
      const value = (input as Record<string, unknown>)[name];
      const text = typeof value === "string" ? value : canonical(value);
      return text.includes("\n") ? `${name}:\n${text}` : `${name}: ${text}`;
    })
    .join("\n");
}

export function differs(a: Step, b: Step): boolean {
  return (
    canonical(a.input) !== canonical(b.input) ||
    resultText(a) !== resultText(b) ||
    a.reward !== b.reward ||
    a.finished !== b.finished ||
    canonical(imagesOf(a)) !== canonical(imagesOf(b))
  );
}

export function imagesOf(step: Step) {
  return step.blocks.filter((block) => block.type === "image");
}
