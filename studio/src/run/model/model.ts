// What happened in a run, folded from its events. The fold is incremental: each event is applied once, in order. Every item has the
// sequence of the event that started it and of the one that ended it, so the run at any earlier position is a comparison of
// numbers and needs no second fold.

import { isObject } from "../../data/json";
import type { Json, JsonObject, Message, RequestItem, RunError, RunEvent, ThreadItem, ThreadKind, Usage } from "../../types";

/** An item with a start and perhaps an end, as sequences and times. */
export interface Span {
  start: number;
  startAt: number;
  end?: number;
  endAt?: number;
}

/** A workflow's id, without the hash in the id of a workflow that was written during the run. */
export const workflowName = (id: string): string => id.replace(/@[0-9a-f]{16}$/, "");

export interface Thread extends Span {
  id: string;
  kind: ThreadKind;
  parent?: string;
  workflow: string;
  path?: string;
  /** Path of a branch, label of an agent, or the workflow. */
  name: string;
  /** Order of its start among the threads of the run. */
  index: number;
  depth: number;
  /** Final status; undefined while it runs. */
  status?: string;
  output?: Json;
  error?: RunError;
  visits: Visit[];
  messages: AddedMessage[];
  pauses: Span[];
  /** Node of the parent that started it: a FORK, a MAP, a SUBGRAPH; or the trigger. */
  startedBy?: string;
}

/** One attempt of a node in a thread. */
export interface Visit extends Span {
  thread: string;
  node: string;
  type: string;
  workflow: string;
  attempt: number;
  /** RUNNING until it ends; CANCELLED if its thread ended before it. */
  status: string;
  error?: RunError;
  output?: Json;
  calls: Call[];
  /** How often the thread had entered the node before, retries excluded. */
  round: number;
  /** Start of its next attempt. */
  retriedAt?: number;
}

/** A model request or a tool call. */
export interface Call extends Span {
  kind: "model" | "tool";
  thread: string;
  node: string;
  /** Name of the tool. */
  name?: string;
  status: string;
  firstTokenAt?: number;
  /** Tokens of the request and the limit. */
  tokens?: number;
  limit?: number;
  messages?: number;
  pinnedAt?: number;
  stablePrefix?: number;
  brokenAt?: number;
  why?: string;
  /** The request exceeded the limit and was not sent; it waits for a compression or is replaced by a smaller one. */
  held?: boolean;
  toolCallId?: string;
  arguments?: Json;
  result?: Json;
  /** Tokens of the reply. */
  replyTokens?: number;
  /** The event that the provider has read less from its cache than expected. */
  collapse?: RunEvent;
}

export interface AddedMessage {
  sequence: number;
  at: number;
  thread: string;
  index: number;
  message: Message;
  tokens: number;
}

/** A FORK or a MAP with its branches and its join. */
export interface Fork extends Span {
  thread: string;
  node: string;
  isMap: boolean;
  subgraph?: string;
  paths: string[];
  /** Paths that have no branch yet. */
  waiting: Set<string>;
  /** Branches in the order of their start; not every path is started. */
  branches: Thread[];
  join?: Join;
}

/** From `start`, the JOIN waits; `end` is its decision. */
export interface Join extends Span {
  thread: string;
  node: string;
  strategy: string;
  timeoutMs?: number;
  status: string;
  output?: JsonObject;
  error?: RunError;
  fork?: Fork;
}

/** The run of a trigger's sub-workflow, from the event that fired it to the application of its result. */
export interface Firing extends Span {
  trigger: string;
  firing: number;
  thread: string;
  child: string;
  atNode?: string;
  status: string;
  /** The event that fired it, from the output of the sub-workflow's first node. */
  event?: { type: string; sequence: number };
}

export interface Compression {
  sequence: number;
  at: number;
  thread: string;
  workflow: string;
  failed: boolean;
  changed: boolean;
  messagesBefore?: number;
  messagesAfter?: number;
  tokensBefore?: number;
  tokensAfter?: number;
  /** The new messages and mark map, in the event of the thread that computed it. */
  result?: { messages: Message[]; markMap?: JsonObject };
  error?: RunError;
  trigger?: string;
}

