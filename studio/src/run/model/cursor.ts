// The shared cursor of a run: a position in its events, and the selected node and thread. Every pane shows the run at the cursor and
// moves it.

import { batch, computed, effect, signal } from "../../reactive";
import { countUpTo } from "./model";
import type { OpenRun } from "./open";

/** Milliseconds without a move after which the cursor rests. */
const REST = 80;

export class Cursor {
  /** Sequence of the event up to which the panes show the run; undefined follows the newest event. */
  readonly sequence = signal<number | undefined>(undefined);
  readonly node = signal<string | undefined>(undefined);
  readonly thread = signal<string | undefined>(undefined);
  /** Workflow of the selected node if no thread is selected. */
  readonly workflow = signal<string | undefined>(undefined);

  constructor(private readonly run: OpenRun) {
    effect(() => this.#rest(this.position.value));
  }

  /** The position as a number: all events up to it have happened. */
  readonly position = computed(() => this.sequence.value ?? this.run.lastSequence.value);
  /** The last step that has happened at the position, for `?at=` and for forks; undefined if the steps are not loaded or the run has none yet. */
  readonly step = computed(() => this.stepAt(this.position.value));
  /** The position once it rests: what takes long to draw follows it, and not each step of a scrub. */
  readonly resting = signal(0);
  #movedAt = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  #rest(position: number) {
    const isMoving = performance.now() - this.#movedAt < 2 * REST;
    this.#movedAt = performance.now();
    clearTimeout(this.#timer);
    if (isMoving) this.#timer = setTimeout(() => (this.resting.value = position), REST);
    else this.resting.value = position;
  }

  stepAt(sequence: number): number | undefined {
    const steps = this.run.steps.value;
    return steps && steps.list[countUpTo(steps.ends, sequence, (end) => end) - 1]?.step;
  }

  /** Moves to an event and selects what it concerns, if given. */
  move(to: { sequence?: number; node?: string; thread?: string }) {
    if ("sequence" in to) this.sequence.value = to.sequence;
    if ("node" in to) this.node.value = to.node;
    if ("thread" in to) this.thread.value = to.thread;
  }

  select(node: string | undefined, thread?: string, workflow?: string) {
    batch(() => {
      this.node.value = node;
      this.thread.value = thread;
      this.workflow.value = workflow ?? (thread === undefined ? undefined : this.run.model.threads.get(thread)?.workflow);
    });
  }

  /** The workflow of the selected node: that of the selected thread, or the run's. */
  workflowShown(): string {
    const { model } = this.run;
    return model.threads.get(this.thread.value ?? "")?.workflow ?? this.workflow.value ?? model.workflow;
  }

  /** Moves to the end of a step. */
  toStep(step: number) {
    const steps = this.run.steps.value;
    const index = steps?.list.findLastIndex((one) => one.step <= step) ?? -1;
    if (steps && index >= 0) this.sequence.value = steps.ends[index];
  }

  /** Moves by a number of steps, or of events if the steps are not known. */
  by(delta: number) {
    const { model, steps } = this.run;
    const at = this.position.value;
    if (steps.value && steps.value.ends.length > 0) {
      const ends = steps.value.ends;
      const now = countUpTo(ends, at, (end) => end);
      const inside = now === 0 || ends[now - 1] !== at;
      const next = delta < 0 && inside ? now + delta + 1 : now + delta;
      this.sequence.value = next > ends.length ? undefined : ends[Math.max(0, next - 1)];
    } else {
      const next = at + delta;
      this.sequence.value = next >= model.lastSequence ? undefined : Math.max(1, next);
    }
  }
}
