import { expect, it } from "vitest";

import { queryString } from "../src/api/request";
import { fileName, toCsv } from "../src/charts/csv";

it("cells are quoted where RFC 4180 wants it, and empty where there is nothing", () => {
  const table = { columns: ["a", "b"], rows: [['say "hi"', null], ["x,y", 1.5], ["two\nlines", true]] };
  expect(toCsv(table)).toBe('a,b\r\n"say ""hi""",\r\n"x,y",1.5\r\n"two\nlines",true\r\n');
});

it.each(["=1+1", "+1", "-1", "@a", "\ta"])("the text %j is no formula to a spreadsheet", (text) => {
  expect(toCsv({ columns: ["a"], rows: [[text]] })).toBe(`a\r\n'${text}\r\n`);
});

it("a negative number stays a number", () => {
  expect(toCsv({ columns: ["a"], rows: [[-1]] })).toBe("a\r\n-1\r\n");
});

it("names of files hold nothing that a file system refuses", () => {
  expect(fileName("../run: 1/2?")).toBe("run-1-2");
  expect(fileName("??")).toBe("orsay");
});

it("empty parameters are left out of a query, 0 and false are not", () => {
  const parameters = { run: "a b&c", step: 0, finished: false, text: "", task: null, split: undefined };
  expect(queryString(parameters)).toBe("?run=a+b%26c&step=0&finished=false");
  expect(queryString({ text: "" })).toBe("");
});
