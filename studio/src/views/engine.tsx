// Engine: the figures of `/metrics` as small charts over the last 15 minutes, and runs by status.

import { useState } from "preact/hooks";
import { count, duration, time } from "../ui/format";
import { usePolling } from "../ui/polling";
import { Loaded, useResource } from "../ui/resource";
import { look } from "../ui/status";
import { href } from "../router";
import type { RecentMetrics } from "../types";
import { type Chart, chartsOf, lastOf } from "../data/charts";
import { bytes } from "../ui/bytes";

const STATUSES = ["RUNNING", "WAITING", "PAUSED", "UNFINISHED", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"];

export function Engine() {
  const resource = useResource<RecentMetrics>("/metrics/recent");
  usePolling(resource, 5000);
  const [text, setText] = useState("");
  return (
    <div class="view engine">
      <h1>Engine</h1>
      <Loaded resource={resource}>
        {(metrics) => {
          const charts = chartsOf(metrics);
          const shown = charts.filter((chart) => chart.title.toLowerCase().includes(text.toLowerCase()) || chart.name.includes(text.toLowerCase()));
          return (
            <>
              <RunsByStatus metrics={metrics} />
              <div class="field inline">
                <label for="metric-filter">Filter</label>
                <input id="metric-filter" type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
                <span class="dim" role="status">
                  {shown.length} of {count(charts.length)} figures, {duration(metrics.intervalMs)} between two points
                </span>
              </div>
              {charts.length === 0 && <p class="empty">The service has not measured anything yet.</p>}
              <div class="charts">
                {shown.map((chart) => (
                  <SmallChart key={chart.name} chart={chart} from={metrics.from} interval={metrics.intervalMs} />
                ))}
              </div>
            </>
          );
        }}
      </Loaded>
    </div>
  );
}

function RunsByStatus({ metrics }: { metrics: RecentMetrics }) {
  const totals = new Map<string, number>();
  for (const series of metrics.series) {
    const status = series.labels.status;
    if (!status || !/^pirn_runs/.test(series.name)) continue;
    totals.set(status.toUpperCase(), (totals.get(status.toUpperCase()) ?? 0) + (lastOf(series.points) ?? 0));
  }
  const active = metrics.series.filter((series) => /^pirn_runs_(active|running)$/.test(series.name)).reduce((sum, series) => sum + (lastOf(series.points) ?? 0), 0);
  if (active > 0 || totals.size === 0) totals.set("RUNNING", active);
  return (
    <ul class="tiles" aria-label="Runs by status">
      {STATUSES.filter((status) => totals.has(status)).map((status) => {
        const { symbol, tone, word } = look(status);
        return (
          <li key={status}>
            <a class={`tile ${tone}`} href={href(["runs"], { status })}>
              <span class="figure">{count(totals.get(status))}</span>
              <span>
                <span aria-hidden="true">{symbol}</span> {word}
              </span>
            </a>
          </li>
        );
      })}
    </ul>
  );
}

const WIDTH = 280;
const HEIGHT = 64;

function formatted(value: number | null | undefined, unit: string | undefined): string {
  if (value === null || value === undefined) return "–";
  if (unit === "seconds" || unit === "s") return duration(value * 1000);
  if (unit === "bytes" || unit === "By") return bytes(value);
  const rounded = Math.abs(value) >= 100 || Number.isInteger(value) ? Math.round(value) : Number(value.toPrecision(3));
  return count(rounded) + (unit === "per second" ? " /s" : "");
}

function SmallChart({ chart, from, interval }: { chart: Chart; from: number; interval: number }) {
  const { lines, unit } = chart;
  const highest = Math.max(...lines.flatMap((line) => line.points.map((point) => point ?? 0)), 0);
  const length = Math.max(1, ...lines.map((line) => line.points.length));
  const x = (at: number) => (length === 1 ? WIDTH : (WIDTH * at) / (length - 1));
  const y = (value: number) => HEIGHT - 2 - (highest > 0 ? ((HEIGHT - 6) * value) / highest : 0);
  const latest = lines.map((line) => ({ label: line.label, value: lastOf(line.points) })).sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
  const total = latest.every((one) => one.value === undefined) ? undefined : latest.reduce((sum, one) => sum + (one.value ?? 0), 0);
  const summary = latest.map((one) => `${one.label || chart.title} ${formatted(one.value, unit)}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <span class="title" title={chart.name}>
          {chart.title}
        </span>
        <strong>{chart.isSum ? formatted(total, unit) : formatted(latest[0]?.value, unit)}</strong>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${chart.title}, now: ${summary}; highest ${formatted(highest, unit)}`}>
        <line class="axis" x1="0" x2={WIDTH} y1={HEIGHT - 1} y2={HEIGHT - 1} />
        {lines.map((line, at) => (
          <path key={line.label} class={`series series-${at % 6}`} d={pathOf(line.points, x, y)} />
        ))}
      </svg>
      <div class="scale dim" aria-hidden="true">
        <span>{time(from)}</span>
        <span>highest {formatted(highest, unit)}</span>
        <span>{time(from + (length - 1) * interval)}</span>
      </div>
      {(lines.length > 1 || latest[0]?.label) && (
        <ul class="legend">
          {latest.slice(0, 6).map((one) => (
            <li key={one.label}>
              <span class={`key series-${lines.findIndex((line) => line.label === one.label) % 6}`} aria-hidden="true" />
              {one.label}: {formatted(one.value, unit)}
            </li>
          ))}
          {latest.length > 6 && <li class="dim">and {latest.length - 6} more</li>}
        </ul>
      )}
    </figure>
  );
}

/** Path of the points; a missing point interrupts the line. */
function pathOf(points: (number | null)[], x: (at: number) => number, y: (value: number) => number): string {
  let path = "";
  let isOpen = false;
  points.forEach((point, at) => {
    if (point === null) {
      isOpen = false;
      return;
    }
    path += `${isOpen ? "L" : "M"}${x(at).toFixed(1)} ${y(point).toFixed(1)}`;
    // A single point would be invisible.
    if (!isOpen && (points[at + 1] ?? null) === null) path += "h1";
    isOpen = true;
  });
  return path;
}
