// A session as code that plays it again: Python with orsay_client, or a shell script with curl.
import type { TaskChoice } from "../../ors/requests";

export interface Recorded {
  url: string;
  environment: string;
  choice: TaskChoice;
  calls: { tool: string; input: Record<string, unknown>; outcome: { kind: string } | null }[];
  /** True if the server has keys: the code reads one from ORSAY_API_KEY. */
  keys: boolean;
  secrets: boolean;
}

export function asPython({ url, environment, choice, calls, keys, secrets }: Recorded): string {
  const task =
    "task_spec" in choice
      ? `task_spec=${pythonLiteral(choice.task_spec)}`
      : `split=${pythonLiteral(choice.split)}, index=${choice.index}`;
  const failed = calls.some(({ outcome }) => failing(outcome));
  const given = task + (secrets ? ', secrets={"NAME": "..."}' : "");
  const lines = [
    ...(keys ? ["import os", ""] : []),
    `from orsay_client import ${failed ? "Client, Fault, ToolRefused" : "Client"}`,
    "",
    `with Client(${pythonLiteral(url)}${keys ? ', api_key=os.environ["ORSAY_API_KEY"]' : ""}) as client:`,
    `    environment = client.environment(${pythonLiteral(environment)})`,
    `    with environment.session(${given}) as session:`,
    "        for block in session.prompt():",
    "            print(block)",
    ...calls.flatMap(({ tool, input, outcome }) => {
      const call = `output = session.call(${pythonLiteral(tool)}, ${pythonLiteral(input)})`;
      const show = "print(output.blocks, output.reward, output.finished)";
      if (!failing(outcome)) return [`        ${call}`, `        ${show}`];
      return [
        "        try:",
        `            ${call}`,
        `            ${show}`,
        "        except (Fault, ToolRefused) as problem:",
        "            print(problem)",
      ];
    }),
  ];
  return `${lines.join("\n")}\n`;
}

/** A call that brought no output here is likely to bring none again. */
function failing(outcome: { kind: string } | null): boolean {
  return outcome !== null && outcome.kind !== "output";
}

export function pythonLiteral(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (typeof value === "object") {
    const pairs = Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${pythonLiteral(each)}`);
    return `{${pairs.join(", ")}}`;
  }
  return String(value);
}

export function asCurl({ url, environment, choice, calls, keys, secrets }: Recorded): string {
  const path = encodeURIComponent(environment);
  const headers = [
    ...(keys ? ['-H "X-API-Key: $ORSAY_API_KEY"'] : []),
    '-H "X-Session-ID: $sid"',
    "-H 'Content-Type: application/json'",
  ].join(" ");
  const body = { env_name: environment, ...choice, ...(secrets ? { secrets: { NAME: "..." } } : {}) };
  const lines = [
    `url=${quoted(url)}`,
    'sid="curl-$(date +%s)-$$"',
    `ask() { curl -sS --fail-with-body ${headers} "$@"; echo; }`,
    "",
    `ask "$url/create" -d ${quoted(JSON.stringify(body))}`,
    `ask --retry 10 "$url/${path}/prompt"`,
    ...calls.map(({ tool, input }) => `ask -N "$url/${path}/call" -d ${quoted(JSON.stringify({ name: tool, input }))}`),
    'ask -X POST "$url/delete"',
  ];
  return `${lines.join("\n")}\n`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
