// A short table of runs, in the views of a workflow and of a session.

import { href } from "../router";
import type { RunItem } from "../types";
import { count, duration, money, time } from "../ui/text/format";
import { Table } from "../ui/panel";
import { Status } from "../ui/status";

export function RunTable({ runs, label }: { runs: RunItem[]; label: string }) {
  if (runs.length === 0) return <p class="dim">There are no runs.</p>;
  return (
    <Table
      label={label}
      columns={["Run", "Workflow", "Status", "#Started", "#Duration", "#Tokens", "#Cost"]}
      rows={runs.map((run) => [
        <a href={href(["runs", run.runId])}>{run.runId}</a>,
        run.workflowId,
        <Status status={run.status} />,
        time(run.startedAt),
        duration(Math.max(0, run.durationMs ?? run.updatedAt - run.startedAt)),
        count(run.tokens),
        money(run.cost),
      ])}
    />
  );
}
