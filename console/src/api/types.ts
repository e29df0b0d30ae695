// Made from the server's OpenAPI document by scripts/console-types: do not edit.

export type Answer =
  | Ended
  | EndedSandbox
  | Environments
  | EvaluationId
  | EvaluationList
  | Fault
  | Faults
  | ListToolsOutput
  | LoggedRollout
  | Messages
  | Page
  | RolloutPage
  | RunList
  | RunToolOutput
  | SavedEvaluation
  | Series
  | ServerEntry
  | Snapshot
  | TaskList
  | Trajectory;
/**
 * All environments; the first is the default.
 */
export type Environments = EnvironmentEntry[];
/**
 * The newest first.
 */
export type EvaluationList = EvaluationItem[];
/**
 * The newest first.
 */
export type Faults = FaultEntry[];
/**
 * The prompt as a conversation.
 */
export type Messages = Message[];
/**
 * The newest first.
 */
export type RunList = RunSummary[];
/**
 * Data of the ``end`` event of ``/call``, in its two forms.
 */
export type RunToolOutput = RunToolSuccess | RunToolError;
/**
 * Tasks by environment, split and index.
 */
export type TaskList = TaskCell[];

/**
 * An ended session; ``fault`` is that of its teardown, or null.
 */
export interface Ended {
  sid: string;
  fault: string | null;
}
/**
 * A sandbox that was ended.
 */
export interface EndedSandbox {
  id: string;
}
/**
 * An environment and its load; ``pending``: its process or server is not up yet.
 *
 * Sessions and calls are those of the key that asks.
 */
export interface EnvironmentEntry {
  name: string;
  key: string;
  description: string;
  splits: Split[];
  tools: ToolEntry[];
  supports_score_group: boolean;
  state: "ready" | "pending";
  sessions: number;
  calls_running: number;
  runtime: string;
  replayable: boolean;
}
/**
 * A named set of tasks, with its type.
 */
export interface Split {
  name: string;
  type: "train" | "validation" | "test";
}
/**
 * A tool that every session of the environment has.
 */
export interface ToolEntry {
  name: string;
  description: string;
  input_schema: {
    [k: string]: unknown;
  } | null;
}
/**
 * Answer to a saved report: its id.
 */
export interface EvaluationId {
  id: string;
}
/**
 * An evaluation in a list.
 */
export interface EvaluationItem {
  id: string;
  name: string;
  run: string;
  owner: string;
  environment: string;
  split: string | null;
  model: string;
  started_at: number;
  ended_at: number | null;
  summary: EvaluationSummary;
}
/**
 * Summary of the episodes. Means leave out episodes that were lost to faults.
 */
export interface EvaluationSummary {
  n_tasks: number;
  k: number;
  episodes: number;
  planned: number;
  scored: number;
  mean_reward: Estimate | null;
  success: Estimate | null;
  success_threshold: number;
  pass_at_k: PassAtK[];
  faults: {
    [k: string]: number;
  };
  retried: {
    [k: string]: number;
  };
  stops: {
    [k: string]: number;
  };
  tokens: TokenCounts;
  turns: Quantiles | null;
  latency: Quantiles | null;
  seconds: Quantiles | null;
  wall_seconds: number;
}
/**
 * A mean with its 95% confidence interval, clustered by task.
 *
 * The bounds are None where they cannot be estimated, as with a single task.
 */
export interface Estimate {
  mean: number;
  low: number | null;
  high: number | null;
}
/**
 * The share of tasks that at least one of ``k`` attempts solves, as ``mean``.
 */
export interface PassAtK {
  mean: number;
  low: number | null;
  high: number | null;
  k: number;
}
/**
 * Tokens as the model's endpoint counted them; 0 where it counts none.
 */
export interface TokenCounts {
  input: number;
  output: number;
  cached: number;
  reasoning: number;
}
/**
 * Distribution of a metric.
 */
export interface Quantiles {
  mean: number;
  p50: number;
  p95: number;
  max: number;
}
/**
 * Data of the stream event ``fault``, which comes just before ``error``.
 *
 * ``id`` is the fault's id in the server's log. ``retryable``: a fresh session may well succeed.
 */
export interface Fault {
  class: string;
  message: string;
  id: string;
  retryable: boolean;
}
/**
 * One fault; ``id`` is its id in the log, ``at`` in seconds since 1970.
 */
export interface FaultEntry {
  id: string;
  at: number;
  fault: string;
  environment: string;
  tool: string | null;
  session: string;
  message: string;
}
/**
 * Answer of ``/tools`` and ``/task_tools``.
 */
