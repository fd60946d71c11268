// Engine: the figures of `/metrics` as small charts over the last 15 minutes, and runs by status.

import { useState } from "preact/hooks";
import { count, duration, time } from "../ui/text/format";
import { useChanges } from "../ui/changes";
import { Loaded, useResource } from "../ui/resource";
import { Status } from "../ui/status";
import { href } from "../router";
import type { RecentMetrics } from "../types";
import { type Chart, chartsOf, lastOf } from "../data/charts";
import { bytes } from "../ui/text/bytes";

export function Engine() {
  const resource = useResource<RecentMetrics>("/metrics/recent");
  useChanges(resource, 5000);
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

/** Active runs, and by status those that ended since the service has started. */
function RunsByStatus({ metrics }: { metrics: RecentMetrics }) {
  const totals = new Map([["RUNNING", 0]]);
  for (const { name, labels, points } of metrics.series) {
    const status = name === "pirn_runs_live" ? "RUNNING" : name === "pirn_runs_ended_total" ? labels.status : undefined;
    if (status) totals.set(status, (totals.get(status) ?? 0) + (lastOf(points) ?? 0));
  }
  return (
    <ul class="tiles" aria-label="Runs by status">
      {[...totals].map(([status, total]) => (
        <li key={status}>
          <a class="tile" href={href(["runs"], { status })}>
            <span class="figure">{count(total)}</span>
            <Status status={status} />
          </a>
        </li>
      ))}
    </ul>
  );
}

const WIDTH = 280;
const HEIGHT = 64;

function formatted(value: number | undefined, unit: string): string {
  if (value === undefined) return "–";
  if (unit === "s") return duration(value * 1000);
  if (unit === "By" || unit === "bytes") return bytes(value);
  return (Math.abs(value) >= 100 ? count(value) : String(Number(value.toPrecision(3)))) + (unit === "/s" ? " /s" : "");
}

function SmallChart({ chart: { name, title, unit, lines }, from, interval }: { chart: Chart; from: number; interval: number }) {
  const highest = Math.max(0, ...lines.flatMap((line) => line.points.map((point) => point ?? 0)));
  const length = Math.max(2, ...lines.map((line) => line.points.length));
  const x = (at: number) => ((WIDTH * at) / (length - 1)).toFixed(1);
  const y = (value: number) => (HEIGHT - 2 - (highest > 0 ? ((HEIGHT - 6) * value) / highest : 0)).toFixed(1);
  const latest = lines.map(({ label, points }, at) => ({ label, at, text: formatted(lastOf(points), unit) }));
  const summary = latest.map(({ label, text }) => `${label} ${text}`).join(", ");
  return (
    <figure class="chart">
      <figcaption title={name}>
        {title} <strong>{lines.length === 1 && latest[0]!.text}</strong>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${title}: ${summary}; highest ${formatted(highest, unit)}`}>
        <line class="axis" x1="0" x2={WIDTH} y1={HEIGHT - 1} y2={HEIGHT - 1} />
        {lines.map(({ label, points }, at) => (
          <path
            key={label}
            class={`series series-${at % 6}`}
            d={points.map((point, index) => (point === null ? "" : `${(points[index - 1] ?? null) === null ? "M" : "L"}${x(index)} ${y(point)}h-2`)).join("")}
          />
        ))}
      </svg>
      <div class="scale dim" aria-hidden="true">
        <span>{time(from)}</span>
        <span>highest {formatted(highest, unit)}</span>
        <span>{time(from + (length - 1) * interval)}</span>
      </div>
      {lines.length > 1 && (
        <ul class="legend">
          {latest.slice(0, 6).map(({ label, at, text }) => (
            <li key={label}>
              <svg class="key" viewBox="0 0 20 4" aria-hidden="true">
                <path class={`series series-${at}`} d="M0 2h20" />
              </svg> {label || "all"}: {text}
            </li>
          ))}
          {lines.length > 6 && <li class="dim">and {lines.length - 6} more</li>}
        </ul>
      )}
    </figure>
  );
}
