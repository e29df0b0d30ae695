// What was done in sandboxes, as a terminal shows it.
import type { SandboxItem } from "../../api/types";
import { duration, number, size } from "../../format";
import { Long } from "./Value";

// colours, titles and moves of the cursor: ECMA-48, 5.4, and xterm's OSC
// eslint-disable-next-line no-control-regex
const CONTROLS = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

export function Terminal({ items, label }: { items: readonly SandboxItem[]; label: string }) {
  const several = new Set(items.map(({ sandbox }) => sandbox)).size > 1;
  return (
    <section className="terminal" aria-label={label}>
      {items.map((item, index) => (
        <div key={item.id} className="terminal-item">
          {several && items[index - 1]?.sandbox !== item.sandbox && <Note>{`in ${shortId(item.sandbox)}`}</Note>}
          {item.kind === "command" ? <Command of={item} /> : <Note>{told(item)}</Note>}
        </div>
      ))}
    </section>
  );
}

function Command({ of }: { of: SandboxItem }) {
  const output = of.output?.replace(CONTROLS, "").replace(/\n$/, "") ?? "";
  const bad = of.exit_code !== 0;
  return (
    <>
      <div className="terminal-command">
        <span className="terminal-prompt">$</span>
        <div>
          <Long text={of.what} />
        </div>
      </div>
      {output !== "" && <Long text={output} />}
      <p className={bad ? "plain smaller numeric terminal-end terminal-bad" : "plain smaller numeric terminal-end"}>
        {[how(of), duration(of.duration_s), ...cut(of)].join(", ")}
      </p>
    </>
  );
}

function Note({ children }: { children: string }) {
  return <p className="plain smaller typewriter terminal-note">{`# ${children}`}</p>;
}

function how(of: SandboxItem): string {
  if (of.timed_out) return "killed at its time limit";
  return of.exit_code === null ? "cut off: the sandbox ended" : `exit ${of.exit_code}`;
}

/** That more was written than is kept. */
function cut(of: SandboxItem): string[] {
  const kept = new TextEncoder().encode(of.output ?? "").length;
  return of.size_bytes !== null && of.size_bytes > kept ? [`the beginning of ${size(of.size_bytes)}`] : [];
}

function told(of: SandboxItem): string {
  const detail = of.detail ?? {};
  switch (of.kind) {
    case "made":
      return `${of.what} started in ${duration(of.duration_s)}${limits(detail)}`;
    case "ended":
      return `${of.what} ended after ${duration(of.duration_s)}: ${detail.reason ?? of.reason}`;
    default:
      return `${of.kind === "read" ? "read" : "wrote"} ${of.what}, ${size(of.size_bytes)}`;
  }
}

function limits(detail: Record<string, unknown>): string {
  const found = [
    typeof detail.cpus === "number" && `${number(detail.cpus)} CPU`,
    typeof detail.memory_bytes === "number" && size(detail.memory_bytes),
    typeof detail.network === "string" && (detail.network === "none" ? "no network" : "open network"),
  ].filter((each) => each !== false);
  return found.length > 0 ? `, with ${found.join(", ")}` : "";
}

function shortId(sandbox: string): string {
  return sandbox.slice(0, 11);
}
