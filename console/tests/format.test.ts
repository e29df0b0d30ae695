import { describe, expect, it } from "vitest";

import { ago, count, duration, NONE, number, percent, pretty, secondsBetween, short, size, taskName } from "../src/format";

describe("numbers", () => {
  it("have at most the digits asked for, and thousands marked", () => {
    expect(number(1234.56789)).toBe("1,234.568");
    expect(number(0.5)).toBe("0.5");
    expect(count(1234567.8)).toBe("1,234,568");
    expect(percent(0.12345)).toBe("12.3%");
  });

  it("that are missing or infinite are a dash", () => {
    for (const missing of [null, undefined, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect([number(missing), percent(missing), duration(missing)]).toEqual([NONE, NONE, NONE]);
    }
  });
});

it.each([
  [0.00025, "250 µs"],
  [0.0034, "3.4 ms"],
  [0.34, "340 ms"],
  [12.5, "12.5 s"],
  [59.96, "60 s"],
  [200, "3 min 20 s"],
  [180, "3 min"],
  [18_120, "5 h 2 min"],
  [273_600, "3 d 4 h"],
])("a duration of %d seconds is %s", (seconds, text) => {
  expect(duration(seconds)).toBe(text);
});

it.each([
  [0, "0 B"],
  [1023, "1,023 B"],
  [1536, "1.5 KiB"],
  [4 * 1024 ** 3, "4 GiB"],
  [null, NONE],
])("a size of %d bytes is %s", (bytes, text) => {
  expect(size(bytes)).toBe(text);
});

it("ages are told in the largest unit, and are never negative", () => {
  const now = 1_000_000_000;
  const before = (seconds: number) => ago(now / 1000 - seconds, now);
  expect([0.5, 12, 301, 10_800, 172_800].map(before)).toEqual(["now", "12 s ago", "5 min ago", "3 h ago", "2 d ago"]);
  expect(before(-5)).toBe("now");
});

it("a span is null while its end is missing", () => {
  expect(secondsBetween(100, 101.5)).toBe(1.5);
  expect(secondsBetween(100, null)).toBeNull();
});

it("tasks are named by split and index, also the first one", () => {
  expect(taskName({ split: "train", task_index: 0, task: "abc" })).toBe("train/0");
  expect(taskName({ split: "train", task_index: null, task: "abc" })).toBe("abc");
  expect(taskName({})).toBe(NONE);
});

it("long ids are cut, others are not", () => {
  expect(short("0123456789")).toBe("0123456789");
  expect(short("0123456789a")).toBe("0123456789…");
  expect(pretty(undefined)).toBe("null");
});
