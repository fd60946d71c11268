// The model requests of a run: each exactly as sent and as answered, why its prefix changed, and two of them side by side.

import { useMemo } from "preact/hooks";
import { lazy } from "../../lazy";
import { setQuery, route } from "../../router";
import type { Json, RequestDetail, RequestItem } from "../../types";
import { count, duration, iso, money, percent, plural, pretty, time } from "../../ui/text/format";
import { CopyButton } from "../../ui/clipboard";
import { ByteDiff } from "../../ui/text/diff";
import { JsonTree } from "../../ui/text/json";
import { List } from "../../ui/list";
import { CacheBar } from "../../ui/meter";
import { Facts } from "../../ui/panel";
import { Loaded, useResource } from "../../ui/resource";
import { pairs } from "../model/calls";
import { curlOf } from "./conversation";
import { collapseText } from "../model/digest";
import { MessageCard, MessageList, plainMessage } from "./messages";
import type { Call } from "../model/model";
import type { OpenRun } from "../model/open";

const ROW = 52;
const CopyAsTest = lazy("CopyAsTest");

export function Requests({ run }: { run: OpenRun }) {
  void run.version.value;
  const items = run.requests.value;
  const calls = useMemo(() => pairs(run), [items, run.lastSequence.value]);
  if (!items?.length) return <p class="empty">{items ? "The run has sent no model request." : "The service has no requests of the run."}</p>;
  const wanted = route.value.query.get("request");
  const other = route.value.query.get("with");
  const at = wanted === null ? indexAtCursor(run, items, calls) : items.findIndex((item) => item.effectId === wanted);
  const selected = items[Math.max(0, at)]!;
  const select = (index: number) => {
    const item = items[index]!;
    setQuery({ request: item.effectId, with: undefined });
    const call = calls.get(item.effectId);
    run.cursor.move({ sequence: call?.end ?? call?.start ?? run.cursor.sequence.value, node: item.nodeId, thread: item.threadId });
  };
  return (
    <div class="requests">
      <List
        label="Model requests"
        class="request-list"
        count={items.length}
        rowHeight={ROW}
        selected={Math.max(0, at)}
        onSelect={select}
        row={(index) => <RequestLine item={items[index]!} call={calls.get(items[index]!.effectId)} />}
      />
      <div class="request-detail" tabIndex={0} role="region" aria-label={`Request of ${selected.nodeId}`}>
        <Detail key={selected.effectId} run={run} item={selected} items={items} call={calls.get(selected.effectId)} other={other} />
      </div>
    </div>
  );
}

/** The last request that had started at the cursor; in the selected thread or node, if it has one. */
function indexAtCursor(run: OpenRun, items: RequestItem[], calls: Map<string, Call>): number {
  const { cursor } = run;
  const position = cursor.resting.value;
  const started = items.map((item, at) => ({ item, at })).filter(({ item }) => (calls.get(item.effectId)?.start ?? 0) <= position);
  const inNode = started.filter(({ item }) => item.nodeId === cursor.node.value && (!cursor.thread.value || item.threadId === cursor.thread.value));
  return (inNode.at(-1) ?? started.at(-1))?.at ?? 0;
}

/** The tokens of a request that equal the start of the previous one: Pirn's share of `total`, which the provider counted. */
const stableTokens = (call: Call | undefined, total: number): number =>
  call?.tokens ? Math.round(((call.stablePrefix ?? 0) / call.tokens) * total) : 0;

function RequestLine({ item, call }: { item: RequestItem; call?: Call }) {
  const total = item.promptTokens ?? call?.tokens ?? 0;
  return (
    <span class="request-line">
      <span class="request-name">
        <strong>{item.nodeId || "compression"}</strong> <span class="dim">{item.model ?? item.profileId ?? ""}</span>
        {call?.collapse && <span class="badge change">⤓ cache collapsed</span>}
      </span>
      <span class="dim">
        {time(item.at)} · {duration(item.durationMs)} · {count(total)} → {count(item.completionTokens)} tokens
        {item.attempts > 1 && ` · ${plural(item.attempts, "attempt")}`}
        {item.finishReason && item.finishReason !== "stop" && ` · ${item.finishReason}`}
      </span>
      <CacheBar total={total} stable={stableTokens(call, total)} cached={item.cachedTokens} />
    </span>
  );
}

const WHY: { [reason: string]: string } = {
  profile: "another profile was used",
  model: "another profile or model was used",
  tools: "the offered tools changed",
  responseFormat: "the response format changed",
  system: "the text of a system message changed",
  pinned: "the pinned context moved or changed",
  repair: "a message was inserted to make the request valid",
  compression: "the conversation was compressed",
  history: "the conversation was changed by more than an append",
};

interface DetailProps {
  run: OpenRun;
  item: RequestItem;
  items: RequestItem[];
  call?: Call;
  other: string | null;
}

