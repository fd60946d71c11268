// The facts of a run that its strip shows, from the model and the API's report.

import type { Report, RequestItem, RunEvent, Usage } from "../../types";
import { count, duration, money, plural } from "../../ui/text/format";
import type { Join, Question, RunModel, Thread, Visit } from "./model";

export interface Digest {
  /** The outcome and its cause in one sentence. */
  cause: string;
  tokens?: number;
  cost?: string;
  slowest?: Where & { ms: number };
  dearest?: Where & { amount: string };
  retries: Visit[];
  questions: Question[];
}

interface Where {
  label: string;
  sequence: number;
  node?: string;
  thread?: string;
}

/** `now` is the time up to which running items count. */
export function digest(model: RunModel, report: Report | undefined, requests: RequestItem[] | undefined, now: number): Digest {
  return {
    cause: cause(model, report),
    tokens: report?.tokens?.spent?.total ?? spent(model),
    cost: report?.cost ? money(report.cost as never) : undefined,
    slowest: slowest(model, now),
    dearest: dearest(model, requests),
    retries: model.visits.filter((visit) => visit.attempt > 1),
    questions: model.questions.filter((question) => question.end === undefined),
  };
}

const usageOf = (visit: Visit): Usage | undefined => (visit.output as { usage?: Usage } | null | undefined)?.usage;
const fromModel = (visit: Visit): boolean => visit.type === "LLM" && visit.status === "COMPLETED";

function spent(model: RunModel): number | undefined {
  let sum = 0;
  for (const visit of model.visits) if (fromModel(visit)) sum += usageOf(visit)?.total ?? 0;
  return sum || undefined;
}

/** A name or message within a sentence: text that is written from right to left does not reorder its surroundings. */
const isolated = (text: string): string => (/[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufefc]/.test(text) ? `\u2068${text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "")}\u2069` : text);

const sentence = (text: string): string => (/[.!?]$/.test(text) ? text : `${text}.`);

function cause(model: RunModel, report: Report | undefined): string {
  const main = model.threadList[0];
  if (!main) return report?.error ? sentence(`${report.error.code}: ${isolated(report.error.message)}`) : "The run has not started.";
  if (main.status === "COMPLETED") return completed(model, main);
  if (main.status) return failed(model, main);
  return waiting(model);
}

function completed(model: RunModel, main: Thread): string {
  const last = main.visits.at(-1);
  const decided = model.joins.findLast((join) => join.fork && cancelledBranches(join).length > 0);
  const extra = decided ? ` ${isolated(decided.node)} was decided with ${joinShort(decided)}; ${plural(cancelledBranches(decided).length, "branch", "branches")} cancelled.` : "";
  return `Completed at ${last ? isolated(last.node) : "the end"} after ${plural(model.visits.length, "node")} in ${plural(model.threadList.length, "thread")}.${extra}`;
}

function failed(model: RunModel, main: Thread): string {
  // The first failure in time is the cause; later ones follow from it.
  const error = main.error as Chain | undefined;
  const root = deepest(error);
  const where = root?.nodeId ? ` at ${isolated(root.nodeId)}` : "";
  const word = main.status === "CANCELLED" ? "Cancelled" : main.status === "TIMEOUT" ? "Timed out" : "Failed";
  const last = model.visits.findLast((visit) => visit.node === root?.nodeId && visit.status === "FAILED" && (!root?.threadId || visit.thread === root.threadId));
  const attempts = last?.attempt ?? 1;
  const times = attempts > 1 ? ` after ${attempts} attempts` : "";
  return root ? sentence(`${word}${where}${times}: ${root.code}, ${isolated(root.message)}`) : `${word}.`;
}

interface Chain {
  code: string;
  message: string;
  nodeId?: string;
  threadId?: string;
  cause?: Chain;
}

function deepest(error: Chain | undefined): Chain | undefined {
  let at = error;
  while (at?.cause) at = at.cause;
  return at;
}

function waiting(model: RunModel): string {
  const open = model.questions.filter((question) => question.end === undefined);
  if (open.length > 0) return `Waits for ${plural(open.length, "answer")}: ${isolated(open[0]!.question.split("\n")[0]!)}`;
  const running = model.threadList.filter((thread) => thread.end === undefined).flatMap((thread) => thread.visits.at(-1) ?? []);
  const busy = running.filter((visit) => visit.end === undefined && visit.type !== "JOIN" && visit.type !== "SUBGRAPH");
  const shown = (busy.length ? busy : running.filter((visit) => visit.end === undefined)).slice(0, 3).map((visit) => isolated(visit.node));
  return shown.length ? `Running: ${shown.join(", ")}${busy.length > 3 ? ` and ${busy.length - 3} more` : ""}.` : "Running.";
}