export interface ListToolsOutput {
  tools: ToolSpec[];
  terminal_tool?: TerminalToolSpec | null;
  supports_score_group?: boolean | null;
  message_block_types?: string[] | null;
}
/**
 * A tool as a model sees it. ``input_schema`` is null for a tool without arguments.
 *
 * Never add a field: released clients build their own class from these keys and fail on an unknown one.
 */
export interface ToolSpec {
  name: string;
  description: string;
  input_schema: {
    [k: string]: unknown;
  } | null;
}
/**
 * The tool that takes the model's last plain message; ``arg`` is null when it takes nothing.
 */
export interface TerminalToolSpec {
  name: string;
  arg?: string | null;
  description?: string;
}
/**
 * All of a rollout; ``info`` is what its client told later, such as the index of the task.
 */
export interface LoggedRollout {
  id: string;
  event: string;
  owner: string;
  run: string;
  name: string | null;
  environment: string | null;
  variant: string | null;
  split: string | null;
  step: number | null;
  client: string;
  started_at: number;
  ended_at: number | null;
  messages: number;
  reward: number | null;
  reward_sum: number | null;
  finished: boolean;
  kind: "rollout";
  task_spec: unknown;
  metadata: unknown;
  run_info: unknown;
  info: {
    [k: string]: unknown;
  };
  items: LoggedMessage[];
}
/**
 * One message of a rollout, as its client sent it; ``call`` joins a call and its result.
 */
export interface LoggedMessage {
  event: string;
  number: number | null;
  kind: string;
  content: string | null;
  summary: string | null;
  reference: string | null;
  name: string | null;
  call: string | null;
  reward: number | null;
  finished: boolean;
  metadata: unknown;
  at: number;
}
/**
 * One turn of a conversation. Raises ValidationError for a block that its role may not carry.
 */
export interface Message {
  role: "system" | "user" | "assistant";
  blocks: (TextBlock | ImageBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock)[];
  detail?: {
    [k: string]: unknown;
  } | null;
}
/**
 * Plain text.
 */
export interface TextBlock {
  text: string;
  detail?: {
    [k: string]: unknown;
  } | null;
  type?: "text";
}
/**
 * An image; ``data`` is base64 of the encoded file, ``mimeType`` is the encoding.
 */
export interface ImageBlock {
  data: string;
  mimeType: string;
  detail?: {
    [k: string]: unknown;
  } | null;
  type?: "image";
}
/**
 * A model's reasoning inside an assistant message.
 */
export interface ReasoningBlock {
  text: string;
  signature?: string | null;
  detail?: {
    [k: string]: unknown;
  } | null;
  type?: "reasoning";
}
/**
 * A tool call inside an assistant message.
 */
export interface ToolCallBlock {
  id: string;
  name: string;
  input: {
    [k: string]: unknown;
  };
  detail?: {
    [k: string]: unknown;
  } | null;
  type?: "tool_call";
}
/**
 * The result of the call ``tool_call_id``, inside a user message.
 */
export interface ToolResultBlock {
  tool_call_id: string;
  blocks: (TextBlock | ImageBlock)[];
  is_error?: boolean;
  detail?: {
    [k: string]: unknown;
  } | null;
  type?: "tool_result";
}
/**
 * Sessions, newest first. ``next`` is what to give as ``before`` for the next page; None at the end.
 *
 * ``unindexed`` counts the sessions that are not in the search index yet.
 */
export interface Page {
  items: Summary[];
  next: string | null;
  unindexed: number;
}
/**
 * One session, without its messages and calls.
 *
 * ``reward`` is that of its last scored call, ``reward_sum`` the sum of all, None also where that is beyond
 * a float. While the session lives, and
 * when its server was killed, both come from its calls; ``ended_at`` is None then.
 */
export interface Summary {
  id: string;
  sid: string;
  environment: string;
  split: string | null;
  task_index: number | null;
  task: string;
  run: string;
  labelled: boolean;
  step: number | null;
  rollout: string | null;
  trace: string;
  started_at: number;
  ended_at: number | null;
  setup_s: number | null;
  end_reason: string | null;
  fault: string | null;
  calls: number;
  faults: number;
  reward: number | null;
  reward_sum: number | null;
  finished: boolean;
  owner: string;
  client: string;
  replayable: boolean;
}
/**
 * Rollouts, newest first; ``next`` is the ``before`` of the page below, null for none.
 */
