// Which model request of the API belongs to which request among the events.

import type { RequestItem } from "../../types";
import type { Call } from "./model";
import type { OpenRun } from "./open";

/** The requests that were sent, in order: those that exceeded the limit and were held back are not. */
function sentCalls(run: OpenRun): Call[] {
  return run.model.calls.filter((call) => call.kind === "model" && !call.held);
}

/** Pairs the requests of each thread in their order. */
export function pairs(run: OpenRun): Map<string, Call> {
  const items = run.requests.value ?? [];
  const byThread = new Map<string, RequestItem[]>();
  for (const item of items) byThread.set(item.threadId, [...(byThread.get(item.threadId) ?? []), item]);
  const found = new Map<string, Call>();
  const next = new Map<string, number>();
  for (const call of sentCalls(run)) {
    const list = byThread.get(call.thread) ?? [];
    let at = next.get(call.thread) ?? 0;
    // Retries of a node and requests without an event (those of a compression) may lie between.
    while (at < list.length && call.node && list[at]!.nodeId !== call.node) at += 1;
    if (at < list.length) found.set(list[at]!.effectId, call);
    next.set(call.thread, at + 1);
  }
  return found;
}

/** The API's request that starts with an event; undefined if the API does not have it. */
export function requestAt(run: OpenRun, thread: string, sequence: number): RequestItem | undefined {
  for (const [effectId, call] of pairs(run)) {
    if (call.thread === thread && call.start === sequence) return run.requests.value?.find((item) => item.effectId === effectId);
  }
  return undefined;
}
