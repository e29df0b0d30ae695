import { beforeAll, expect, it, vi } from "vitest";

import { fromField, hasZone, toField } from "../src/forms/moments";
import { environmentPath, playgroundPath } from "../src/pages/environments/paths";
import { asCurl, asPython, pythonLiteral, type Recorded } from "../src/pages/playground/scripts";

beforeAll(() => vi.stubEnv("TZ", "Asia/Kolkata"));

const RECORDED: Recorded = {
  url: "http://host",
  environment: "some/thing",
  choice: { split: "train", index: 3 },
  calls: [{ tool: "say", input: { text: "it's", loud: true }, outcome: { kind: "output" } }],
  keys: false,
  secrets: false,
};

it("values are written as Python has them", () => {
  expect(pythonLiteral({ a: [null, true, false, 1.5, 'x"'] })).toBe('{"a": [None, True, False, 1.5, "x\\""]}');
});

it("a session as Python makes its calls, and expects what failed here to fail", () => {
  const code = asPython(RECORDED);
  expect(code).toContain('output = session.call("say", {"text": "it\'s", "loud": True})');
  expect(code).toContain('environment.session(split="train", index=3)');
  expect(code).not.toContain("try:");
  const failed = asPython({ ...RECORDED, keys: true, calls: [{ tool: "say", input: {}, outcome: { kind: "fault" } }] });
  expect(failed).toContain("except (Fault, ToolRefused)");
  expect(failed).toContain('api_key=os.environ["ORSAY_API_KEY"]');
});

it("a session as a shell script quotes what a shell would take apart", () => {
  const script = asCurl(RECORDED);
  expect(script).toContain(`'{"name":"say","input":{"text":"it'\\''s","loud":true}}'`);
  expect(script).toContain('"$url/some%2Fthing/call"');
  expect(script).not.toContain("X-API-Key");
  expect(asCurl({ ...RECORDED, keys: true })).toContain('-H "X-API-Key: $ORSAY_API_KEY"');
});

it("addresses of environments hold any name", () => {
  expect(environmentPath("a/b c")).toBe("/environments/a%2Fb%20c");
  expect(playgroundPath("a", { split: "x&y", index: 0 })).toBe("/playground/a?split=x%26y&index=0");
  expect(playgroundPath("a")).toBe("/playground/a");
});

it("times are shown and meant in the person's zone", () => {
  expect(toField("date-time", "2026-03-01T12:00:00Z")).toBe("2026-03-01T17:30");
  expect(fromField("date-time", "2026-03-01T17:30")).toBe("2026-03-01T17:30:00+05:30");
  expect([toField("date", "2026-3-1"), toField("time", "noon"), fromField("time", "")]).toEqual(["", "", undefined]);
  expect([hasZone("12:00:00"), hasZone("12:00:00z"), hasZone("12:00:00-0330")]).toEqual([false, true, true]);
});
