// Conversations of a run's threads, computed from its events: messages in order, requests between them, and compressions with the
// messages that they removed.

import { stringify } from "./json";
import type { Message, RunEvent, ToolCall } from "../types";
import { contentText } from "../ui/text/format";

export interface MessageItem {
  kind: "message";
  message: Message;
  /** Position in the thread's history, including removed messages; absent for a message of a compression. */
  index?: number;
  tokens?: number;
  at?: number;
  sequence?: number;
  /** True if the thread started with the message: initial conversation, session, or the parent's conversation. */
  inherited?: boolean;
}

export interface RequestItem {
  kind: "request";
  sequence: number;
  at: number;
  tokensUsed: number;
  tokenLimit?: number | null;
  messages: number;
  /** Position of the pinned context in the request, if there is one. */
  pinnedAt?: number | null;
  stablePrefixTokens?: number;
  brokenAt?: number;
  why?: string;
}

export interface CompressionItem {
  kind: "compression";
  sequence: number;
  at: number;
  changed: boolean;
  messagesBefore: number;
  messagesAfter: number;
  tokensBefore: number;
  tokensAfter: number;
  /** Messages that the compression removed, in order; unknown if the result of the compression is not among the events. */
  removed?: MessageItem[];
  /** Messages that the compression wrote. */
  written?: MessageItem[];
  /** Trigger that caused the compression. */
  triggerId?: string;
  error?: unknown;
}

/** Messages that are missing among the events, for example because they were dropped. */
export interface GapItem {
  kind: "gap";
  /** Number of messages; at least 1. */
  count: number;
}

export type ConversationItem = MessageItem | RequestItem | CompressionItem | GapItem;

export interface ThreadConversation {
  threadId: string;
  items: ConversationItem[];
  /** Number of messages in the history, including removed ones. */
  length: number;
  lastRequest?: RequestItem;
}

export interface ThreadOrigin {
  threadId: string;
  parentId?: string;
}

interface Building extends ThreadConversation {
  isUsed: boolean;
  /** Number of items at the start that are the parent's; 0 after a compression, which replaces them. */
  inherited: number;
  parentId?: string;
  firedTrigger?: string;
  childOfTrigger?: string;
  forkPathIds: string[];
}

/**
 * Computes the conversation of every thread that has one.
 *
 * `initial` are the messages with which the main thread started: they are not among the events, and the report has them. `from` is the
 * number of messages before them, which belong to earlier runs of the session.
 * `threads` has the parents of threads; the conversation of a branch starts with that of its parent.
 */
export function conversations(
  events: Iterable<RunEvent>,
  initial: Message[],
  threads: ThreadOrigin[],
  from = 0,
): Map<string, ThreadConversation> {
  const fold = new Fold(initial, threads, from);
  for (const event of events) fold.apply(event);
  return fold.finished();
}

/** Number of initial messages of the main thread: the position of the first message that an event added. */
export function initialLength(events: Iterable<RunEvent>, mainThreadId: string, total: number): number {
  for (const event of events) {
    if (event.type === "MESSAGE_ADDED" && event.threadId === mainThreadId) return event.index as number;
  }
  return total;
}

class Fold {
  private readonly threads = new Map<string, Building>();
  private readonly parents: Map<string, string | undefined>;
  private readonly initial: ConversationItem[];
  private lastForked = "";

  constructor(
    initial: Message[],
    threads: ThreadOrigin[],
    private readonly from: number,
  ) {
    this.initial = initial.map((message, at) => ({ kind: "message", message, index: from + at, inherited: true }));
    if (from > 0) this.initial.unshift({ kind: "gap", count: from });
    this.parents = new Map(threads.map((thread) => [thread.threadId, thread.parentId]));
  }

