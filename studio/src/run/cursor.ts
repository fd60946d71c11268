// The shared cursor of a run: a position in its events, and the selected node and thread. Every pane shows the run at the cursor and
// moves it.

import { batch, computed, signal } from "../reactive";
import type { OpenRun } from "./open";

export class Cursor {
  /** Sequence of the event up to which the panes show the run; undefined follows the newest event. */
  readonly sequence = signal<number | undefined>(undefined);
  readonly node = signal<string | undefined>(undefined);
  readonly thread = signal<string | undefined>(undefined);
  /** Workflow of the selected node if no thread is selected. */
  readonly workflow = signal<string | undefined>(undefined);

  constructor(private readonly run: OpenRun) {}

  /** The position as a number: all events up to it have happened. */
  readonly position = computed(() => this.sequence.value ?? this.run.lastSequence.value);
  /** The last step that has happened at the position, for `?at=` and for forks; undefined if the steps are not loaded or the run has none yet. */
  readonly step = computed(() => {
    const steps = this.run.steps.value;
    return steps && steps.list[countStepsAt(steps.ends, this.position.value) - 1]?.step;
  });

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
      const now = countStepsAt(ends, at);
      const inside = now === 0 || ends[now - 1] !== at;
      const next = delta < 0 && inside ? now + delta + 1 : now + delta;
      this.sequence.value = next > ends.length ? undefined : ends[Math.max(0, next - 1)];
    } else {
      const next = at + delta;
      this.sequence.value = next >= model.lastSequence ? undefined : Math.max(1, next);
    }
  }
}

/** How many steps have raised all their events at a sequence. */
function countStepsAt(ends: number[], sequence: number): number {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle]! <= sequence) low = middle + 1;
    else high = middle;
  }
  return low;
}
