// One session that a person plays: what happened in it so far, and what can be done. Lives outside React, which
// reads it through snapshots that are never changed.
import { RequestError } from "../../api/request";
import type { ListToolsOutput, Message } from "../../api/types";
import { callTool, type Outcome } from "../../ors/call";
import {
  cancelCall,
  create,
  newSession,
  ping,
  readMessages,
  readTools,
  remove,
  type Secrets,
  type TaskChoice,
} from "../../ors/requests";

export interface Entry {
  number: number;
  tool: string;
  input: Record<string, unknown>;
  taskId: string | null;
  startedAt: number;
  tookMs: number | null;
  /** Null while it runs. */
  outcome: Outcome | null;
}

export type Phase = "opening" | "starting" | "ready" | "failed" | "ended";

export interface PlayState {
  phase: Phase;
  sid: string | null;
  trace: string | null;
  messages: Message[] | null;
  listing: ListToolsOutput | null;
  entries: Entry[];
  problem: unknown;
}

const PING_MS = 10_000;

export class Play {
  readonly environment: string;
  readonly choice: TaskChoice;
  readonly hasSecrets: boolean;
  private readonly secrets: Secrets;
  private readonly gone = new AbortController();
  private readonly listeners = new Set<() => void>();
  private timer: ReturnType<typeof setInterval> | null = null;
  private state: PlayState = {
    phase: "opening",
    sid: null,
    trace: null,
    messages: null,
    listing: null,
    entries: [],
    problem: null,
  };

  constructor(environment: string, choice: TaskChoice, secrets: Secrets = {}) {
    this.environment = environment;
    this.choice = choice;
    this.secrets = secrets;
    this.hasSecrets = Object.keys(secrets).length > 0;
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  snapshot = (): PlayState => this.state;

  /** Opens the session and reads what the model would be told. What goes wrong is in the state. */
  async open(): Promise<void> {
    const { signal } = this.gone;
    let sid: string | null = null;
    try {
      sid = await newSession();
      const trace = await create(sid, this.environment, this.choice, this.secrets);
      if (signal.aborted) {
        await remove(sid, false);
        return;
      }
      this.change({ phase: "starting", sid, trace });
      this.timer = setInterval(() => void this.keepAlive(), PING_MS);
      const [messages, listing] = await Promise.all([
        readMessages(sid, this.environment, signal),
        readTools(sid, this.environment, signal),
      ]);
      this.change({ phase: "ready", messages, listing });
    } catch (problem) {
      if (!signal.aborted) this.change({ phase: "failed", problem });
    }
  }

  async call(tool: string, input: Record<string, unknown>): Promise<Outcome | null> {
    const { sid, entries } = this.state;
    if (sid === null) return null;
    const number = entries.length + 1;
    const startedAt = performance.now();
    this.change({
      entries: [...entries, { number, tool, input, taskId: null, startedAt: Date.now(), tookMs: null, outcome: null }],
    });
    try {
      const outcome = await callTool(
        sid,
        this.environment,
        tool,
        input,
        (taskId) => this.changeEntry(number, { taskId }),
        this.gone.signal,
      );
      this.changeEntry(number, { outcome, tookMs: performance.now() - startedAt });
      if (outcome.kind === "fault") void this.keepAlive();
      return outcome;
    } catch {
      return null; // the session was ended meanwhile
    }
  }

  async cancel(entry: Entry): Promise<void> {
    const { sid } = this.state;
    if (sid !== null && entry.taskId !== null) await cancelCall(sid, entry.taskId).catch(() => undefined);
  }

  /** Ends the session on the server; safe to call twice. */
  async end(leaving = false): Promise<void> {
    if (this.timer !== null) clearInterval(this.timer);
    const { sid, phase } = this.state;
    const before = this.gone.signal.aborted;
    this.gone.abort();
    if (before) return;
    this.change({ phase: "ended" });
    if (sid !== null && phase !== "ended") await remove(sid, leaving).catch(() => undefined);
  }

  private async keepAlive(): Promise<void> {
    const { sid, phase } = this.state;
    if (sid === null || this.gone.signal.aborted) return;
    try {
      await ping(sid);
    } catch (problem) {
      // 404 and 410: the session ended without this page
      if (problem instanceof RequestError && [404, 410].includes(problem.status) && phase !== "ended") {
        if (this.timer !== null) clearInterval(this.timer);
        this.change({ phase: "ended", problem });
      }
    }
  }

  private change(part: Partial<PlayState>): void {
    this.state = { ...this.state, ...part };
    for (const listener of this.listeners) listener();
  }

  private changeEntry(number: number, part: Partial<Entry>): void {
    this.change({
      entries: this.state.entries.map((entry) => (entry.number === number ? { ...entry, ...part } : entry)),
    });
  }
}

/** Rewards of the calls so far, in the order of the calls. */
export function rewardsOf(entries: readonly Entry[]): number[] {
  return entries.flatMap(({ outcome }) =>
    outcome?.kind === "output" && typeof outcome.output.reward === "number" ? [outcome.output.reward] : [],
  );
}

export function isFinished(entries: readonly Entry[]): boolean {
  return entries.some(({ outcome }) => outcome?.kind === "output" && outcome.output.finished);
}
