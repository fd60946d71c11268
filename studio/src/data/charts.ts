// Charts from the recent metrics: one for each name, with a line for each combination of labels.

import type { RecentMetrics } from "../types";

export interface Line {
  label: string;
  points: (number | null)[];
}

export interface Chart {
  name: string;
  title: string;
  /** Unit of the points: that of the metric, or `per second` for a counter. */
  unit?: string;
  lines: Line[];
  /** True if the lines are parts of a whole. */
  isSum: boolean;
}

/** Returns the last known point. */
export function lastOf(points: (number | null)[]): number | undefined {
  return points.findLast((point) => point !== null) ?? undefined;
}

/** Most lines of a chart; the smallest further ones are omitted. */
const MAX_LINES = 24;

/** Groups the series. A counter (`_total`) becomes its rate per second; buckets of histograms are omitted. */
export function chartsOf({ series, intervalMs }: RecentMetrics): Chart[] {
  const charts = new Map<string, Chart>();
  for (const one of series) {
    if (one.name.endsWith("_bucket")) continue;
    const isCounter = /_(total|sum|count)$/.test(one.name);
    const chart = charts.get(one.name) ?? newChart(one.name, isCounter, one.unit);
    charts.set(one.name, chart);
    const label = Object.entries(one.labels).map(([name, value]) => (Object.keys(one.labels).length === 1 ? value : `${name}=${value}`)).join(", ");
    chart.lines.push({ label, points: isCounter ? rates(one.points, intervalMs) : one.points });
  }
  const found = [...charts.values()];
  for (const chart of found) {
    chart.lines.sort((a, b) => (lastOf(b.points) ?? 0) - (lastOf(a.points) ?? 0));
    chart.lines.splice(MAX_LINES);
  }
  return found;
}

function newChart(name: string, isCounter: boolean, unit: string | undefined): Chart {
  const title = name.replace(/^pirn_/, "").replace(/_total$/, "").replaceAll("_", " ");
  const chart: Chart = { name, title: isCounter ? `${title} per second` : title, lines: [], isSum: isCounter || !unit };
  const known = unit ?? (/_seconds/.test(name) ? "seconds" : /_bytes/.test(name) ? "bytes" : undefined);
  if (isCounter) chart.unit = "per second";
  else if (known) chart.unit = known;
  return chart;
}

/** Increase per second between two points; a decrease is a restart, from which the counter starts at 0. */
function rates(points: (number | null)[], intervalMs: number): (number | null)[] {
  return points.map((point, at) => {
    const before = at === 0 ? null : points[at - 1];
    if (point === null || before === null || before === undefined) return null;
    return ((point >= before ? point - before : point) * 1000) / intervalMs;
  });
}
