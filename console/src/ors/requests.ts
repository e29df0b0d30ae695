// The Open Reward Standard as the playground speaks it: sessions, prompts and tools. Calls are in call.ts.
import { RequestError, send } from "../api/request";
import type { JsonObject } from "../api/json";
import type { ListToolsOutput, Message } from "../api/types";
import { serverUrl } from "../urls";

/** Task of a session: one of a split, or a task of one's own. */
export type TaskChoice = { split: string; index: number } | { task_spec: JsonObject };

export type Secrets = Record<string, string>;

function environmentUrl(environment: string, path: string): string {
  return `${serverUrl}/${encodeURIComponent(environment)}/${path}`;
}

function json(body: unknown, headers: Record<string, string> = {}): RequestInit {
  return { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } };
}

export async function countTasks(environment: string, split: string, signal?: AbortSignal): Promise<number> {
  const response = await send(environmentUrl(environment, "num_tasks"), { ...json({ split }), signal });
  return ((await response.json()) as { num_tasks: number }).num_tasks;
}

export async function readTask(environment: string, split: string, index: number): Promise<JsonObject> {
  const response = await send(environmentUrl(environment, "task"), json({ split, index }));
  return ((await response.json()) as { task: JsonObject }).task;
}

export async function newSession(): Promise<string> {
  const response = await send(`${serverUrl}/create_session`, {
    method: "POST",
    headers: { Accept: "application/json" },
  });
  return ((await response.json()) as { sid: string }).sid;
}

/** Builds the environment for the session; its trace id, when the server names one. */
export async function create(
  sid: string,
  environment: string,
  choice: TaskChoice,
  secrets: Secrets,
): Promise<string | null> {
  const body = { env_name: environment, ...choice, ...(Object.keys(secrets).length ? { secrets } : {}) };
  const response = await send(
    `${serverUrl}/create`,
    json(body, { "X-Session-ID": sid, "X-Orsay-Run": JSON.stringify({ run: "playground" }) }),
  );
  return response.headers.get("X-Orsay-Trace");
}

/** First messages to the model. Waits as long as `setup` runs. */
export async function readMessages(sid: string, environment: string, signal: AbortSignal): Promise<Message[]> {
  const headers = { "X-Session-ID": sid };
  for (;;) {
    try {
      const response = await send(environmentUrl(environment, "messages"), { headers, signal });
      return (await response.json()) as Message[];
    } catch (problem) {
      // 503: nothing ran, `setup` has not ended yet
      if (!(problem instanceof RequestError) || problem.status !== 503) throw problem;
      await pause(1000, signal);
    }
  }
}

export async function readTools(sid: string, environment: string, signal: AbortSignal): Promise<ListToolsOutput> {
  const headers = { "X-Session-ID": sid };
  const response = await send(environmentUrl(environment, "task_tools"), { headers, signal });
  return (await response.json()) as ListToolsOutput;
}

export async function ping(sid: string): Promise<void> {
  await send(`${serverUrl}/ping`, { method: "POST", headers: { "X-Session-ID": sid } });
}

export async function cancelCall(sid: string, taskId: string): Promise<void> {
  await send(`${serverUrl}/cancel`, json({ task_id: taskId }, { "X-Session-ID": sid }));
}

/** Ends the session. `leaving`: the page goes away, and the request has to outlive it. */
export async function remove(sid: string, leaving: boolean): Promise<void> {
  await send(`${serverUrl}/delete`, { method: "POST", headers: { "X-Session-ID": sid }, keepalive: leaving });
}

export function callUrl(environment: string): string {
  return environmentUrl(environment, "call");
}

export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason instanceof Error ? signal.reason : new DOMException("Aborted", "AbortError"));
    });
  });
}