function Detail({ run, item, items, call, other }: DetailProps) {
  const resource = useResource<RequestDetail>(run.path(`/requests/${encodeURIComponent(item.effectId)}`));
  const total = item.promptTokens ?? call?.tokens ?? 0;
  return (
    <>
      <header class="detail-title">
        <h2>{item.nodeId || "compression"}</h2>
        <span class="dim mono">{item.effectId}</span>
        <span class="spring" />
        {!run.isFixed && <CopyAsTest run={run} />}
        <CopyButton label="Copy as cURL" text={() => curlOf(run, item.effectId)} />
      </header>
      <Facts
        of={[
          ["Model", [item.profileId, item.model].filter(Boolean).join(", ") || "–"],
          ["Sent", <time dateTime={iso(item.at)}>{time(item.at)}</time>],
          ["Duration", duration(item.durationMs)],
          ["First token", item.firstTokenMs == null ? undefined : duration(item.firstTokenMs)],
          ["Prompt", `${count(item.promptTokens)} tokens`],
          ["From the cache", item.cachedTokens == null ? "–" : `${count(item.cachedTokens)} (${percent(item.cachedTokens, total)})`],
          ["Reply", `${count(item.completionTokens)} tokens`],
          ["Cost", item.cost == null ? undefined : money(item.cost)],
          ["Finish reason", item.finishReason ?? "–"],
          ["Attempts", count(item.attempts)],
        ]}
      />
      <Prefix call={call} detail={resource.data.value} items={items} item={item} other={other} />
      {other && <SideBySide run={run} item={item} other={other} />}
      <Loaded resource={resource}>{(detail) => <Sent detail={detail} />}</Loaded>
    </>
  );
}

/** Where and why the prefix differs from the previous request's, and the choice of a request to compare with. */
function Prefix({ call, detail, items, item, other }: { call?: Call; detail?: RequestDetail; items: RequestItem[]; item: RequestItem; other: string | null }) {
  const prefix = detail?.prefix;
  const total = item.promptTokens ?? call?.tokens ?? 0;
  const stable = stableTokens(call, total);
  const reason = prefix?.reason ?? call?.why;
  const where = prefix?.firstDifference ? `message ${prefix.firstDifference.message}, byte ${count(prefix.firstDifference.byte)}` : call?.brokenAt !== undefined ? `message ${call.brokenAt}` : "";
  const others = items.filter((one) => one.effectId !== item.effectId);
  return (
    <section class="prefix" aria-label="Prefix">
      <CacheBar total={total} stable={stable} cached={item.cachedTokens} />
      <p>
        {call && `${percent(stable, total)} of the request equals the start of the thread's previous request. `}
        {call?.collapse && <strong>⤓ Cache collapsed: {collapseText(call.collapse)}. </strong>}
        {reason && reason !== "grew" ? `The prefix changed${where && ` at ${where}`}: ${WHY[reason] ?? reason}.` : prefix && "The request contains the previous one completely."}
      </p>
      {others.length > 0 && (
        <label>
          Compare with{" "}
          <select value={other ?? ""} onChange={(event) => setQuery({ request: item.effectId, with: event.currentTarget.value || undefined })}>
            <option value="">no other request</option>
            {prefix?.previous && <option value={prefix.previous}>the previous one of the thread</option>}
            {others
              .filter((one) => one.effectId !== prefix?.previous)
              .slice(0, 500)
              .map((one) => (
                <option key={one.effectId} value={one.effectId}>
                  {one.nodeId || "compression"}, {time(one.at)} ({one.effectId})
                </option>
              ))}
          </select>
        </label>
      )}
    </section>
  );
}

function SideBySide({ run, item, other }: { run: OpenRun; item: RequestItem; other: string }) {
  const left = useResource<RequestDetail>(run.path(`/requests/${encodeURIComponent(other)}`));
  const right = useResource<RequestDetail>(run.path(`/requests/${encodeURIComponent(item.effectId)}`));
  return (
    <section aria-label="Side by side">
      <Loaded resource={left}>
        {(before) => (
          <Loaded resource={right}>
            {(after) => <ByteDiff left={textOf(before)} right={textOf(after)} leftName={`${before.nodeId} (${before.effectId})`} rightName={`${after.nodeId} (${after.effectId})`} />}
          </Loaded>
        )}
      </Loaded>
    </section>
  );
}

/** A request as text in the order in which a provider's cache reads it: tools, then messages. */
function textOf({ request }: RequestDetail): string {
  const tools = request.tools?.length ? `[tools]\n${pretty(request.tools)}\n` : "";
  return tools + request.messages.map(plainMessage).join("");
}

function Sent({ detail }: { detail: RequestDetail }) {
  const { request, response, error, pinned } = detail;
  const noteOf = (index: number) => (pinned && index >= pinned.insertedAt && index < pinned.insertedAt + pinned.count ? <span class="badge">pinned context</span> : undefined);
  return (
    <>
      {error && (
        <p class="problem">
          <strong>{error.code}</strong> {error.message}
        </p>
      )}
      <section aria-label="Reply">
        <h3>Reply</h3>
        {response?.message ? <MessageCard item={{ kind: "message", message: response.message }} /> : <p class="dim">{error ? "No reply." : "The reply has not arrived."}</p>}
      </section>
      <section aria-label="Messages">
        <h3>{plural(request.messages.length, "message")} sent</h3>
        <MessageList messages={request.messages} noteOf={noteOf} />
      </section>
      <section aria-label="Tools">
        <h3>{plural(request.tools?.length ?? 0, "tool")} offered</h3>
        {(request.tools ?? []).map((tool, at) => (
          <Tool key={at} tool={tool} />
        ))}
      </section>
      <section aria-label="Parameters">
        <h3>Parameters and raw data</h3>
        <JsonTree name="parameters" value={request.parameters ?? {}} />
        <JsonTree name="raw" value={detail} open={false} />
      </section>
    </>
  );
}

function Tool({ tool }: { tool: Json }) {
  const { name, description } = (tool ?? {}) as { name?: string; description?: string };
  return (
    <details class="call">
      <summary>
        <code>{name ?? "tool"}</code> <span class="dim">{description}</span>
      </summary>
      <JsonTree value={tool} />
    </details>
  );
}

