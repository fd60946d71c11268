// Statistics of the recent runs of a workflow.

import type { Cost, RunItem } from "../types";

export interface Statistics {
  /** Runs that have ended. */
  ended: number;
  completed: number;
  /** Durations of the ended runs, milliseconds. */
  p50?: number;
  p95?: number;
  tokens?: number;
  /** Sum by currency. */
  cost?: Cost[];
}

const ENDED = new Set(["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"]);

/** Summarizes runs; those that have not ended do not count. */
export function statisticsOf(runs: RunItem[]): Statistics {
  const ended = runs.filter((run) => ENDED.has(run.status));
  const durations = ended.map((run) => run.durationMs ?? run.updatedAt - run.startedAt).sort((a, b) => a - b);
  const tokens = ended.filter((run) => typeof run.tokens === "number");
  const found: Statistics = { ended: ended.length, completed: ended.filter((run) => run.status === "COMPLETED").length };
  if (durations.length > 0) Object.assign(found, { p50: percentile(durations, 50), p95: percentile(durations, 95) });
  if (tokens.length > 0) found.tokens = tokens.reduce((sum, run) => sum + run.tokens!, 0);
  const cost = sumOfCosts(ended);
  if (cost.length > 0) found.cost = cost;
  return found;
}

/** The smallest value that at least `percent` percent of the ascending values do not exceed. */
export function percentile(ascending: number[], percent: number): number | undefined {
  return ascending[Math.max(0, Math.ceil((percent / 100) * ascending.length) - 1)];
}

function sumOfCosts(runs: RunItem[]): Cost[] {
  const sums = new Map<string, number>();
  for (const run of runs) {
    for (const cost of Array.isArray(run.cost) ? run.cost : [run.cost]) {
      if (cost === null || cost === undefined) continue;
      const { amount, currency } = typeof cost === "number" ? { amount: cost, currency: "" } : { amount: cost.amount ?? cost.cost ?? 0, currency: cost.currency ?? "" };
      sums.set(currency, (sums.get(currency) ?? 0) + amount);
    }
  }
  return [...sums].map(([currency, amount]) => ({ amount, currency }));
}
