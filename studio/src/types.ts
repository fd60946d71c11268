// Types of the service's API (docs/service.md, /openapi.json). Times are milliseconds since the Unix epoch.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface Info {
  version: string;
  /** `read` refuses every change. */
  studio: "off" | "read" | "full";
  /** False: only runs in memory are listed. */
  store: boolean;
  /** Valid values of a node's `profileId`. */
  profiles?: string[];
}

export interface RunItem {
  runId: string;
  workflowId: string;
  session?: string | null;
  status: string;
  startedAt: number;
  updatedAt: number;
  durationMs?: number | null;
  tokens?: number | null;
  cost?: Cost[] | Cost | number | null;
  openQuestions?: number | null;
  lastSequence?: number;
}

export interface RunList {
  runs: RunItem[];
  next?: string | null;
}

export interface Cost {
  amount?: number;
  cost?: number;
  currency?: string;
}

export interface Usage {
  input: number;
  cachedRead: number;
  cachedWrite: number;
  output: number;
  reasoning: number;
  total: number;
}

export interface RunError {
  code: string;
  message: string;
  nodeId?: string | null;
  threadId?: string;
  pathId?: string;
  [more: string]: Json | undefined;
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: Json;
}

export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: Json;
  toolCalls?: ToolCall[];
  toolCallId?: string;
  metadata?: JsonObject;
  pin?: boolean;
}

export interface NodeReport {
  nodeId: string;
  status: string;
  attempts: number;
  finishReason?: string;
  error?: RunError;
}

export interface ThreadReport {
  threadId: string;
  kind: ThreadKind;
  workflowId: string;
  pathId?: string;
  status: string;
  usage?: Usage;
  usageWithStarted?: Usage;
}

export interface FiringReport {
  firing: number;
  triggerId: string;
  mainThreadId: string;
  threadId?: string;
  currentNodeId?: string | null;
  nextNodeId?: string | null;
  timestamp: number;
  status: string;
  outcome?: string;
  nodes?: NodeReport[];
}

/** The report of a run, of a run so far, or of a run at a step. */
export interface Report {
  runId: string;
  threadId: string;
  workflowId: string;
  status: string;
  output?: Json;
  error?: RunError;
  variables?: JsonObject;
  conversation?: { from?: number; messages: Message[]; markMap?: JsonObject };
  tokens?: { context: number; spent: Usage };
  usage?: { nodes: (JsonObject & { workflowId: string; nodeId: string })[]; paths: JsonObject[] };
  cost?: Json;
  nodes: NodeReport[];
  threads: ThreadReport[];
  firings?: FiringReport[];
  inDoubt?: Json[];
  repeated?: Json[];
  interactions?: JsonObject[];
  steps?: number;
  forkedFrom?: { runId: string; step: number };
  elapsedMs?: number;
  /** Start of a run so far, or of a run at a step; that of a fork is later than its shared steps. */
  startedAt?: number;
}

export interface Step {
  step: number;
  threadId: string;
  nodeId?: string | null;
  kind: string;
  effectId?: string | null;
  at: number;
  durationMs?: number | null;
  repeated?: boolean;
  /** Sequence of the last event that the step raised, where the service gives it. */
  sequence?: number;
}

export type ThreadKind = "main" | "branch" | "subgraph" | "triggered";

export interface ThreadItem {
  threadId: string;
  parentId?: string | null;
  kind: ThreadKind;
  pathId?: string | null;
  workflowId: string;
  triggerId?: string | null;
  nodeId?: string | null;
  startedStep: number;
  endedStep?: number | null;
  startedAt: number;
  endedAt?: number | null;
  status: string;
}

export interface RequestItem {
  effectId: string;
  step: number;
  threadId: string;
  nodeId: string;
  profileId?: string | null;
  model?: string | null;
  at: number;
  durationMs?: number | null;
  firstTokenMs?: number | null;
  promptTokens?: number | null;
  completionTokens?: number | null;
  cachedTokens?: number | null;
  cost?: Cost | number | null;
  finishReason?: string | null;
  attempts: number;
}

export interface RequestDetail extends RequestItem {
  request: { messages: Message[]; tools?: Json[]; parameters?: JsonObject };
  response?: { message: Message; [more: string]: unknown };
  error?: RunError;
  pinned?: { insertedAt: number; count: number };
  prefix?: {
    previous: string;
    sameMessages: number;
    firstDifference?: { message: number; byte: number };
    reason?: string;
  };
}

export interface Diff {
  commonSteps: number;
  a: Step | null;
  b: Step | null;
  outcome: { equal: boolean; a: Json; b: Json };
  [more: string]: Json | Step | null | undefined | { equal: boolean; a: Json; b: Json };
}

export interface Definition {
  id: string;
  name?: string;
  nodes: { id: string; type: string; name?: string; config?: JsonObject }[];
  edges: { from: string; to: string; condition?: string }[];
  [more: string]: unknown;
}

/** A line of text at a baseline. */
export interface DrawnLine {
  text: string;
  x: number;
  y: number;
  width?: number;
  bold?: boolean;
}

/** A node, `trigger:ID`, or `workflow:ID` that a trigger starts. */
export interface DrawingNode {
  id: string;
  type: string;
  x: number;
  y: number;
  width: number;
  height: number;
  lines: DrawnLine[];
  title?: string;
  /** Index of the innermost lane. */
  lane?: number | null;
}

export interface DrawingEdge {
  from: string;
  to: string;
  kind: "flow" | "condition" | "loop" | "error" | "trigger";
  points: [number, number][];
  label?: { text: string; x: number; y: number; width: number; height: number; lines?: DrawnLine[] } | null;
}

/** Layout of a workflow; pixels, origin at the top left. */
export interface Drawing {
  width: number;
  height: number;
  fontSize: number;
  nodes: DrawingNode[];
  edges: DrawingEdge[];
  lanes: { fork: string; pathId: string; x: number; y: number; width: number; height: number; label: string; lines?: DrawnLine[] }[];
}

export interface Interaction {
  id: string;
  runId: string;
  workflowId: string;
  nodeId: string;
  threadId?: string;
  question: string;
  assignee?: string | null;
  schema?: JsonObject | null;
  choices?: JsonObject[] | null;
  tool?: { name: string; arguments: JsonObject; toolCallId: string; reason: string; schema: JsonObject } | string | null;
  arguments?: JsonObject | null;
  askedAt?: number;
  expiresAt?: number | null;
  timeoutMs?: number | null;
}

export interface WorkflowItem {
  id: string;
  name?: string;
  inputSchema?: JsonObject;
  nodes?: { nodeId: string; type: string }[];
  [more: string]: unknown;
}

export interface SessionItem {
  id: string;
  version: number;
  updatedAt?: number | null;
  runs?: number | null;
}

export interface RecentMetrics {
  intervalMs: number;
  from: number;
  series: { name: string; kind?: "counter" | "gauge"; labels: { [label: string]: string }; unit?: string; points: (number | null)[] }[];
}

/** An event of a run (docs/reference/events.md); the fields depend on its type. */
export interface RunEvent {
  type: string;
  sequence: number;
  timestamp: number;
  runId: string;
  workflowId: string;
  threadId: string;
  // The fields of the type. They are read where the type is known.
  [field: string]: any;
}