export interface Question extends Span {
  id: string;
  thread: string;
  node: string;
  question: string;
  assignee?: string;
  schema?: JsonObject;
  choices?: Json[];
  timeoutMs?: number;
  tool?: Json;
  outcome?: "answered" | "withdrawn" | "timed out";
  answer?: Json;
  by?: string;
}

export interface VariableChange {
  sequence: number;
  at: number;
  thread: string;
  name: string;
  value: Json;
  scope: string;
}

/** Time between the last step that a fork shares with its base and the start of the fork. */
export interface Gap {
  end: number;
  start: number;
}

/** Moves a time before the start of a fork by the gaps after it. */
export const shiftBy = (gaps: Gap[]) => (at: number): number => gaps.reduce((sum, { end, start }) => (at < start ? sum + start - end : sum), at);

const ENDED: { [type: string]: string } = { THREAD_COMPLETED: "COMPLETED", THREAD_FAILED: "FAILED", THREAD_CANCELLED: "CANCELLED" };

export class RunModel {
  runId = "";
  workflow = "";
  /** All events except pieces of replies, in order. */
  readonly events: RunEvent[] = [];
  readonly threads = new Map<string, Thread>();
  /** Threads in the order of their start. */
  readonly threadList: Thread[] = [];
  readonly visits: Visit[] = [];
  /** By `workflow/node`. */
  readonly visitsOf = new Map<string, Visit[]>();
  readonly calls: Call[] = [];
  readonly forks: Fork[] = [];
  readonly joins: Join[] = [];
  readonly firings: Firing[] = [];
  readonly compressions: Compression[] = [];
  readonly questions: Question[] = [];
  readonly variables: VariableChange[] = [];
  lastSequence = 0;
  startAt = 0;
  lastAt = 0;
  /** Events that the service had dropped. */
  missed = 0;

  /** Events as the service sent them, by sequence, where their times are shifted. */
  readonly originals = new Map<number, RunEvent>();

  /** `shift` moves the times of events. */
  constructor(readonly shift = (at: number): number => at) {}

  readonly #open = new Map<string, Visit>();
  readonly #openModelCall = new Map<string, Call>();
  readonly #openTools = new Map<string, Call>();
  readonly #openQuestions = new Map<string, Question>();
  readonly #openJoin = new Map<string, Join>();
  /** Forks that have paths without a branch, oldest first. */
  #openForks: Fork[] = [];
  readonly #forkOf = new Map<Thread, Fork>();
  /** By `thread/node`. */
  readonly #forksOf = new Map<string, Fork[]>();
  /** Thread to start: its parent and what starts it. */
  readonly #announced = new Map<string, { parent: string; by: string; label?: string }>();
  readonly #firingOf = new Map<string, Firing>();
  readonly #rounds = new Map<string, number>();

  /** Applies the next event. An event that was already applied changes nothing. */
  apply(event: RunEvent): void {
    if (event.type === "LLM_TOKEN") return this.#piece(event);
    if (event.sequence <= this.lastSequence && this.events.length > 0) return;
    const timestamp = this.shift(event.timestamp);
    if (timestamp !== event.timestamp) {
      this.originals.set(event.sequence, event);
      event = { ...event, timestamp };
    }
    if (this.events.length === 0) {
      this.runId = event.runId;
      this.startAt = event.timestamp;
      this.workflow = event.workflowId;
    }
    this.events.push(event);
    this.lastSequence = event.sequence;
    this.lastAt = Math.max(this.lastAt, event.timestamp);
    this.#fold(event);
  }

