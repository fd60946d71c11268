import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { chartsOf, lastOf } = await load("data/charts.ts");
const { percentile, statisticsOf } = await load("data/statistics.ts");

test("a counter becomes its rate, a restart does not make it negative, and missing points stay missing", () => {
  const series = [{ name: "pirn_runs_started_total", labels: { workflow: "a" }, points: [10, 20, null, 30, 5, 6] }];
  const [chart] = chartsOf({ intervalMs: 5000, from: 0, series });
  assert.deepEqual(chart.lines[0].points, [null, 2, null, null, 1, 0.2]);
  assert.deepEqual(chartsOf({ intervalMs: 1000, from: 0, series: [{ ...series[0], points: [null, null, 3, 4] }] })[0].lines[0].points, [null, null, 3, 1]);
  assert.equal(chart.title, "runs started per second");
  assert.equal(chart.lines[0].label, "a");
});

test("series of one name are lines of one chart, the largest first", () => {
  const series = [
    { name: "pirn_mailbox_depth", labels: { actor: "a", kind: "x" }, points: [1] },
    { name: "pirn_mailbox_depth", labels: { actor: "b", kind: "x" }, points: [null] },
    { name: "pirn_mailbox_depth", labels: { actor: "c", kind: "x" }, points: [3] },
  ];
  const charts = chartsOf({ intervalMs: 1000, from: 0, series });
  assert.deepEqual(charts.map((chart) => chart.lines.map((line) => line.label)), [["c, x", "a, x", "b, x"]]);
  assert.equal(lastOf([1, 2, null]), 2);
  assert.equal(lastOf([null]), undefined);
});

test("a histogram becomes the mean of its values", () => {
  const labels = { workflow: "a" };
  const series = [
    { name: "pirn_run_duration_seconds_count", kind: "counter", labels, points: [0, 2, 2, 3] },
    { name: "pirn_run_duration_seconds_sum", kind: "counter", unit: "s", labels, points: [0, 3, 3, 3.5] },
  ];
  const [chart, ...more] = chartsOf({ intervalMs: 1000, from: 0, series });
  assert.deepEqual(more, []);
  assert.equal(chart.title, "run duration seconds, mean");
  assert.equal(chart.unit, "s");
  assert.deepEqual(chart.lines[0].points, [null, 1.5, null, 0.5]);
});

test("only ended runs count, and costs are summed by currency", () => {
  const run = (status, ms, more = {}) => ({ status, startedAt: 0, updatedAt: ms, ...more });
  const found = statisticsOf([
    run("COMPLETED", 100, { tokens: 5, cost: { amount: 1, currency: "EUR" } }),
    run("FAILED", 300, { tokens: 7, cost: [{ amount: 2, currency: "EUR" }, { amount: 1, currency: "USD" }] }),
    run("COMPLETED", 200, { durationMs: 150 }),
    run("RUNNING", 9000),
  ]);
  assert.deepEqual(found, { ended: 3, completed: 2, p50: 150, p95: 300, tokens: 12, cost: [{ amount: 3, currency: "EUR" }, { amount: 1, currency: "USD" }] });
  assert.deepEqual(statisticsOf([]), { ended: 0, completed: 0 });
  assert.equal(percentile([1, 2, 3, 4], 50), 2);
});