/** The thread other than the main thread that took longest, otherwise the slowest node. */
function slowest(model: RunModel, now: number): Digest["slowest"] {
  let best: Thread | undefined;
  const length = (thread: Thread) => (thread.endAt ?? now) - thread.startAt;
  for (const thread of model.threadList) if (thread.kind === "branch" && (!best || length(thread) > length(best))) best = thread;
  if (best) return { label: best.name, ms: length(best), sequence: best.start, node: best.visits[0]?.node, thread: best.id };
  let node: Visit | undefined;
  const took = (visit: Visit) => (visit.endAt ?? now) - visit.startAt;
  for (const visit of model.visits) if (!node || took(visit) > took(node)) node = visit;
  return node && { label: node.node, ms: took(node), sequence: node.start, node: node.node, thread: node.thread };
}

function dearest(model: RunModel, requests: RequestItem[] | undefined): Digest["dearest"] {
  const costOf = (item: RequestItem) => (typeof item.cost === "number" ? item.cost : (item.cost?.amount ?? item.cost?.cost ?? 0));
  const priced = requests?.filter((item) => costOf(item) > 0).toSorted((a, b) => costOf(b) - costOf(a))[0];
  if (priced) return { label: priced.nodeId, amount: money(priced.cost), sequence: model.sequenceAt(model.shift(priced.at)), node: priced.nodeId, thread: priced.threadId };
  let best: { visit: Visit; total: number } | undefined;
  for (const visit of model.visits) {
    const total = fromModel(visit) ? (usageOf(visit)?.total ?? 0) : 0;
    if (total > (best?.total ?? 0)) best = { visit, total };
  }
  return best && { label: best.visit.node, amount: `${count(best.total)} tokens`, sequence: best.visit.start, node: best.visit.node, thread: best.visit.thread };
}

export const completedBranches = (join: Join, sequence = Infinity): Thread[] =>
  (join.fork?.branches ?? []).filter((thread) => thread.status === "COMPLETED" && thread.end! <= Math.min(sequence, join.end ?? Infinity));
export const cancelledBranches = (join: Join, sequence = Infinity): Thread[] =>
  (join.fork?.branches ?? []).filter((thread) => thread.status === "CANCELLED" && thread.end! <= sequence);

const STRATEGIES: { [name: string]: string } = {
  ALL_COMPLETED: "all",
  ANY_COMPLETED: "any",
  ALL_FAILED: "all failed",
  ANY_FAILED: "any failed",
  SUCCESS_COUNT_THRESHOLD: "threshold",
};
export const strategyName = (strategy: string): string => STRATEGIES[strategy] ?? strategy.toLowerCase().replaceAll("_", " ");

/** "2 of 3, threshold 2". */
export function joinShort(join: Join, sequence = Infinity, threshold?: number): string {
  const of = join.fork?.paths.length ?? 0;
  const done = completedBranches(join, sequence).length;
  const strategy = strategyName(join.strategy);
  const needed = join.strategy === "SUCCESS_COUNT_THRESHOLD" ? (threshold ?? (join.status === "COMPLETED" && join.end !== undefined && join.end <= sequence ? done : undefined)) : undefined;
  return `${done} of ${of}, ${strategy}${needed === undefined ? "" : ` ${needed}`}`;
}

/** The decision of a join in sentences: how many of how many, who was cancelled when. */
export function joinStory(join: Join, model: RunModel, sequence = Infinity, threshold?: number): string[] {
  const lines = [`${joinShort(join, sequence, threshold)}${join.timeoutMs ? `, at most ${duration(join.timeoutMs)}` : ""}`];
  if (join.end === undefined || join.end > sequence) return [...lines, "waits for its branches"];
  lines.push(`decided after ${duration(join.endAt! - join.startAt)}${join.status === "COMPLETED" ? "" : ": the condition can no longer hold"}`);
  for (const thread of cancelledBranches(join, sequence))
    lines.push(`${thread.path ?? thread.id} cancelled at +${duration(thread.endAt! - model.startAt)}, after ${duration(thread.endAt! - thread.startAt)}`);
  return lines;
}

const COLLAPSES: { [reason: string]: string } = {
  compacted: "the conversation was compressed",
  prefix_changed: "the start of the request changed",
  unexpected: "the provider did not have the request's start",
  unreported: "the provider reports no figures",
};

/** Why a provider read little from its cache, and how much. */
export function collapseText({ reason, idleMs, expectedTokens, readTokens, cost }: RunEvent): string {
  const why = reason === "expired" ? `no request for ${duration(idleMs)}` : (COLLAPSES[reason] ?? reason);
  if (readTokens === undefined || readTokens === null) return why;
  return `${why}, ${count(readTokens)} of ${count(expectedTokens)} expected tokens were read from it${cost ? `, ${money(cost)} more` : ""}`;
}