  #fold(event: RunEvent): void {
    switch (event.type) {
      case "THREAD_STARTED":
        return this.#threadStarted(event);
      case "THREAD_COMPLETED":
      case "THREAD_FAILED":
      case "THREAD_CANCELLED":
        return this.#threadEnded(event);
      case "THREAD_PAUSED":
        this.#thread(event).pauses.push(begin(event));
        return;
      case "THREAD_RESUMED":
        return close(this.#thread(event).pauses.at(-1), event);
      case "NODE_STARTED":
        return this.#nodeStarted(event);
      case "NODE_COMPLETED":
      case "NODE_FAILED":
        return this.#nodeEnded(event);
      case "THREAD_FORK_STARTED":
        return this.#forkStarted(event);
      case "THREAD_FORK_COMPLETED":
        return close(this.forks.findLast((fork) => fork.thread === event.threadId && fork.node === event.nodeId && fork.end === undefined), event);
      case "THREAD_JOIN_STARTED":
        return this.#joinStarted(event);
      case "SUBGRAPH_STARTED":
        this.#announced.set(event.childThreadId, { parent: event.threadId, by: event.nodeId, label: event.label });
        return;
      case "MESSAGE_ADDED":
        return this.#messageAdded(event);
      case "REQUEST_PREPARED":
        return this.#requestPrepared(event);
      case "TOOL_CALL_STARTED":
        return this.#toolStarted(event);
      case "TOOL_CALL_COMPLETED":
      case "TOOL_CALL_FAILED":
        return this.#toolEnded(event);
      case "TRIGGERED_SUBGRAPH_STARTED":
        return this.#fired(event);
      case "TRIGGERED_SUBGRAPH_COMPLETED":
      case "TRIGGERED_SUBGRAPH_FAILED":
        return this.#firingEnded(event);
      case "COMPRESSION_COMPLETED":
      case "COMPRESSION_FAILED":
        return this.#compressed(event);
      case "INTERACTION_REQUESTED":
        return this.#asked(event);
      case "INTERACTION_ANSWERED":
        return this.#questionEnded(event, "answered");
      case "INTERACTION_WITHDRAWN":
        return this.#questionEnded(event, "withdrawn");
      case "INTERACTION_TIMED_OUT":
        return this.#questionEnded(event, "timed out");
      case "VARIABLE_CHANGED":
        this.variables.push({ sequence: event.sequence, at: event.timestamp, thread: event.threadId, name: event.name, value: event.value, scope: event.scope });
        return;
      case "CACHE_COLLAPSED": {
        const call = this.calls.findLast((one) => one.kind === "model" && one.thread === event.threadId && !one.held);
        if (call) call.collapse = event;
        return;
      }
      case "TOKEN_LIMIT_EXCEEDED": {
        const call = this.#openModelCall.get(event.threadId);
        if (call) call.held = true;
      }
    }
  }

  /** Corrects the parents of threads, which the events of nested forks do not name in every case. */
  setParents(items: ThreadItem[]): void {
    const changed = new Set<Fork>();
    for (const item of items) {
      const thread = this.threads.get(item.threadId);
      if (!thread || !item.parentId || (thread.parent === item.parentId && thread.kind !== "branch")) continue;
      thread.parent = item.parentId;
      thread.startedBy = item.nodeId ?? item.triggerId ?? thread.startedBy;
      const fork = this.#forksOf.get(`${item.parentId}/${item.nodeId}`)?.findLast((one) => one.start < thread.start);
      if (fork && thread.kind === "branch") this.#place(thread, fork, changed);
    }
    this.#settle(changed);
    for (const thread of this.threadList) thread.depth = this.#depthOf(thread);
  }

  /** Adds the time of the first token, which the events of a stored run lack. */
  setRequests(items: RequestItem[]): void {
    const byThread = new Map<string, Call[]>();
    for (const call of this.calls) {
      if (call.kind !== "model" || call.held) continue;
      const list = byThread.get(call.thread);
      if (list) list.push(call);
      else byThread.set(call.thread, [call]);
    }
    for (const item of items) {
      const calls = byThread.get(item.threadId);
      const at = this.shift(item.at);
      const call = calls?.[countUpTo(calls, at, (one) => one.startAt) - 1];
      if (!call || item.firstTokenMs === null || item.firstTokenMs === undefined) continue;
      call.firstTokenAt ??= at + item.firstTokenMs;
    }
  }

