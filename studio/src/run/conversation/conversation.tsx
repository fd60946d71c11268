// The conversation of a thread at the cursor: messages, requests with the share that the provider's cache can serve, the pinned
// context at its position, and compressions that open to the messages that they removed.

import { useMemo, useState } from "preact/hooks";
import { get } from "../../api";
import {
  type CompressionItem,
  type ConversationItem,
  conversations,
  initialLength,
  type RequestItem as RequestMark,
  type Row,
  rows,
  type ThreadConversation,
} from "../../data/conversation";
import { type ConversationFormat, converted, curl } from "../../data/convert";
import { href } from "../../router";
import type { RequestDetail, RunEvent } from "../../types";
import { count, iso, percent, plural, time } from "../../ui/text/format";
import { CacheBar, Meter } from "../../ui/meter";
import { CopyButton, save } from "../../ui/clipboard";
import { requestAt } from "../model/calls";
import { Compression } from "./compression";
import { MessageCard } from "./messages";
import type { OpenRun } from "../model/open";
import { PinnedMessages } from "./pinned";

const RELEVANT = new Set([
  "THREAD_STARTED",
  "THREAD_FORK_STARTED",
  "TRIGGERED_SUBGRAPH_STARTED",
  "SUBGRAPH_STARTED",
  "MESSAGE_ADDED",
  "REQUEST_PREPARED",
  "COMPRESSION_COMPLETED",
  "COMPRESSION_FAILED",
]);
const isRelevant = (event: RunEvent) => RELEVANT.has(event.type) || (event.type === "NODE_COMPLETED" && event.nodeType === "JOIN");

/** Conversations of all threads at the cursor. */
function useConversations(run: OpenRun): Map<string, ThreadConversation> {
  const version = run.version.value;
  const position = run.cursor.resting.value;
  const { messages, from = 0 } = run.report.value?.conversation ?? {};
  const events = useMemo(() => run.model.events.filter(isRelevant), [run, version]);
  const initial = useMemo(() => {
    const main = run.model.threadList[0]?.id;
    return main && messages ? messages.slice(0, Math.max(0, initialLength(events, main, from + messages.length) - from)) : [];
  }, [events, messages, from]);
  return useMemo(() => {
    const until = events.filter((event) => event.sequence <= position);
    const parents = run.model.threadList.map((thread) => ({ threadId: thread.id, parentId: thread.parent }));
    return conversations(until, initial, parents, from);
  }, [events, initial, from, position]);
}

export function Conversation({ run }: { run: OpenRun }) {
  const found = useConversations(run);
  const chosen = run.cursor.thread.value;
  const id = chosen !== undefined && found.has(chosen) ? chosen : defaultThread(run, found);
  const thread = id === undefined ? undefined : found.get(id);
  if (!thread) return <p class="empty">{run.loaded.value ? "No thread of the run has a conversation at this position." : "Loading…"}</p>;
  return (
    <div class="conversation">
      <Toolbar run={run} thread={thread} ids={[...found.keys()]} />
      <Items key={thread.threadId} run={run} thread={thread} />
    </div>
  );
}

/** The thread of the last message at the cursor, which is the one that a person follows. */
function defaultThread(run: OpenRun, found: Map<string, ThreadConversation>): string | undefined {
  const main = run.model.threadList[0]?.id;
  return main !== undefined && found.has(main) ? main : found.keys().next().value;
}

function labelOf(run: OpenRun, id: string): string {
  const thread = run.model.threads.get(id);
  if (!thread) return id;
  const kind = thread.kind === "main" ? "main" : `${thread.kind} ${thread.name}`;
  return `${kind} (${id.slice(id.lastIndexOf(".") + 1)})`;
}

function Toolbar({ run, thread, ids }: { run: OpenRun; thread: ThreadConversation; ids: string[] }) {
  const [format, setFormat] = useState<ConversationFormat>("pirn");
  const request = thread.lastRequest;
  const item = request && requestAt(run, thread.threadId, request.sequence);
  const visible = () => thread.items.flatMap((one) => (one.kind === "message" ? [one.message] : []));
  return (
    <div class="toolbar">
      <label>
        Thread{" "}
        <select value={thread.threadId} onChange={(event) => run.cursor.select(run.cursor.node.value, event.currentTarget.value)}>
          {ids.map((id) => (
            <option key={id} value={id}>
              {labelOf(run, id)}
            </option>
          ))}
        </select>
      </label>
      {request && <Meter label="Last request" value={request.tokensUsed} limit={request.tokenLimit} />}
      <span class="spring" />
      {item && <CopyButton label="Copy the last request as cURL" text={() => curlOf(run, item.effectId)} />}
      <span class="group">
        <label>
          Format{" "}
          <select value={format} onChange={(event) => setFormat(event.currentTarget.value as ConversationFormat)}>
            <option value="pirn">Pirn</option>
            <option value="openai">OpenAI</option>
            <option value="anthropic">Anthropic</option>
            <option value="gemini">Gemini</option>
          </select>
        </label>
        <button onClick={() => save(`${thread.threadId}.${format}.json`, converted(visible(), format))}>Export</button>
      </span>
    </div>
  );
}

