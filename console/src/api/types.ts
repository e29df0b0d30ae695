// What the console's API and the ORS protocol send. Ids are decimal strings.

/** Seconds since 1970, or ISO 8601. */
export type Time = number | string;

export type JsonSchema = Record<string, unknown>;

export interface TextBlock {
  type: "text";
  text: string;
  detail?: unknown;
}

export interface ImageBlock {
  type: "image";
  data: string;
  mimeType: string;
  detail?: unknown;
}

export type Block = TextBlock | ImageBlock;

/** A block of a message: some kinds appear only in recorded messages, and newer servers may know more. */
export interface MessageBlock {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  name?: string;
  input?: unknown;
  blocks?: Block[];
}

export interface Message {
  role: string;
  blocks: MessageBlock[];
}

export interface Tool {
  name: string;
  description: string | null;
  input_schema: JsonSchema | null;
}

export interface TerminalTool {
  name: string;
  arg: string | null;
  description: string | null;
}

export interface ToolListing {
  tools: Tool[];
  terminal_tool?: TerminalTool | null;
  supports_score_group?: boolean;
}

export interface Split {
  name: string;
  type: string;
}

/** How the journal does. `trouble`: play goes on, and rows are lost. */
export interface JournalHealth {
  state: "ok" | "trouble" | "off";
  reason: string | null;
  lag_s: number;
  waiting: number;
  lost: number;
}

export interface ServerState {
  name: string;
  version: string;
  started_at: Time;
  now: Time;
  keys: boolean;
  journal: JournalHealth | null;
  runtime: string;
  workers: number | null;
}

export interface Environment {
  name: string;
  key: string;
  description: string | null;
  splits: Split[];
  tools: Tool[];
  supports_score_group: boolean;
  state: "ready" | "pending";
  sessions: number;
  calls_running: number;
  runtime: string;
  replayable: boolean;
}

export type SessionState = "opening" | "starting" | "ready" | "failed" | "closing";

export interface LiveSession {
  sid: string;
  id: string | null;
  environment: string;
  task: string | null;
  run: string | null;
  owner: string | null;
  state: SessionState;
  age_s: number;
  idle_s: number;
  calls: number;
  running: number;
  reward: number | null;
  finished: boolean;
}

export interface Latency {
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

/** What the live feed says each second. */
export interface Snapshot {
  at: Time;
  sessions: Record<SessionState, number>;
  calls_running: number;
  calls_per_s: number;
  faults_per_s: number;
  latency_ms: Latency;
  total: number;
  list: LiveSession[];
}

export interface FaultEntry {
  id: string;
  at: Time;
  fault: string;
  environment: string | null;
  tool: string | null;
  session: string | null;
  message: string;
}

/** One recorded session. */
export interface Summary {
  id: string;
  sid: string;
  environment: string;
  split: string | null;
  task_index: number | null;
  task: string | null;
  run: string;
  labelled: boolean;
  step: number | null;
  rollout: string | null;
  trace: string | null;
  started_at: Time;
  ended_at: Time | null;
  setup_s: number | null;
  end_reason: string | null;
  fault: string | null;
  calls: number;
  faults: number;
  reward: number | null;
  reward_sum: number | null;
  finished: boolean;
  owner: string | null;
  client: string | null;
  replayable: boolean;
}

export interface TrajectoryPage {
  items: Summary[];
  next: string | null;
  unindexed: number;
}

/** One call, prompt or scoring of a recorded session. */
export interface Step {
  id: string;
  /** Its place among the results; null while it runs, and when its server died before there was one. */
  number: number | null;
  kind: string;
  task_id: string | null;
  name: string | null;
  input: unknown;
  blocks: Block[];
  metadata: unknown;
  error: string | null;
  reward: number | null;
  finished: boolean;
  discarded: boolean;
  fault: string | null;
  fault_id: string | null;
  message: string | null;
  started_at: Time;
  queue_s: number | null;
  run_s: number | null;
  stream_s: number | null;
  total_s: number | null;
  scores: unknown;
}

export interface Trajectory extends Summary {
  labels: Record<string, unknown> | null;
  request: unknown;
  prompt: Block[] | null;
  messages: Message[] | null;
  tools: Tool[] | null;
  steps: Step[];
}

export interface Run {
  run: string;
  labelled: boolean;
  environments: string[];
  first_at: Time;
  last_at: Time;
  episodes: number;
  running: number;
  steps: number;
  reward_mean: number | null;
  reward_low: number | null;
  reward_high: number | null;
  success: number | null;
  fault_rate: number | null;
  length_mean: number | null;
}

/** One step of a run, or, without labels, one span of time (`step` null, `at` set). Bounds are 95% intervals. */
export interface SeriesPoint {
  step: number | null;
  at: Time;
  n: number;
  reward_mean: number | null;
  reward_low: number | null;
  reward_high: number | null;
  success: number | null;
  success_low: number | null;
  success_high: number | null;
  length_mean: number | null;
  length_low: number | null;
  length_high: number | null;
  fault_rate: number | null;
  fault_low: number | null;
  fault_high: number | null;
}

export interface Series {
  run: string;
  points: SeriesPoint[];
  histogram: { edges: number[]; counts: number[] };
}

export interface TaskCell {
  environment: string;
  task: string;
  split: string | null;
  task_index: number | null;
  n: number;
  solved: number;
  reward_mean: number | null;
  last_at: Time;
}