  apply(event: RunEvent): void {
    const thread = this.thread(event.threadId, event);
    switch (event.type) {
      case "THREAD_FORK_STARTED":
        this.lastForked = thread.threadId;
        thread.forkPathIds = (event.forkPathIds) ?? [];
        break;
      case "TRIGGERED_SUBGRAPH_STARTED": {
        // The event of the child's compression is on the child's thread; its result belongs to this thread.
        const child = event.childThreadId as string | undefined;
        thread.childOfTrigger = child;
        thread.firedTrigger = event.triggerId as string | undefined;
        if (child) this.parents.set(child, thread.threadId);
        break;
      }
      case "SUBGRAPH_STARTED":
        this.parents.set(event.childThreadId as string, thread.threadId);
        break;
      case "NODE_COMPLETED":
        if (event.nodeType === "JOIN") this.join(thread, event.output);
        break;
      case "MESSAGE_ADDED":
        this.add(thread, event);
        break;
      case "REQUEST_PREPARED":
        this.request(thread, event);
        break;
      case "COMPRESSION_COMPLETED":
      case "COMPRESSION_FAILED":
        this.compress(thread, event);
        break;
      default:
    }
  }

  finished(): Map<string, ThreadConversation> {
    return new Map([...this.threads].filter(([, thread]) => thread.isUsed));
  }

  /** Returns the thread; a new one starts with its parent's conversation. */
  private thread(threadId: string, event: RunEvent): Building {
    const known = this.threads.get(threadId);
    if (known) return known;
    const isFirst = this.threads.size === 0;
    const parentId = this.parents.get(threadId) ?? (isFirst ? undefined : this.lastForked || undefined);
    const parent = parentId === undefined ? undefined : this.threads.get(parentId);
    const inherits = event.kind === "branch" && parent;
    const items = isFirst ? [...this.initial] : inherits ? inheritedItems(parent.items) : [];
    const ownLength = this.from + this.initial.filter((item) => item.kind === "message").length;
    const length = isFirst ? ownLength : inherits ? parent.length : 0;
    const inherited = isFirst ? 0 : items.length;
    const thread: Building = { threadId, items, length, inherited, forkPathIds: [], isUsed: isFirst && length > 0 };
    if (parentId !== undefined) thread.parentId = parentId;
    this.threads.set(threadId, thread);
    return thread;
  }

  private add(thread: Building, event: RunEvent): void {
    const index = event.index as number;
    if (index !== thread.length) this.reconcile(thread, index);
    const item: MessageItem = {
      kind: "message",
      message: event.message as Message,
      index,
      at: event.timestamp,
      sequence: event.sequence,
    };
    if (typeof event.tokens === "number") item.tokens = event.tokens;
    thread.items.push(item);
    thread.length = index + 1;
    thread.isUsed = true;
  }

  /**
   * The history has another length than the events so far explain: the thread uses the conversation of another one (its parent's, or
   * that of a called workflow that shares it), or events are missing.
   */
  private reconcile(thread: Building, length: number): void {
    const parent = thread.parentId === undefined ? undefined : this.threads.get(thread.parentId);
    if (!thread.isUsed && length === 0) {
      [thread.items, thread.length] = [[], 0];
      return;
    }
    const relatives = [...this.threads.values()].filter((other) => other.parentId === thread.threadId);
    const source = [parent, ...relatives.reverse()].find((other) => other && other !== thread && other.length === length);
    if (source) {
      [thread.items, thread.length] = [inheritedItems(source.items), length];
      thread.inherited = thread.items.length;
    } else if (length > thread.length) {
      thread.items.push({ kind: "gap", count: length - thread.length });
      thread.length = length;
    }
  }

  /** The conversation of the main path replaces the parent's. */
  private join(thread: Building, output: unknown): void {
    const { completed = [], childThreadIds = {} } = (output ?? {}) as {
      completed?: string[];
      childThreadIds?: Record<string, string>;
    };
    const main = completed.includes(thread.forkPathIds[0] ?? "") ? thread.forkPathIds[0]! : completed[0];
    const branch = main === undefined ? undefined : this.threads.get(childThreadIds[main] ?? "");
    if (!branch) return;
    // The thread's own items have its requests, unlike the branch's copy of them.
    if (branch.inherited > 0) thread.items.push(...branch.items.slice(branch.inherited));
    else thread.items = [...branch.items];
    thread.length = branch.length;
  }