export interface RolloutPage {
  items: RolloutSummary[];
  next: string | null;
}
/**
 * A rollout; ``event`` is the client's id of it, ``name`` the client's name.
 *
 * ``reward`` is the last one, ``reward_sum`` the sum over all messages; ``ended_at`` is the time of the last
 * message, by the client's clock.
 */
export interface RolloutSummary {
  id: string;
  event: string;
  owner: string;
  run: string;
  name: string | null;
  environment: string | null;
  variant: string | null;
  split: string | null;
  step: number | null;
  client: string;
  started_at: number;
  ended_at: number | null;
  messages: number;
  reward: number | null;
  reward_sum: number | null;
  finished: boolean;
}
/**
 * The sessions of one run together.
 *
 * ``reward_*`` are the mean of the last rewards and its 95% interval, ``success`` the share of episodes
 * whose reward reaches the threshold, ``length_mean`` the calls of an episode. Episodes that were lost to a
 * fault are in ``fault_rate`` and in nothing else. ``running`` have not ended yet.
 */
export interface RunSummary {
  run: string;
  labelled: boolean;
  environments: string[];
  first_at: number;
  last_at: number;
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
/**
 * The tool ran.
 */
export interface RunToolSuccess {
  ok?: true;
  output: ToolOutput;
}
/**
 * Result of a tool: blocks for the model, an optional reward, and ``finished`` at the end.
 */
export interface ToolOutput {
  blocks: (TextBlock | ImageBlock)[];
  metadata?: {
    [k: string]: unknown;
  } | null;
  reward?: number | null;
  finished?: boolean;
}
/**
 * The call was refused and the tool did not run.
 */
export interface RunToolError {
  ok?: false;
  error: string;
  reason?: ("not_found" | "name_collision" | "input_validation" | "episode_finished") | null;
}
/**
 * A report as the journal has it.
 */
export interface SavedEvaluation {
  format: number;
  name: string;
  run: string;
  environment: string;
  split: string;
  model: string;
  settings: {
    [k: string]: unknown;
  };
  started_at: number;
  ended_at: number | null;
  summary: EvaluationSummary;
  episodes: EvaluatedEpisode[];
  id: string;
  owner: string;
}
/**
 * One attempt at one task. An episode with a ``fault`` has no reward and takes part in no mean.
 */
export interface EvaluatedEpisode {
  task: string;
  split: string;
  index: number;
  attempt: number;
  reward: number | null;
  reward_sum: number | null;
  rewards: number[];
  finished: boolean;
  success: boolean | null;
  fault: string | null;
  fault_message: string;
  retried: string[];
  stop: string;
  turns: number;
  calls: number;
  refused: number;
  tokens: TokenCounts;
  seconds: number;
  model_seconds: number;
  started_at: number;
  sid: string;
  rollout: string;
  trace: string;
}
/**
 * Course of a run.
 */
export interface Series {
  run: string;
  points: Point[];
  histogram: Histogram;
}
/**
 * The episodes of one step of training; without steps, of one stretch of time that begins at ``at``.
 *
 * ``n`` counts those that ended, the ones lost to faults among them. ``low`` and ``high`` bound the 95%
 * interval of each metric; a mean of one value has none.
 */
export interface Point {
  step: number | null;
  at: number;
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
/**
 * Histogram: ``counts[i]`` rewards from ``edges[i]`` to below ``edges[i + 1]``; the last bin has both.
 */
export interface Histogram {
  edges: number[];
  counts: number[];
}
/**
 * The server. ``keys``: it wants one; ``journal`` is null when it is off. Times in seconds since 1970.
 */
export interface ServerEntry {
  name: string;
  version: string;
  started_at: number;
  now: number;
  keys: boolean;
  journal: JournalState | null;
  runtime: string;
  workers: number | null;
}
/**
 * State of the journal. ``lost``: rows dropped since the start.
 */
export interface JournalState {
  state: "ok" | "trouble" | "off";
  reason: string;
  lag_s: number;
  waiting: number;
  lost: number;
}
/**
 * The server at one moment, seconds since 1970.
 *
 * Sessions and sandboxes are those of the key that asks; rates and latency are of the whole server.
 * ``sandboxes`` is null where the server has none.
 */
export interface Snapshot {
  at: number;
  sessions: States;
  calls_running: number;
  calls_per_s: number;
  faults_per_s: number;
  latency_ms: Latency;
  total: number;
  sandboxes: LivingSandbox[] | null;
  list: LiveSession[];
}
/**
 * Sessions by their state.
 */
export interface States {
  opening: number;
  starting: number;
  ready: number;
  failed: number;
  closing: number;
}
/**
 * Durations of recent calls in milliseconds; null without calls.
 */
export interface Latency {
  p50: number | null;
  p95: number | null;
  p99: number | null;
}
/**
 * One sandbox, with its limits and its use.
 *
 * ``sid`` is the session that made it, and ``session`` the id of that in the journal; null for none.
 * ``idle_s`` is the time since its client gave a sign of life, 0 while a command runs.
 */
export interface LivingSandbox {
  id: string;
  image: string;
  sid: string | null;
  session: string | null;
  state: "creating" | "living";
  cpus: number | null;
  memory_bytes: number | null;
  network: "none" | "open";
  age_s: number;
  idle_s: number;
  commands: number;
  running: number;
}
/**
 * One session. ``id`` is its id in the journal, null without one; ``running`` counts calls that run.
 */
export interface LiveSession {
  sid: string;
  id: string | null;
  environment: string;
  task: string;
  run: string | null;
  owner: string;
  state: "opening" | "starting" | "ready" | "failed" | "closing" | "closed";
  age_s: number;
  idle_s: number;
  calls: number;
  running: number;
  reward: number | null;
  finished: boolean;
}
/**
 * Counts of a task: played to an end, and solved.
 */
export interface TaskCell {
  environment: string;
  task: string;
  split: string | null;
  task_index: number | null;
  n: number;
  solved: number;
  reward_mean: number | null;
  last_at: number;
}
/**
 * One session with its messages and calls.
 *
 * ``request`` is how it was opened (``task_spec``, or ``split`` and ``index``); ``prompt``, ``messages``
 * and ``tools`` are None when the client never asked for them. ``sandbox`` is what the session did in
 * sandboxes outside of calls, as in setup, or while several calls ran.
 */
export interface Trajectory {
  id: string;
  sid: string;
  environment: string;
  split: string | null;
  task_index: number | null;
  task: string;
  run: string;
  labelled: boolean;
  step: number | null;
  rollout: string | null;
  trace: string;
  started_at: number;
  ended_at: number | null;
  setup_s: number | null;
  end_reason: string | null;
  fault: string | null;
  calls: number;
  faults: number;
  reward: number | null;
  reward_sum: number | null;
  finished: boolean;
  owner: string;
  client: string;
  replayable: boolean;
  labels: {
    [k: string]: unknown;
  } | null;
  request: {
    [k: string]: unknown;
  } | null;
  prompt: (Text | Image)[] | null;
  messages: Message[] | null;
  tools: ToolSpec[] | null;
  steps: Step[];
  sandbox: SandboxItem[];
}
/**
 * A block of text.
 */
export interface Text {
  type: "text";
  text: string;
}
/**
 * An image; ``data`` is base64 of the encoded file.
 */
export interface Image {
  type: "image";
  data: string;
  mimeType: string;
}
/**
 * One call with its result, and what it did in sandboxes.
 *
 * ``error`` and ``reason`` are set when the environment refused the call, ``fault``, ``fault_id`` and
 * ``message`` when it failed. ``number`` is None while the call runs, and for a call that was cut off by the
 * death of its server.
 */
export interface Step {
  id: string;
  number: number | null;
  kind: string;
  task_id: string;
  name: string;
  input: unknown;
  blocks: (Text | Image)[];
  metadata: unknown;
  error: string | null;
  reason: string | null;
  reward: number | null;
  finished: boolean;
  discarded: boolean;
  fault: string | null;
  fault_id: string | null;
  message: string | null;
  started_at: number;
  queue_s: number | null;
  run_s: number | null;
  stream_s: number | null;
  total_s: number | null;
  scores: Score[];
  sandbox: SandboxItem[];
}
/**
 * Group score of one candidate.
 */
export interface Score {
  candidate: number;
  reward: number | null;
  detail: unknown;
}
/**
 * Something that a session did in a sandbox.
 *
 * ``what`` is the command, the path of a file that was read or written, or the image of a sandbox that was
 * made or has ended. ``output`` is the beginning of what a command wrote, of ``size_bytes`` in all;
 * ``exit_code`` is None where the sandbox ended before the command. ``detail`` holds the limits of a
 * sandbox, or the reason of its end in words.
 */
export interface SandboxItem {
  id: string;
  sandbox: string;
  kind: "made" | "command" | "read" | "write" | "ended";
  call: string | null;
  what: string;
  output: string | null;
  exit_code: number | null;
  timed_out: boolean;
  duration_s: number | null;
  size_bytes: number | null;
  reason: string | null;
  detail: {
    [k: string]: unknown;
  } | null;
  started_at: number;
}
