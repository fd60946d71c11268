// Charts from the recent metrics: one for each name, with a line for each combination of labels.

import { stringify } from "./json";
import type { RecentMetrics } from "../types";

export interface Line {
  label: string;
  points: (number | null)[];
}

export interface Chart {
  name: string;
  title: string;
  /** Unit of the points; `/s` for the rate of a counter. */
  unit: string;
  lines: Line[];
}

type Points = (number | null)[];

/** Returns the last known point. */
export const lastOf = (points: Points): number | undefined => points.findLast((point) => point !== null) ?? undefined;

/** Most lines of a chart; the smallest further ones are omitted. */
const MAX_LINES = 24;

/** Groups the series. A counter becomes its rate per second, and a histogram (its sum and count) the mean of its values. */
export function chartsOf({ series, intervalMs }: RecentMetrics): Chart[] {
  const charts = new Map<string, Chart>();
  for (const one of series) {
    const { name, labels } = one;
    const base = name.replace(/_(sum|count)$/, "");
    const other = series.find((two) => two.name === `${base}_count` && stringify(two.labels) === stringify(labels));
    const isMean = name === `${base}_sum` && other;
    if (name === `${base}_count` && series.some((two) => two.name === `${base}_sum`)) continue;
    const isCounter = one.kind === "counter" || /_total$/.test(name);
    const title = base.replace(/^pirn_|_total$/g, "").replaceAll("_", " ");
    const kind = isMean ? ", mean" : isCounter ? " per second" : "";
    const chart = charts.get(base) ?? { name: base, title: title + kind, unit: isCounter && !isMean ? "/s" : (one.unit ?? ""), lines: [] };
    charts.set(base, chart);
    const points = isMean ? quotients(increases(one.points), increases(other.points)) : isCounter ? increases(one.points).map((by) => by && (by * 1000) / intervalMs) : one.points;
    chart.lines.push({ label: Object.values(labels).join(", "), points });
  }
  for (const { lines } of charts.values()) {
    lines.sort((a, b) => (lastOf(b.points) ?? 0) - (lastOf(a.points) ?? 0));
    lines.splice(MAX_LINES);
  }
  return [...charts.values()];
}

/** Increase since the point before. A counter starts at 0: when it appears, and after a decrease, which is a restart. */
function increases(points: Points): Points {
  let last: number | null = 0;
  return points.map((point, at) => {
    const before = last;
    if (point !== null || before !== 0) last = point;
    if (point === null || before === null || at === 0) return null;
    return point >= before ? point - before : point;
  });
}

const quotients = (sums: Points, counts: Points): Points => sums.map((sum, at) => (sum !== null && counts[at] ? sum / counts[at] : null));
