import { expect, it } from "vitest";

import type { Step } from "../src/api/types";
import { align, canonical, differs, inputText, resultText } from "../src/pages/trajectories/align";

function step(name: string, input: unknown = {}, more: Partial<Step> = {}): Step {
  return { name, input, blocks: [], fault: null, error: null, reward: null, finished: false, ...more } as Step;
}

const pairs = (a: Step[], b: Step[]) => align(a, b).map(({ a, b }) => [a, b]);

it("equal calls are paired across one that was put in", () => {
  const [look, open, shut] = [step("look", { door: 1 }), step("open"), step("shut")];
  expect(pairs([look, shut], [look, open, shut])).toEqual([
    [0, 0],
    [null, 1],
    [1, 2],
  ]);
});

it("between equal calls, those of the same tool are paired in order", () => {
  const [one, other] = [step("look", { door: 1 }), step("look", { door: 2 })];
  expect(pairs([one], [other])).toEqual([[0, 0]]);
  expect(pairs([one], [step("open")])).toEqual([
    [0, null],
    [null, 0],
  ]);
});

it("the order of keys does not matter, that of lists does", () => {
  expect(canonical({ b: [1, { d: 1, c: 2 }], a: null })).toBe('{"a":null,"b":[1,{"c":2,"d":1}]}');
  expect(canonical([1, 2])).not.toBe(canonical([2, 1]));
  expect(differs(step("x", { a: 1, b: 2 }), step("x", { b: 2, a: 1 }))).toBe(false);
  expect(differs(step("x"), step("x", {}, { reward: 1 }))).toBe(true);
});

it("inputs and results are read as text", () => {
  expect(inputText({ name: "n", code: "a\nb", list: [1] })).toBe("code:\na\nb\nlist: [1]\nname: n");
  expect(resultText(step("x", {}, { fault: "tool_error", message: "broke" }))).toBe("fault tool_error: broke");
  expect(resultText(step("x", {}, { error: "no such door" }))).toBe("refused: no such door");
});
