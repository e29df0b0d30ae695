// One request to the server: the key goes along, and what is not an answer becomes an error that says what to do.
import { apiUrl } from "../urls";
import { currentKey, keyRefused } from "./key";

/** The server said no, or could not be reached (`status` 0). */
export class RequestError extends Error {
  readonly status: number;
  readonly fault: string | null;

  constructor(message: string, status: number, fault: string | null = null) {
    super(message);
    this.name = "RequestError";
    this.status = status;
    this.fault = fault;
  }

  /** True if another key would help: a server without keys refuses pages of other machines, with 403. */
  get wantsKey(): boolean {
    return this.status === 401;
  }
}

/** Sends it; an answer that is not 2xx is raised as RequestError. Aborting raises the browser's AbortError. */
export async function send(url: string, init: RequestInit = {}): Promise<Response> {
  const key = currentKey();
  const headers = new Headers(init.headers);
  if (key !== null) headers.set("X-API-Key", key);
  let response: Response;
  try {
    response = await fetch(url, { ...init, headers, cache: "no-store", credentials: "omit" });
  } catch (problem) {
    if (init.signal?.aborted) throw problem;
    throw new RequestError("The server cannot be reached. Is it still running?", 0);
  }
  if (response.ok) return response;
  const problem = new RequestError(await reason(response), response.status, response.headers.get("X-Orsay-Fault"));
  if (problem.wantsKey) keyRefused(key);
  throw problem;
}

async function reason(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  try {
    const detail: unknown = (JSON.parse(text) as { detail?: unknown }).detail;
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map(fieldProblem).join("; ");
  } catch {
    // not JSON: the text itself
  }
  return text.slice(0, 500) || `The server answered ${response.status} ${response.statusText}`.trim();
}

function fieldProblem(entry: unknown): string {
  const { loc, msg } = entry as { loc?: unknown[]; msg?: string };
  return `${(loc ?? []).filter((part) => part !== "body").join(".")}: ${msg ?? "does not fit"}`;
}

/** Query parameters; empty values are left out, lists repeat their name. */
export type Parameters = Record<string, string | number | boolean | null | undefined>;

export function queryString(parameters: Parameters): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `?${text}` : "";
}

/** GET of the console's API. */
export async function get<T>(path: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<T> {
  const response = await send(apiUrl(path) + queryString(parameters), { signal });
  return (await response.json()) as T;
}

/** POST to the console's API. */
export async function post<T>(path: string, body?: unknown): Promise<T> {
  const response = await send(apiUrl(path), {
    method: "POST",
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
  });
  return (await response.json()) as T;
}

/** Saves what a GET of the console's API answers as a file; the key cannot go along with a plain link. */
export async function download(path: string, parameters: Parameters, name: string): Promise<void> {
  const response = await send(apiUrl(path) + queryString(parameters));
  saveFile(await response.blob(), name);
}

/** Hands a file to the person. */
export function saveFile(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  URL.revokeObjectURL(url);
}
