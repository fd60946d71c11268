// The run that the page shows: its model, which follows the event stream, and what the API adds to it. Panes receive it as `run`.

import { parse } from "../../data/json";
import { batch, computed, type Signal, signal } from "../../reactive";
import { exportedEvents, get, isExport, isOrder, Problem, query, stream, type Sent } from "../../api";
import type { Definition, Drawing, Report, RequestItem, RunEvent, Step, ThreadItem } from "../../types";
import { onChanges } from "../../ui/changes";
import { toProblem } from "../../ui/resource";
import { type Base, gapsOf } from "./base";
import { Cursor } from "./cursor";
import { type Gap, RunModel, shiftBy } from "./model";

/** The steps of a run, and for each the sequence of its last event. */
export interface Steps {
  list: Step[];
  ends: number[];
}

/** Statuses of runs that cannot be resumed. */
export const FINAL = new Set(["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]);

const PAGE = 1000;
/** Milliseconds between two drawings of a long run, and from a change until the API is asked again. */
const MAX_DELAY = 400;
const REFRESH = 2000;

export class OpenRun {
  model = new RunModel();
  /** Changes when the model has changed, at most once for each frame. Read it in whatever draws the model. */
  readonly version = signal(0);
  readonly lastSequence = signal(0);
  /** The stream has ended: the run raises no more events. */
  readonly ended = signal(false);
  /** All events that existed when the run was opened are in the model. */
  readonly loaded = signal(false);
  readonly problem = signal<Problem | undefined>(undefined);

  /** The run and the step from which this run was forked. */
  readonly base = signal<Base | undefined>(undefined);
  readonly report = signal<Report | undefined>(undefined);
  readonly steps = signal<Steps | undefined>(undefined);
  readonly threads = signal<ThreadItem[] | undefined>(undefined);
  readonly requests = signal<RequestItem[] | undefined>(undefined);
  readonly drawings = signal<{ [workflow: string]: Drawing } | undefined>(undefined);
  readonly definitions = signal<Definition[] | undefined>(undefined);

  readonly cursor = new Cursor(this);
  /** Status of the run: from the end of the stream or the report, otherwise RUNNING or what it waits for. */
  readonly status = computed(() => {
    void this.version.value;
    const main = this.model.threadList[0];
    const reported = this.report.value?.status;
    if (this.#endStatus.value) return this.#endStatus.value;
    if (main?.status && this.ended.value) return main.status;
    if ((reported ?? "RUNNING") === "RUNNING" && this.model.questions.some((question) => question.end === undefined) && onlyWaits(this.model)) return "WAITING";
    return reported ?? "RUNNING";
  });

  readonly #endStatus = signal<string | undefined>(undefined);
  readonly #controller = new AbortController();
  #publishing: ReturnType<typeof setTimeout> | undefined;
  #frame = 0;
  #refreshTimer: ReturnType<typeof setTimeout> | undefined;

  /** The page has all data of the run, which is exported or an explored order: it is read once, and cannot be changed. */
  readonly isFixed: boolean;
  /** The run is an explored order. It has no state of a step other than the last. */
  readonly isOrder: boolean;

  constructor(readonly id: string) {
    this.isOrder = isOrder(id);
    this.isFixed = isExport || this.isOrder;
    if (this.isFixed) this.#openExport();
    else {
      void this.#follow();
      void this.refresh();
    }
  }

  close() {
    this.#controller.abort();
    this.#unwatch?.();
    clearTimeout(this.#publishing);
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#refreshTimer);
  }

  path(rest = ""): string {
    return `/runs/${encodeURIComponent(this.id)}${rest}`;
  }

  /**
   * Loads again what the events do not contain: after an action, at the end, and while events arrive. The service replays the run for this, so
   * the next time is later if it takes long.
   */
  async refresh() {
    clearTimeout(this.#refreshTimer);
    this.#refreshTimer = this.#hasNews = undefined;
    const start = Date.now();
    const { drawings } = this;
    const isDrawn = drawings.value && this.model.threadList.every((thread) => drawings.value![thread.workflow]);
    const loads = [this.#loadReport(), this.#loadSteps(), this.#loadThreads(), this.#loadRequests()];
    if (!isDrawn) loads.push(this.#load<{ drawings: { [workflow: string]: Drawing } }, { [workflow: string]: Drawing }>("/drawings", drawings, (answer) => answer.drawings));
    if (!isDrawn) loads.push(this.#load<{ workflows: Definition[] }, Definition[]>("/definition", this.definitions, (answer) => answer.workflows));
    // Only the report is necessary. Without the rest the page shows less: without a store, a run has no steps, and the cursor moves by events.
    const ends = await Promise.allSettled(loads);
    this.#pause = Math.max(REFRESH, 4 * (Date.now() - start));
    const isIncomplete = ends.some((end) => end.status === "rejected" && isTemporary(end.reason));
    if (isIncomplete && !this.#controller.signal.aborted) this.#refreshLater();
  }

  async #load<A, T = A>(rest: string, into: Signal<T | undefined>, take: (answer: A) => T = (answer) => answer as unknown as T) {
    into.value = take(await get<A>(this.path(rest), this.#controller.signal));
  }

  async #loadReport() {
    try {
      await this.#load("", this.report);
    } catch (error) {
      if (!this.#controller.signal.aborted) this.problem.value = toProblem(error);
      throw error;
    }
  }

  async #loadSteps() {
    const all = await this.#pages<Step>("/steps", (page) => page.steps as Step[]);
    // The entry for the end has the number of the last step: it would replace the events of that step.
    const list = all.filter((step) => step.kind !== "end");
    await this.#loadGaps(list);
    this.#stepList = list.map((step) => ({ ...step, at: this.model.shift(step.at) }));
    this.#alignSteps();
  }

  #gaps: Gap[] | undefined;

  /** Reads once whether the run is a fork, and then folds its events again without the time between it and its base. */
  async #loadGaps(steps: Step[]) {
    if (this.#gaps) return;
    try {
      const { base, gaps } = await gapsOf(this.id, steps, this.#controller.signal);
      // Another refresh was faster.
      if (this.#gaps) return;
      this.#gaps = gaps;
      this.base.value = base;
    } catch (error) {
      if (isTemporary(error) || this.#controller.signal.aborted) throw error;
      // The service has no store, or the base was deleted.
      this.#gaps ??= [];
      return;
    }
    if (this.#gaps.length === 0) return;
    const { events, missed } = this.model;
    this.model = new RunModel(shiftBy(this.#gaps));
    this.model.missed = missed;
    for (const event of events) this.model.apply(event);
    this.model.setParents(this.threads.value ?? []);
    this.model.setRequests(this.requests.value ?? []);
    this.#changed();
  }

  async #loadThreads() {
    this.threads.value = await this.#pages<ThreadItem>("/threads", (page) => page.threads as ThreadItem[]);
    this.model.setParents(this.threads.value);
    this.#changed();
  }

  async #loadRequests() {
    this.requests.value = await this.#pages<RequestItem>("/requests", (page) => page.requests as RequestItem[]);
    this.model.setRequests(this.requests.value);
    this.#changed();
  }

  async #pages<T>(rest: string, items: (page: { [name: string]: unknown }) => T[]): Promise<T[]> {
    const all: T[] = [];
    for (let after: number | undefined, isLast = false; !isLast; ) {
      const page = await get<{ next?: number | null; [name: string]: unknown }>(query(this.path(rest), { after, limit: PAGE }), this.#controller.signal);
      for (const item of items(page)) all.push(item);
      after = page.next ?? undefined;
      isLast = after === undefined || this.isFixed;
    }
    return all;
  }

  #stepList: Step[] | undefined;
  /** Events have arrived since the last refresh. */
  #hasNews: true | undefined;
  #pause = REFRESH;

  #alignSteps() {
    if (this.#stepList && this.loaded.value) this.steps.value = { list: this.#stepList, ends: stepEnds(this.#stepList, this.model.events) };
  }

  #openExport() {
    try {
      for (const event of exportedEvents(this.path("/events"))) this.model.apply(event);
    } catch (error) {
      this.problem.value = toProblem(error);
    }
    batch(() => {
      this.ended.value = true;
      this.loaded.value = true;
      this.lastSequence.value = this.model.lastSequence;
      this.version.value++;
    });
    void this.refresh();
  }

  /** Follows the run again after its stream has ended: a parked run that is resumed raises further events. */
  follow() {
    if (!this.ended.value) return;
    this.#unwatch?.();
    batch(() => {
      this.ended.value = false;
      this.#endStatus.value = undefined;
    });
    void this.#follow();
  }

  #unwatch: (() => void) | undefined;

  /** Waits until another client resumes the run. The stream of changes is open only while that of the run is not: browsers limit connections. */
  #watch() {
    if (FINAL.has(this.status.value)) return;
    this.#unwatch = onChanges((changed) => {
      const own = changed.find((run) => run.runId === this.id);
      if (own ? own.status === "RUNNING" || (own.lastSequence ?? 0) > this.model.lastSequence : changed.length === 0) this.follow();
    });
  }

  async #follow() {
    const { lastSequence } = this.model;
    await stream(this.path("/events"), {
      after: lastSequence > 0 ? String(lastSequence) : undefined,
      signal: this.#controller.signal,
      onEvents: (events) => this.#receive(events),
      onProblem: (problem) => (this.problem.value = problem),
      onEnd: () => {
        clearTimeout(this.#publishing);
        this.ended.value = true;
        this.#publish();
        void this.refresh();
        this.#watch();
      },
    });
  }

  #receive(events: Sent[]) {
    for (const sent of events) {
      if (sent.event === "end") {
        this.#endStatus.value = (parse(sent.data) as { status: string }).status;
      } else if (sent.event === "missed") {
        this.model.missed += (parse(sent.data) as { count?: number }).count ?? 0;
      } else if (sent.data) {
        this.model.apply(parse(sent.data) as RunEvent);
      }
    }
    this.problem.value = undefined;
    this.#hasNews = true;
    this.#changed();
  }

  /** Publishes the model: at the next frame, or later for a long run, whose panes take longer to draw. */
  #changed() {
    if (this.#publishing !== undefined) return;
    const wait = this.ended.value ? 0 : Math.min(MAX_DELAY, this.model.events.length / 100);
    // A hidden page draws no frames, but its title and its tests need the state.
    this.#publishing = setTimeout(() => (document.hidden ? this.#publish() : (this.#frame = requestAnimationFrame(() => this.#publish()))), wait);
  }

  #publish() {
    this.#publishing = undefined;
    if (this.#controller.signal.aborted) return;
    batch(() => {
      this.loaded.value = true;
      this.lastSequence.value = this.model.lastSequence;
      this.version.value++;
      this.#alignSteps();
    });
    if (this.#hasNews && !this.ended.value) this.#refreshLater();
  }

  #refreshLater() {
    this.#refreshTimer ??= setTimeout(() => void this.refresh(), this.#pause);
  }
}

/** The service is busy, or does not answer. */
const isTemporary = (error: unknown): boolean => error instanceof Problem && [0, 429, 503].includes(error.status);

/** No thread does anything but wait for people, branches and called workflows. */
function onlyWaits(model: RunModel): boolean {
  return model.threadList.every((thread) => {
    const visit = thread.end === undefined ? thread.visits.at(-1) : undefined;
    return !visit || visit.end !== undefined || WAITS.has(visit.type) || model.questions.some((question) => question.thread === thread.id && question.end === undefined);
  });
}
const WAITS = new Set(["JOIN", "SUBGRAPH", "MAP", "WAIT", "USER_INTERACTION"]);

/**
 * The sequence of the last event of each step. Where the service does not name it: an event has the time of its step, and steps of
 * the same time are told apart by their threads.
 */
export function stepEnds(steps: Step[], events: RunEvent[]): number[] {
  const ends: number[] = [];
  let at = 0;
  for (let i = 0; i < steps.length; i++) {
    const step = steps[i]!;
    const next = steps[i + 1];
    if (step.sequence !== undefined) {
      ends.push(step.sequence);
      continue;
    }
    while (at < events.length) {
      const event = events[at]!;
      if (next && event.timestamp >= next.at && (event.timestamp > step.at || event.threadId === next.threadId) && next.at >= step.at) break;
      at++;
    }
    ends.push(events[at - 1]?.sequence ?? 0);
  }
  return ends;
}
