// The time between the steps that a fork shares with its base and the start of the fork. It is no part of the run: the page shows the shared
// steps as if they had ended when the fork started.

import { get, type Problem, query } from "../../api";
import type { Report, Step } from "../../types";
import type { Gap } from "./model";

export type Base = NonNullable<Report["forkedFrom"]>;

/** Reads the base of a run, and the gaps of the run and of the forks from which it was forked. */
export async function gapsOf(id: string, steps: Step[], signal: AbortSignal): Promise<{ base?: Base; gaps: Gap[] }> {
  const gaps: Gap[] = [];
  let base: Base | undefined;
  let before = Infinity;
  for (let run: string | undefined = id; run !== undefined; ) {
    const report: Partial<Report> = await get<Report>(query(`/runs/${encodeURIComponent(run)}`, { at: 0 }), signal).catch((error: Problem) => {
      // Without the base (deleted, or not in an exported page), only the gaps after it are added.
      if (run !== id && error.status === 404) return {};
      throw error;
    });
    const { forkedFrom, startedAt } = report;
    base ??= forkedFrom;
    run = startedAt === undefined ? undefined : forkedFrom?.runId;
    if (run === undefined || forkedFrom!.step >= before) continue;
    before = forkedFrom!.step;
    const end = steps.findLast((step) => step.step <= before)?.at;
    if (end !== undefined) gaps.push({ end, start: startedAt! });
  }
  return { base, gaps };
}