/** A request as a command. Keys are not part of it: the service masks them, and the command reads its key from the environment. */
export async function curlOf(run: OpenRun, effectId: string): Promise<string> {
  const detail = await get<RequestDetail>(run.path(`/requests/${encodeURIComponent(effectId)}`));
  return curl(detail.model ?? detail.profileId ?? "model", detail.request);
}

/** Inherited messages before the thread's own that are shown at first. */
const INHERITED = 4;
const PAGE = 200;

function Items({ run, thread }: { run: OpenRun; thread: ThreadConversation }) {
  const all = useMemo(() => rows(thread.items), [thread]);
  const firstOwn = all.findIndex(({ item }) => item.kind !== "message" || !item.inherited);
  const [from, setFrom] = useState<number>();
  const start = from ?? Math.max(0, firstOwn < 0 ? all.length - PAGE : Math.max(firstOwn - INHERITED, all.length - PAGE));
  const pinnedBefore = positionOfPinned(all, thread.lastRequest);
  const newest = run.cursor.resting.value;
  return (
    <div class="messages" role="region" aria-label={`Messages of ${thread.threadId}`}>
      {start > 0 && (
        <button class="fold" onClick={() => setFrom(Math.max(0, start - PAGE))}>
          {plural(start, "earlier message")} {all[start - 1]!.item.kind === "message" && "(initial or inherited)"}
        </button>
      )}
      {all.slice(start).map((row, at) => (
        <div key={start + at} class={isAtCursor(row.item, newest, run) ? "current" : ""}>
          {start + at === pinnedBefore && thread.lastRequest && <Pinned run={run} thread={thread} />}
          <ItemRow run={run} row={row} thread={thread} />
        </div>
      ))}
      {pinnedBefore === all.length && thread.lastRequest && <Pinned run={run} thread={thread} />}
    </div>
  );
}

const isAtCursor = (item: ConversationItem, position: number, run: OpenRun): boolean =>
  position < run.lastSequence.value && "sequence" in item && item.sequence === position;

/** Index of the row before which the request has the pinned context; -1 if it has none. */
function positionOfPinned(all: Row[], request: RequestMark | undefined): number {
  if (request?.pinnedAt == null) return -1;
  let messages = 0;
  for (let at = 0; at < all.length; at += 1) {
    const { item, calls } = all[at]!;
    if (item.kind !== "message") continue;
    if (messages >= request.pinnedAt) return at;
    messages += 1 + (calls ?? []).filter((call) => call.result).length;
  }
  return all.length;
}

function Pinned({ run, thread }: { run: OpenRun; thread: ThreadConversation }) {
  return (
    <details class="pinned">
      <summary>
        Pinned context, inserted here into the last request
      </summary>
      <PinnedMessages run={run} item={requestAt(run, thread.threadId, thread.lastRequest!.sequence)} />
    </details>
  );
}

function ItemRow({ run, row, thread }: { run: OpenRun; row: Row; thread: ThreadConversation }) {
  const { item, calls } = row;
  switch (item.kind) {
    case "message":
      return <MessageCard item={item} calls={calls} note={item.inherited && run.model.threads.get(thread.threadId)?.kind !== "main" ? <span class="badge">inherited</span> : item.index === undefined ? <span class="badge">written by the compression</span> : undefined} />;
    case "request":
      return <RequestRow run={run} item={item} thread={thread} />;
    case "compression":
      return <Compression item={item as CompressionItem} />;
    case "gap":
      return <p class="gap dim">{plural(item.count, "message")} that the events do not contain</p>;
  }
}

function RequestRow({ run, item, thread }: { run: OpenRun; item: RequestMark; thread: ThreadConversation }) {
  const sent = requestAt(run, thread.threadId, item.sequence);
  const change = item.why ? `, the prefix changed at message ${item.brokenAt ?? 0}: ${item.why}` : "";
  return (
    <div class="request-row">
      <span class="dim">
        <time dateTime={iso(item.at)}>{time(item.at)}</time> request with {plural(item.messages, "message")}, {count(item.tokensUsed)} tokens
        {item.tokenLimit != null && ` (${percent(item.tokensUsed, item.tokenLimit)} of the limit)`}
      </span>
      <CacheBar total={item.tokensUsed} stable={item.stablePrefixTokens ?? 0} cached={sent?.cachedTokens} />
      <span class="dim">
        {percent(item.stablePrefixTokens ?? 0, item.tokensUsed)} unchanged{change}
      </span>
      {sent && <a href={href(["runs", run.id, "request"], { request: sent.effectId })}>Open</a>}
    </div>
  );
}