  #depthOf(thread: Thread): number {
    let depth = 0;
    for (let at = thread; at.parent !== undefined && depth < 1000; depth++) {
      const parent = this.threads.get(at.parent);
      if (!parent) break;
      at = parent;
    }
    return depth;
  }

  #thread(event: RunEvent): Thread {
    return this.threads.get(event.threadId) ?? this.#addThread(event, { kind: "main" });
  }

  #addThread(event: RunEvent, known: Partial<Thread>): Thread {
    const parent = known.parent === undefined ? undefined : this.threads.get(known.parent);
    const thread: Thread = {
      kind: "main",
      ...known,
      id: event.threadId,
      workflow: event.workflowId,
      name: known.name ?? known.path ?? workflowName(event.workflowId),
      index: this.threadList.length,
      depth: parent ? parent.depth + 1 : 0,
      visits: [],
      messages: [],
      pauses: [],
      ...begin(event),
    };
    this.threads.set(thread.id, thread);
    this.threadList.push(thread);
    return thread;
  }

  #threadStarted(event: RunEvent): void {
    const kind: ThreadKind = event.kind ?? "main";
    const announced = this.#announced.get(event.threadId);
    const known: Partial<Thread> = { kind, path: event.pathId ?? undefined };
    if (announced) Object.assign(known, { parent: announced.parent, startedBy: announced.by, name: announced.label });
    const fork = kind === "branch" ? this.#forkFor(event) : undefined;
    if (fork) Object.assign(known, { parent: fork.thread, startedBy: fork.node });
    const thread = this.#addThread(event, known);
    if (fork) {
      this.#forkOf.set(thread, fork);
      fork.branches.push(thread);
      fork.waiting.delete(event.pathId);
      if (fork.waiting.size === 0) this.#openForks.splice(this.#openForks.indexOf(fork), 1);
    }
  }

  /** Moves a branch to its fork, and adds the forks that have changed. */
  #place(thread: Thread, fork: Fork, changed: Set<Fork>): void {
    const before = this.#forkOf.get(thread);
    if (before === fork) return;
    if (before) {
      before.branches.splice(before.branches.indexOf(thread), 1);
      changed.add(before);
    }
    this.#forkOf.set(thread, fork);
    fork.branches.push(thread);
    changed.add(fork);
  }

  #settle(changed: Set<Fork>): void {
    if (changed.size === 0) return;
    for (const fork of changed) {
      fork.branches.sort((a, b) => a.index - b.index);
      const started = new Set(fork.branches.map((thread) => thread.path));
      fork.waiting = new Set(fork.paths.filter((path) => !started.has(path)));
    }
    this.#openForks = this.forks.filter((fork) => fork.waiting.size > 0);
  }

  /** Branches start in the order of their forks, so the oldest fork that misses the path has started it. */
  #forkFor(event: RunEvent): Fork | undefined {
    return this.#openForks.find((fork) => {
      if (!fork.waiting.has(event.pathId)) return false;
      return fork.isMap ? fork.subgraph === event.workflowId : this.threads.get(fork.thread)?.workflow === event.workflowId;
    });
  }

  #threadEnded(event: RunEvent): void {
    const thread = this.#thread(event);
    close(thread, event);
    thread.status = event.status ?? ENDED[event.type];
    thread.output = event.output ?? undefined;
    thread.error = event.error ?? undefined;
    this.#endVisit(event.threadId, event, thread.status === "COMPLETED" ? "COMPLETED" : "CANCELLED");
    this.#openJoin.delete(event.threadId);
    for (const question of this.#openQuestions.values())
      if (question.thread === event.threadId) this.#closeQuestion(question, event, "withdrawn");
  }

  #nodeStarted(event: RunEvent): void {
    const thread = this.#thread(event);
    const key = `${event.threadId}/${event.nodeId}`;
    const attempt = event.attempt ?? 1;
    const round = (this.#rounds.get(key) ?? -1) + (attempt === 1 ? 1 : 0);
    this.#rounds.set(key, Math.max(0, round));
    const visit: Visit = {
      thread: event.threadId,
      node: event.nodeId,
      type: event.nodeType,
      workflow: event.workflowId,
      attempt,
      status: "RUNNING",
      calls: [],
      round: Math.max(0, round),
      ...begin(event),
    };
    const failed = attempt > 1 ? thread.visits.findLast((one) => one.node === visit.node) : undefined;
    if (failed) failed.retriedAt = visit.start;
    thread.visits.push(visit);
    this.visits.push(visit);
    const of = `${event.workflowId}/${event.nodeId}`;
    const list = this.visitsOf.get(of);
    if (list) list.push(visit);
    else this.visitsOf.set(of, [visit]);
    this.#open.set(event.threadId, visit);
  }

  #nodeEnded(event: RunEvent): void {
    const visit = this.#open.get(event.threadId);
    if (!visit || visit.node !== event.nodeId) return;
    visit.output = event.output;
    visit.error = event.error ?? undefined;
    const status = event.type === "NODE_COMPLETED" ? "COMPLETED" : "FAILED";
    const usage = (event.output as { usage?: Usage } | null)?.usage;
    const call = this.#openModelCall.get(event.threadId);
    if (call && status === "COMPLETED" && usage) call.replyTokens ??= usage.output;
    if (event.nodeType === "START_FROM_TRIGGER") this.#nameTrigger(event);
    this.#endVisit(event.threadId, event, status);
    this.#endJoin(event, status);
  }

  #nameTrigger(event: RunEvent): void {
    const firing = this.#firingOf.get(event.threadId);
    const cause = event.output?.event;
    if (firing && cause?.type) firing.event = { type: cause.type, sequence: cause.sequence };
  }

  #endVisit(threadId: string, event: RunEvent, status: string): void {
    const visit = this.#open.get(threadId);
    if (!visit) return;
    close(visit, event);
    visit.status = status;
    this.#open.delete(threadId);
    this.#endModelCall(threadId, event, status);
    for (const call of visit.calls) if (call.end === undefined) this.#endCall(call, event, status === "COMPLETED" ? "COMPLETED" : "CANCELLED");
  }

  #endJoin(event: RunEvent, status: string): void {
    const join = this.#openJoin.get(event.threadId);
    if (!join || join.node !== event.nodeId) return;
    close(join, event);
    join.status = status;
    join.error = event.error ?? undefined;
    join.output = (event.output ?? event.error?.details) as JsonObject | undefined;
    this.#openJoin.delete(event.threadId);
    const children = join.output?.childThreadIds;
    if (isObject(children) && join.fork) this.#confirmBranches(join.fork, Object.values(children));
  }

  /** The output of a JOIN names the branches, which corrects the assumption of `forkFor`. */
  #confirmBranches(fork: Fork, ids: Json[]): void {
    const own = new Set(ids.flatMap((id) => this.threads.get(String(id)) ?? []));
    const changed = new Set<Fork>();
    for (const branch of own) {
      Object.assign(branch, { parent: fork.thread, startedBy: fork.node });
      this.#place(branch, fork, changed);
    }
    if (changed.size === 0) return;
    for (const branch of fork.branches) if (!own.has(branch)) this.#forkOf.delete(branch);
    fork.branches = [...own];
    this.#settle(changed);
  }

  #forkStarted(event: RunEvent): void {
    const fork: Fork = {
      thread: event.threadId,
      node: event.nodeId,
      isMap: !!event.subgraphId,
      subgraph: event.subgraphId,
      paths: event.forkPathIds ?? [],
      waiting: new Set<string>(event.forkPathIds ?? []),
      branches: [],
      ...begin(event),
    };
    this.forks.push(fork);
    const key = `${fork.thread}/${fork.node}`;
    this.#forksOf.set(key, [...(this.#forksOf.get(key) ?? []), fork]);
    if (fork.paths.length > 0) this.#openForks.push(fork);
  }

  #joinStarted(event: RunEvent): void {
    const fork = this.forks.findLast((one) => one.thread === event.threadId && one.join === undefined);
    const join: Join = {
      thread: event.threadId,
      node: event.nodeId,
      strategy: event.joinStrategy,
      timeoutMs: event.timeoutMs,
      status: "RUNNING",
      fork,
      ...begin(event),
    };
    if (fork) fork.join = join;
    this.joins.push(join);
    this.#openJoin.set(event.threadId, join);
  }

  #messageAdded(event: RunEvent): void {
    const thread = this.#thread(event);
    thread.messages.push({
      sequence: event.sequence,
      at: event.timestamp,
      thread: event.threadId,
      index: event.index,
      message: event.message,
      tokens: event.tokens ?? 0,
    });
    if (event.message?.role !== "assistant") return;
    const call = this.#openModelCall.get(event.threadId);
    if (call) call.replyTokens = event.tokens;
    this.#endModelCall(event.threadId, event, "COMPLETED");
  }

  #requestPrepared(event: RunEvent): void {
    this.#endModelCall(event.threadId, event, "CANCELLED");
    const visit = this.#open.get(event.threadId);
    const call: Call = {
      kind: "model",
      thread: event.threadId,
      node: visit?.node ?? "",
      status: "RUNNING",
      tokens: event.tokensUsed,
      limit: event.tokenLimit,
      messages: event.messages,
      pinnedAt: event.pinnedAt ?? undefined,
      stablePrefix: event.stablePrefixTokens ?? undefined,
      brokenAt: event.brokenAt ?? undefined,
      why: event.why ?? undefined,
      ...begin(event),
    };
    this.calls.push(call);
    visit?.calls.push(call);
    this.#openModelCall.set(event.threadId, call);
  }

  #endModelCall(threadId: string, event: RunEvent, status: string): void {
    const call = this.#openModelCall.get(threadId);
    if (!call) return;
    this.#endCall(call, event, status);
    this.#openModelCall.delete(threadId);
  }

  #endCall(call: Call, event: RunEvent, status: string): void {
    close(call, event);
    call.status = status;
  }

  #piece(event: RunEvent): void {
    this.lastSequence = Math.max(this.lastSequence, event.sequence);
    const call = this.#openModelCall.get(event.threadId);
    if (call) call.firstTokenAt ??= event.timestamp;
  }

  #toolStarted(event: RunEvent): void {
    const visit = this.#open.get(event.threadId);
    const call: Call = {
      kind: "tool",
      thread: event.threadId,
      node: event.nodeId ?? visit?.node ?? "",
      name: event.name,
      status: "RUNNING",
      toolCallId: event.toolCallId,
      arguments: event.arguments,
      ...begin(event),
    };
    this.calls.push(call);
    visit?.calls.push(call);
    this.#openTools.set(`${event.threadId}/${event.toolCallId}`, call);
  }

  #toolEnded(event: RunEvent): void {
    const key = `${event.threadId}/${event.toolCallId}`;
    const call = this.#openTools.get(key);
    if (!call) return;
    call.result = event.result;
    this.#endCall(call, event, event.type === "TOOL_CALL_COMPLETED" ? "COMPLETED" : "FAILED");
    this.#openTools.delete(key);
  }

  #fired(event: RunEvent): void {
    this.#announced.set(event.childThreadId, { parent: event.threadId, by: event.triggerId });
    const firing: Firing = {
      trigger: event.triggerId,
      firing: event.firing,
      thread: event.threadId,
      child: event.childThreadId,
      atNode: event.currentNodeId,
      status: "RUNNING",
      ...begin(event),
    };
    this.firings.push(firing);
    this.#firingOf.set(event.childThreadId, firing);
  }

  #firingEnded(event: RunEvent): void {
    const firing = this.firings.findLast((one) => one.firing === event.firing && one.trigger === event.triggerId);
    if (!firing) return;
    close(firing, event);
    firing.status = event.type === "TRIGGERED_SUBGRAPH_COMPLETED" ? "COMPLETED" : "FAILED";
  }

  #compressed(event: RunEvent): void {
    const compression: Compression = {
      sequence: event.sequence,
      at: event.timestamp,
      thread: event.threadId,
      workflow: event.workflowId,
      failed: event.type === "COMPRESSION_FAILED",
      changed: event.changed === true,
      messagesBefore: event.messagesBefore,
      messagesAfter: event.messagesAfter,
      tokensBefore: event.tokensBefore,
      tokensAfter: event.tokensAfter,
      result: event.result,
      error: event.error ?? undefined,
      trigger: event.triggerId,
    };
    this.compressions.push(compression);
  }

  #asked(event: RunEvent): void {
    const question: Question = {
      id: event.interactionId,
      thread: event.threadId,
      node: event.nodeId,
      question: event.question,
      assignee: event.assignee,
      schema: event.schema,
      choices: event.choices,
      timeoutMs: event.timeoutMs,
      tool: event.tool,
      ...begin(event),
    };
    this.questions.push(question);
    this.#openQuestions.set(question.id, question);
  }

  #questionEnded(event: RunEvent, outcome: NonNullable<Question["outcome"]>): void {
    const question = this.#openQuestions.get(event.interactionId);
    if (!question) return;
    question.answer = event.answer;
    question.by = event.by;
    this.#closeQuestion(question, event, outcome);
  }

  #closeQuestion(question: Question, event: RunEvent, outcome: NonNullable<Question["outcome"]>): void {
    close(question, event);
    question.outcome = outcome;
    this.#openQuestions.delete(question.id);
  }

  /** Number of events up to a sequence. */
  countAt(sequence: number): number {
    return countUpTo(this.events, sequence, (event) => event.sequence);
  }

  /** Time of the last event up to a sequence. */
  timeAt(sequence: number): number {
    return this.events[this.countAt(sequence) - 1]?.timestamp ?? this.startAt;
  }

  /** Sequence of the last event up to a time. */
  sequenceAt(time: number): number {
    const n = countUpTo(this.events, time, (event) => event.timestamp);
    return this.events[Math.max(0, n - 1)]?.sequence ?? 0;
  }

  /** Variables at a sequence, by scope and thread: the last change of each. */
  variablesAt(sequence: number): VariableChange[] {
    const last = new Map<string, VariableChange>();
    for (const change of this.variables) {
      if (change.sequence > sequence) break;
      last.set(`${change.scope}/${change.scope === "thread" ? change.thread : ""}/${change.name}`, change);
    }
    return [...last.values()];
  }

  /** Questions that were open at a sequence. */
  questionsAt(sequence: number): Question[] {
    return this.questions.filter((question) => isOpenAt(question, sequence));
  }

  /** Visits of a node at a sequence, in order. */
  visitsAt(workflow: string, node: string, sequence: number): Visit[] {
    const visits = this.visitsOf.get(`${workflow}/${node}`) ?? [];
    return visits.slice(0, countUpTo(visits, sequence, (visit) => visit.start));
  }
}

const begin = (event: RunEvent): Span => ({ start: event.sequence, startAt: event.timestamp });

function close(span: Span | undefined, event: RunEvent): void {
  if (!span) return;
  span.end = event.sequence;
  span.endAt = event.timestamp;
}

export const isOpenAt = (span: Span, sequence: number): boolean => span.start <= sequence && (span.end === undefined || span.end > sequence);
/** Status of an item at a sequence: RUNNING until its end. */
export const statusAt = (item: Span & { status?: string }, sequence: number): string =>
  item.end !== undefined && item.end <= sequence ? (item.status ?? "COMPLETED") : "RUNNING";

/** Number of leading items whose key is at most `limit`; the keys ascend. */
export function countUpTo<T>(items: readonly T[], limit: number, key: (item: T) => number): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(items[middle]!) <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
