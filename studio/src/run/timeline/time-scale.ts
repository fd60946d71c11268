// The time axis of the timeline: idle time is folded to a fixed width, so that a wait of a day does not hide work of a second.

import type { RunModel } from "../model/model";

/** A part of the axis; `from` and `to` are positions on the folded axis in milliseconds. */
interface Part {
  start: number;
  end: number;
  from: number;
  to: number;
  folded: boolean;
}

const WAITS = new Set(["JOIN", "WAIT", "USER_INTERACTION", "SUBGRAPH", "MAP", "FORK", "START", "END"]);
const LEAST = 1000;

export class TimeScale {
  readonly parts: Part[] = [];
  readonly length: number;

  constructor(model: RunModel, end: number, fold: boolean) {
    const start = model.startAt;
    const last = Math.max(end, start + 1);
    const gaps = fold ? idle(model, start, last) : [];
    const idleTime = gaps.reduce((sum, [a, b]) => sum + b - a, 0);
    const width = Math.max(1, (last - start - idleTime) * 0.04);
    let at = start;
    let position = 0;
    const add = (until: number, folded: boolean) => {
      if (until <= at) return;
      const size = folded ? width : until - at;
      this.parts.push({ start: at, end: until, from: position, to: position + size, folded });
      position += size;
      at = until;
    };
    for (const [a, b] of gaps) {
      add(a, false);
      add(b, true);
    }
    add(last, false);
    this.length = Math.max(1, position);
  }

  /** Position of a time on the axis. */
  at(time: number): number {
    const { parts } = this;
    const part = parts[this.#find((one) => one.end < time)] ?? parts.at(-1);
    if (!part) return 0;
    const share = (Math.min(part.end, Math.max(part.start, time)) - part.start) / (part.end - part.start);
    return part.from + share * (part.to - part.from);
  }

  /** Time at a position of the axis. */
  timeAt(position: number): number {
    const { parts } = this;
    const part = parts[this.#find((one) => one.to < position)] ?? parts.at(-1);
    if (!part) return 0;
    const share = Math.min(1, Math.max(0, (position - part.from) / (part.to - part.from)));
    return part.start + share * (part.end - part.start);
  }

  #find(isBefore: (part: Part) => boolean): number {
    let low = 0;
    let high = this.parts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(this.parts[middle]!)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Intervals in which no call and no node other than a wait is running, if they are long compared with the rest. */
function idle(model: RunModel, start: number, last: number): [number, number][] {
  const busy: [number, number][] = [];
  for (const call of model.calls) busy.push([call.startAt, call.endAt ?? last]);
  for (const visit of model.visits) if (!WAITS.has(visit.type)) busy.push([visit.startAt, visit.end === undefined && visit.calls.length === 0 ? last : (visit.endAt ?? last)]);
  busy.sort((a, b) => a[0] - b[0]);
  const gaps: [number, number][] = [];
  let next = 0;
  let until = -Infinity;
  const between = (a: number, b: number) => {
    while (next < busy.length && busy[next]![0] <= a) until = Math.max(until, busy[next++]![1]);
    if (b - a < LEAST) return;
    // A tool call that waits for a person is idle, although its node runs.
    if (until <= a || model.questions.some((one) => one.startAt <= a && (one.endAt ?? last) >= b)) gaps.push([a, b]);
  };
  let at = start;
  for (const event of model.events) {
    if (event.timestamp <= at) continue;
    between(at, event.timestamp);
    at = event.timestamp;
  }
  if (last > at) between(at, last);
  const total = gaps.reduce((sum, [a, b]) => sum + b - a, 0);
  const rest = last - start - total;
  return gaps.filter(([a, b]) => b - a > Math.max(LEAST, rest * 0.1));
}

/** Distances of the axis' marks in milliseconds, for a readable number of marks. */
export function tickStep(range: number, marks: number): number {
  const rough = Math.max(1, range / Math.max(1, marks));
  const units = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];
  return units.find((unit) => unit >= rough) ?? Math.ceil(rough / 864e5) * 864e5;
}
