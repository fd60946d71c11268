// The event log of a run: filtered by type, thread, node and text, with the raw JSON of the selected event.

import { stringify } from "../data/json";
import { useMemo } from "preact/hooks";
import { route, setQuery } from "../router";
import type { RunEvent } from "../types";
import { brief, duration, iso } from "../ui/text/format";
import { JsonTree } from "../ui/text/json";
import { List } from "../ui/list";
import { useSettled } from "../ui/now";
import { countUpTo } from "./model/model";
import type { OpenRun } from "./model/open";

const COMMON = new Set(["type", "sequence", "timestamp", "runId", "workflowId", "threadId", "nodeId", "nodeType"]);

/** More threads than this are no list to choose from. */
const MANY = 200;

/** Characters of a summary: a line of a wide screen. More of them would only make the browser shape text that nobody sees. */
const LINE = 200;

function summary(event: RunEvent): string {
  let text = "";
  for (const [name, value] of Object.entries(event)) {
    if (COMMON.has(name) || value === null) continue;
    text += `${text && ", "}${name} ${brief(value, 120)}`;
    if (text.length > LINE) return text.slice(0, LINE);
  }
  return text;
}

export const toneOf = (type: string): string =>
  /FAILED|TIMED_OUT|OVERRUN|DROPPED/.test(type)
    ? "t-bad"
    : /CANCELLED|WITHDRAWN/.test(type)
      ? "t-off"
      : /LIMIT|WARNING|IN_DOUBT|INTERACTION|PAUSED/.test(type)
        ? "t-wait"
        : /STARTED|PREPARED/.test(type)
          ? "t-run"
          : "t-ok";

function matches(event: RunEvent, type: string, thread: string, node: string, text: string): boolean {
  if (type && event.type !== type) return false;
  if (thread && event.threadId !== thread && !event.threadId.endsWith(`.${thread}`)) return false;
  if (node && event.nodeId !== node) return false;
  return !text || stringify(event).toLowerCase().includes(text);
}

export function Events({ run }: { run: OpenRun }) {
  const version = run.version.value;
  const { model, cursor } = run;
  const query = route.value.query;
  const type = query.get("type") ?? "";
  const thread = query.get("inThread") ?? "";
  const node = query.get("inNode") ?? "";
  const text = (query.get("text") ?? "").toLowerCase();
  const original = (one: RunEvent) => model.originals.get(one.sequence) ?? one;
  const filtered = useMemo(() => {
    const all = model.events;
    return type || thread || node || text ? all.filter((event) => matches(event, type, thread, node, text)) : all;
  }, [version, type, thread, node, text]);
  const known = useMemo(() => {
    const types = new Set<string>();
    const nodes = new Set<string>();
    for (const event of model.events) {
      types.add(event.type);
      if (event.nodeId) nodes.add(event.nodeId);
    }
    return { types: [...types].sort(), nodes: [...nodes].sort() };
  }, [version]);
  const at = cursor.sequence.value;
  const selected = at === undefined ? -1 : countUpTo(filtered, at, (event) => event.sequence) - 1;
  const event = useSettled(filtered[selected]);
  const label = (id: string) => (id.startsWith(`${run.id}.`) ? id.slice(run.id.length) : id);
  return (
    <div class="events">
      <div class="filters">
        <label>
          Type
          <select value={type} onChange={(e) => setQuery({ type: e.currentTarget.value })}>
            <option value="">all types</option>
            {known.types.map((name) => <option value={name}>{name}</option>)}
          </select>
        </label>
        <label>
          Thread
          {model.threadList.length > MANY ? (
            <input placeholder="id" value={thread} onChange={(e) => setQuery({ inThread: e.currentTarget.value })} />
          ) : (
            <select value={thread} onChange={(e) => setQuery({ inThread: e.currentTarget.value })}>
              <option value="">all threads</option>
              {model.threadList.map((one) => (
                <option value={one.id}>
                  {label(one.id)} {one.name}
                </option>
              ))}
            </select>
          )}
        </label>
        <label>
          Node
          <select value={node} onChange={(e) => setQuery({ inNode: e.currentTarget.value })}>
            <option value="">all nodes</option>
            {known.nodes.map((name) => <option value={name}>{name}</option>)}
          </select>
        </label>
        <label>
          Text
          <input type="search" value={query.get("text") ?? ""} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
        </label>
        <span class="dim" role="status">
          {filtered.length === model.events.length ? `${filtered.length} events` : `${filtered.length} of ${model.events.length} events`}
          {model.missed > 0 && `; ${model.missed} dropped by the service`}
        </span>
      </div>
      <div class={`events-body ${event ? "two" : ""}`}>
        <List
          label="Events"
          class="mono"
          count={filtered.length}
          rowHeight={24}
          selected={selected}
          follow
          onSelect={(index) => {
            const one = filtered[index]!;
            cursor.move({ sequence: one.sequence, node: one.nodeId ?? undefined, thread: one.threadId });
          }}
          rowClass={(index) => (at !== undefined && filtered[index]!.sequence > at ? "later" : "")}
          row={(index) => {
            const one = filtered[index]!;
            return (
              <>
                <span class="col seq">{one.sequence}</span>
                <span class="col when" title={iso(original(one).timestamp)}>+{duration(one.timestamp - model.startAt)}</span>
                <span class="col where">{label(one.threadId)}</span>
                <span class={`col kind ${toneOf(one.type)}`}>{one.type}</span>
                <span class="col node">{one.nodeId ?? ""}</span>
                <span class="col rest">{summary(one)}</span>
              </>
            );
          }}
        />
        {event && (
          <section class="raw" aria-label="Selected event" tabIndex={0}>
            <h2>
              {event.type} <span class="dim">{event.sequence}</span>
            </h2>
            <JsonTree key={event.sequence} value={original(event)} />
          </section>
        )}
      </div>
    </div>
  );
}