  private request(thread: Building, event: RunEvent): void {
    const item = { ...event, kind: "request", at: event.timestamp } as unknown as RequestItem;
    thread.items.push(item);
    thread.lastRequest = item;
    thread.isUsed = true;
  }

  private compress(thread: Building, event: RunEvent): void {
    const item = { ...event, kind: "compression", at: event.timestamp } as unknown as CompressionItem;
    delete item.triggerId;
    const result = event.result as { messages?: Message[] } | undefined;
    if (result?.messages) this.results.set(thread.threadId, result.messages);
    const messages = result?.messages ?? this.results.get(thread.childOfTrigger ?? "");
    if (thread.firedTrigger && thread.childOfTrigger) item.triggerId = thread.firedTrigger;
    if (item.changed && messages && thread.isUsed) replaceVisible(thread, item, messages);
    else thread.items.push(item);
    // A compressed conversation is a new batch after the archived messages.
    if (item.changed && thread.isUsed) thread.length += item.messagesAfter;
  }

  private readonly results = new Map<string, Message[]>();
}

/** Items that a new thread shows of its parent: messages and compressions, without requests, which were the parent's. */
function inheritedItems(items: ConversationItem[]): ConversationItem[] {
  return items
    .filter((item) => item.kind !== "request")
    .map((item) => (item.kind === "message" ? { ...item, inherited: true } : item));
}

/** Replaces the visible messages by those of the compression's result. Messages that the result retains keep their items. */
function replaceVisible(thread: Building, compression: CompressionItem, messages: Message[]): void {
  const remaining = new Map<string, MessageItem[]>();
  const visible = thread.items.filter((item): item is MessageItem => item.kind === "message");
  for (const item of visible) {
    const key = keyOf(item.message);
    remaining.set(key, [...(remaining.get(key) ?? []), item]);
  }
  const retained = new Set<MessageItem>();
  const after = messages.map((message): MessageItem => {
    // From the end: retained messages are the most recent ones.
    const item = remaining.get(keyOf(message))?.pop();
    if (item) retained.add(item);
    return item ?? { kind: "message", message, at: compression.at };
  });
  compression.removed = visible.filter((item) => !retained.has(item));
  compression.written = after.filter((item) => !retained.has(item));
  const earlier = thread.items.filter((item) => item.kind === "compression");
  const written = new Set(compression.written);
  const at = after.findIndex((item) => written.has(item));
  const place = at < 0 ? after.length : at;
  thread.inherited = 0;
  thread.items = [...after.slice(0, place), ...earlier, compression, ...after.slice(place)];
}

function keyOf(message: Message): string {
  return stringify([message.role, message.content, message.toolCalls ?? null, message.toolCallId ?? null]);
}

export interface FoldedCall {
  call: ToolCall;
  result?: MessageItem;
}

/** A message with the results of its tool calls, or another item. */
export type Row = { item: ConversationItem; calls?: FoldedCall[] };

/** Folds the results of tool calls into the message that made the calls. */
export function rows(items: ConversationItem[]): Row[] {
  const found: Row[] = [];
  let open = new Map<string, FoldedCall>();
  for (const item of items) {
    if (item.kind === "message" && item.message.role === "tool") {
      const call = open.get(item.message.toolCallId ?? "");
      if (call && !call.result) {
        call.result = item;
        continue;
      }
    }
    const calls = item.kind === "message" ? item.message.toolCalls : undefined;
    if (calls?.length) {
      const folded = calls.map((call): FoldedCall => ({ call }));
      open = new Map(folded.map((call) => [call.call.id, call]));
      found.push({ item, calls: folded });
    } else {
      found.push({ item });
    }
  }
  return found;
}

/** Text of a message with the arguments of its calls, in which facts are searched. */
export function textOf(message: Message): string {
  const calls = (message.toolCalls ?? []).map((call) => `\n${stringify(call.arguments)}`);
  return contentText(message.content) + calls.join("");
}
