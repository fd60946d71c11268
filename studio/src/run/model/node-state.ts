// State of a node of a drawing at the cursor, over all threads that execute its workflow, or over one of them.

import type { Definition, JsonObject } from "../../types";
import { duration } from "../../ui/text/format";
import { joinShort } from "./digest";
import { countUpTo, type Fork, isOpenAt, type Join, type RunModel, statusAt, type Thread, type Visit } from "./model";

export interface NodeState {
  /** PENDING if no thread has reached it. */
  status: string;
  /** Latest attempt of each entry into the node, in the order of the entries. */
  entries: Visit[];
  /** Several threads have entered it. */
  isShared: boolean;
  /** How many of the entries have each status, if there are several. */
  counts?: { [status: string]: number };
  retries: number;
  /** A short text: the join's count, items of a MAP, the iteration, or what it waits for. */
  note?: string;
}

/** The thread in which a called, triggered or mapped workflow was started for a thread: branches of its forks belong to it. */
export function rootOf(model: RunModel, thread: Thread): Thread {
  let at = thread;
  for (let parent; at.kind === "branch" && at.parent !== undefined; at = parent) {
    parent = model.threads.get(at.parent);
    if (!parent || parent.workflow !== at.workflow) break;
  }
  return at;
}

/** Status of an entry at a sequence: a running one may wait or be paused. */
export function visitStatus(model: RunModel, visit: Visit, sequence: number): string {
  const status = statusAt(visit, sequence);
  if (status !== "RUNNING") return status;
  const thread = model.threads.get(visit.thread);
  if (thread?.pauses.some((pause) => isOpenAt(pause, sequence))) return "PAUSED";
  if (visit.type === "WAIT" || visit.type === "USER_INTERACTION") return "WAITING";
  if (model.questions.some((question) => question.thread === visit.thread && isOpenAt(question, sequence))) return "WAITING";
  return "RUNNING";
}

/** Status of a thread at a sequence: one that runs has the status of its node if that waits. */
export function threadStatus(model: RunModel, thread: Thread, sequence: number): string {
  const status = statusAt(thread, sequence);
  const visit = status === "RUNNING" ? thread.visits[countUpTo(thread.visits, sequence, (one) => one.start) - 1] : undefined;
  return visit && isOpenAt(visit, sequence) ? visitStatus(model, visit, sequence) : status;
}

export function nodeState(model: RunModel, workflow: string, node: string, sequence: number, root?: string): NodeState {
  const list: Visit[] = [];
  let retries = 0;
  for (const visit of model.visitsAt(workflow, node, sequence)) {
    if (root !== undefined && rootOf(model, model.threads.get(visit.thread)!).id !== root) continue;
    if (visit.attempt > 1) retries++;
    if (visit.retriedAt === undefined || visit.retriedAt > sequence) list.push(visit);
  }
  if (list.length === 0) return { status: "PENDING", entries: [], isShared: false, retries: 0 };
  const counts: { [status: string]: number } = {};
  for (const visit of list) {
    const status = visitStatus(model, visit, sequence);
    counts[status] = (counts[status] ?? 0) + 1;
  }
  // What needs attention first; a loop shows its latest round.
  const isShared = list.some((visit) => visit.thread !== list[0]!.thread);
  const latest = visitStatus(model, list.at(-1)!, sequence);
  const status = !isShared ? latest : (["WAITING", "PAUSED", "RUNNING", "FAILED", "COMPLETED"].find((one) => counts[one]) ?? latest);
  return { status, entries: list, isShared, counts: list.length > 1 ? counts : undefined, retries, note: noteOf(model, list, sequence) };
}

function noteOf(model: RunModel, entries: Visit[], sequence: number): string | undefined {
  const last = entries.at(-1)!;
  switch (last.type) {
    case "JOIN": {
      const join = joinOf(model, last);
      return join && joinShort(join, sequence);
    }
    case "LOOP_START":
      return `iteration ${last.round + 1}`;
    case "WAIT":
      return isOpenAt(last, sequence) ? "waits" : `waited ${duration((last.endAt ?? 0) - last.startAt)}`;
    case "USER_INTERACTION":
      return isOpenAt(last, sequence) ? "waits for an answer" : undefined;
    default:
      return undefined;
  }
}

export const joinOf = (model: RunModel, visit: Visit): Join | undefined =>
  model.joins.find((join) => join.thread === visit.thread && join.node === visit.node && join.start >= visit.start && (visit.end === undefined || join.start <= visit.end));
export const forkOf = (model: RunModel, visit: Visit): Fork | undefined =>
  model.forks.find((fork) => fork.thread === visit.thread && fork.node === visit.node && fork.start >= visit.start && (visit.type !== "MAP" || visit.end === undefined || fork.start <= visit.end));

export const nodeConfig = (definitions: Definition[] | undefined, workflow: string, node: string): JsonObject | undefined =>
  definitions?.find((one) => one.id === workflow)?.nodes.find((one) => one.id === node)?.config;
export function threshold(definitions: Definition[] | undefined, join: Join, workflow: string): number | undefined {
  const config = nodeConfig(definitions, workflow, join.node);
  const value = config?.threshold ?? (config?.join as JsonObject | undefined)?.threshold;
  return typeof value === "number" ? value : undefined;
}

/** First sequence at which a thread took each transition of the drawings: by `workflow`, then `from>to`. */
export function transitions(model: RunModel): Map<string, number> {
  const first = new Map<string, number>();
  const add = (workflow: string, from: string, to: string, sequence: number) => {
    const key = `${workflow}\n${from}\n${to}`;
    const known = first.get(key);
    if (known === undefined || sequence < known) first.set(key, sequence);
  };
  const joinAfter = new Map<string, string>();
  for (const fork of model.forks) for (const branch of fork.branches) if (!fork.isMap && fork.join) joinAfter.set(branch.id, fork.join.node);
  for (const thread of model.threadList) {
    let before: Visit | undefined;
    for (const visit of thread.visits) {
      if (!before && thread.kind === "branch" && thread.startedBy) add(visit.workflow, thread.startedBy, visit.node, visit.start);
      // After a FORK, its branches take the edges; the thread itself waits at the JOIN.
      if (before && before.type !== "FORK" && (before.node !== visit.node || visit.attempt === 1)) add(visit.workflow, before.node, visit.node, visit.start);
      before = visit;
    }
    const join = joinAfter.get(thread.id);
    if (before && join && thread.status === "COMPLETED") add(thread.workflow, before.node, join, thread.end!);
  }
  return first;
}
