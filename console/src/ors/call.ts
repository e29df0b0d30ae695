// One tool call: its stream from `task_id` to `end` or `error`, picked up again when the connection breaks.
import { readEvents } from "../api/events";
import { RequestError, send } from "../api/request";
import type { Fault, RunToolOutput, ToolOutput } from "../api/types";
import { callUrl, pause } from "./requests";

/** A fault of the server, which has an id in its log, or one of the way there. */
export type FaultNote = Fault | (Omit<Fault, "id"> & { id: null });

/** Outcome of a call: the tool's output, its refusal of the input, or no answer at all. */
export type Outcome =
  | { kind: "output"; output: ToolOutput }
  | { kind: "refused"; error: string; reason: string | null }
  | { kind: "fault"; fault: FaultNote };

const TRIES = 6;

/** Runs the tool, at most once however often the connection breaks. `started` gets the call's id. */
export async function callTool(
  sid: string,
  environment: string,
  name: string,
  input: unknown,
  started: (taskId: string) => void,
  signal: AbortSignal,
): Promise<Outcome> {
  const once = randomId();
  let taskId: string | null = null;
  for (let attempt = 1; ; attempt += 1) {
    try {
      const body = taskId === null ? { name, input } : { name, input, task_id: taskId };
      const response = await send(callUrl(environment), {
        method: "POST",
        body: JSON.stringify(body),
        headers: {
          "Content-Type": "application/json",
          Accept: "text/event-stream",
          "X-Session-ID": sid,
          "Idempotency-Key": once,
        },
        signal,
      });
      const outcome = await readOutcome(response, (id) => {
        taskId = id;
        started(id);
      });
      if (outcome !== null) return outcome;
    } catch (problem) {
      if (signal.aborted) throw problem;
      if (problem instanceof RequestError && problem.status !== 0 && problem.status !== 503) {
        return fault(problem.fault ?? `HTTP ${problem.status}`, problem.message);
      }
      if (attempt >= TRIES)
        return fault("connection_lost", String(problem instanceof Error ? problem.message : problem));
    }
    if (attempt >= TRIES) return fault("connection_lost", "The call's stream was interrupted repeatedly.");
    await pause(300 * 2 ** attempt, signal);
  }
}

/** Null when the stream broke off before its end. */
async function readOutcome(response: Response, started: (taskId: string) => void): Promise<Outcome | null> {
  let pieces = "";
  let note: FaultNote | null = null;
  for await (const { event, data } of readEvents(response)) {
    if (event === "task_id") started(data);
    else if (event === "chunk") pieces += data;
    else if (event === "fault") note = JSON.parse(data) as FaultNote;
    else if (event === "error") return { kind: "fault", fault: note ?? plainFault("error", data) };
    else if (event === "end") {
      const result = JSON.parse(pieces + data) as RunToolOutput;
      if ("output" in result) return { kind: "output", output: result.output };
      return { kind: "refused", error: result.error, reason: result.reason ?? null };
    }
  }
  return null;
}

function fault(name: string, message: string): Outcome {
  return { kind: "fault", fault: plainFault(name, message) };
}

function plainFault(name: string, message: string): FaultNote {
  return { class: name, message, id: null, retryable: false };
}

/** 128 random bits; crypto.randomUUID is there on pages with TLS only. */
function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
