// The state of a run at the cursor: variables by scope, node outputs, pinned sections and budgets, with the changes since the previous
// step marked; and the actions that continue from here.

import { stringify } from "../data/json";
import { useMemo } from "preact/hooks";
import { canChange, query } from "../api";
import { brief, count, plural } from "../ui/text/format";
import { JsonTree } from "../ui/text/json";
import { Meter } from "../ui/meter";
import { Panel } from "../ui/panel";
import { useResource } from "../ui/resource";
import { Status } from "../ui/status";
import type { Json, Report } from "../types";
import { lazy } from "../lazy";
import { pairs } from "./model/calls";
import { statusAt, type Visit } from "./model/model";
import type { OpenRun } from "./model/open";
import { PinnedMessages } from "./conversation/pinned";
import { OpenQuestions } from "./questions";

const Actions = lazy("Actions");

export function State({ run }: { run: OpenRun }) {
  void run.version.value;
  const position = run.cursor.resting.value;
  const step = run.cursor.stepAt(position);
  const isAtEnd = position >= run.lastSequence.value;
  // At the end of the run, the report is that of the last step.
  const here = useResource<Report>(step === undefined || isAtEnd || run.isOrder ? undefined : query(run.path(), { at: step }));
  const before = useResource<Report>(step === undefined || step === 0 || run.isOrder ? undefined : query(run.path(), { at: step - 1 }));
  const report = isAtEnd || step === undefined ? run.report.value : here.data.value;
  return (
    <div class="state">
      {canChange() && !run.isFixed && <Actions run={run} step={step} report={isAtEnd || !here.loading.value ? report : undefined} />}
      <OpenQuestions run={run} />
      <div class="state-body">
        <Variables run={run} report={report} before={before.data.value} />
        <Budgets report={report} before={before.data.value} />
        <PinnedSections run={run} />
        <Outputs run={run} />
      </div>
    </div>
  );
}

interface Entry {
  scope: string;
  name: string;
  value: Json;
  change?: "new" | "changed";
}

/** Variables of the main thread from the report of the step, and those of other threads and the run from the events. */
function entriesOf(run: OpenRun, report: Report | undefined, before: Report | undefined): Entry[] {
  const position = run.cursor.resting.value;
  const main = run.model.threadList[0]?.id;
  const found = new Map<string, Entry>();
  const previous = previousEnd(run);
  for (const [name, value] of Object.entries(report?.variables ?? {})) {
    const old = before?.variables?.[name];
    const change = before === undefined ? undefined : old === undefined ? "new" : stringify(old) === stringify(value) ? undefined : "changed";
    found.set(`main/${name}`, { scope: "main thread", name, value, change });
  }
  for (const { scope, thread, name, value, sequence } of run.model.variablesAt(position)) {
    const isGlobal = scope !== "thread";
    const of = isGlobal ? "whole run" : thread === main ? "main thread" : (run.model.threads.get(thread)?.path ?? thread);
    const key = isGlobal ? `global/${name}` : thread === main ? `main/${name}` : `${thread}/${name}`;
    const change = sequence > previous ? (found.get(key)?.change ?? "changed") : undefined;
    found.set(key, { scope: of, name, value, change });
    if (isGlobal) found.delete(`main/${name}`);
  }
  return [...found.values()];
}

/** Sequence of the last event of the step before the cursor's. */
function previousEnd(run: OpenRun): number {
  const { steps, cursor } = run;
  const known = steps.value;
  const index = known ? known.list.findIndex((step) => step.step === cursor.stepAt(cursor.resting.value)) : -1;
  return known && index >= 0 ? (known.ends[index - 1] ?? 0) : cursor.resting.value - 1;
}

function Mark({ change }: { change?: "new" | "changed" }) {
  if (!change) return null;
  return <span class="badge change">{change === "new" ? "+ new" : "Δ changed"}</span>;
}

function Variables({ run, report, before }: { run: OpenRun; report?: Report; before?: Report }) {
  const entries = entriesOf(run, report, before);
  const scopes = [...new Set(entries.map((entry) => entry.scope))];
  return (
    <Panel title="Variables">
      {entries.length === 0 && <p class="dim">No variable is set at this position.</p>}
      {scopes.map((scope) => (
        <div key={scope}>
          <h3 class="dim">{scope}</h3>
          {entries
            .filter((entry) => entry.scope === scope)
            .map((entry) => (
              <div key={entry.name} class={`entry ${entry.change ? "changed" : ""}`}>
                <Mark change={entry.change} />
                <JsonTree name={entry.name} value={entry.value} open={false} />
              </div>
            ))}
        </div>
      ))}
    </Panel>
  );
}

interface Figure {
  used: number;
  limit: number;
}

const budgetOf = (report?: Report) => (report as { budget?: { [name: string]: Figure | undefined } } | undefined)?.budget ?? {};

function Budgets({ report, before }: { report?: Report; before?: Report }) {
  const budget = budgetOf(report);
  const old = budgetOf(before);
  const isChanged = before && spentOf(before) !== spentOf(report);
  const figures = Object.entries(budget).filter((entry): entry is [string, Figure] => typeof entry[1]?.limit === "number");
  const names: { [name: string]: [string, string] } = { tokens: ["Tokens", "tokens"], cost: ["Cost", ""], modelCalls: ["Model calls", "calls"] };
  const spent = report?.tokens?.spent;
  return (
    <Panel title="Budgets and tokens">
      {figures.map(([name, { used, limit }]) => (
        <div key={name}>
          <Mark change={before && old[name]?.used !== used ? "changed" : undefined} />
          <Meter label={names[name]?.[0] ?? name} value={used} limit={limit} unit={names[name]?.[1] ?? ""} />
        </div>
      ))}
      {figures.length === 0 && <p class="dim">The workflow has no budget.</p>}
      {report?.tokens && (
        <p>
          {isChanged && <Mark change="changed" />} The next request has {plural(report.tokens.context, "token")}. Spent: {count(spent?.total)} tokens, {count(spent?.input)} in ({count(spent?.cachedRead)} from the cache) and {count(spent?.output)} out.
        </p>
      )}
    </Panel>
  );
}

const spentOf = (report?: Report) => stringify(report?.tokens);

/** The pinned sections as the last request at the cursor contained them. */
function PinnedSections({ run }: { run: OpenRun }) {
  const position = run.cursor.resting.value;
  const items = run.requests.value;
  const last = useMemo(() => {
    const calls = pairs(run);
    return items?.filter((item) => (calls.get(item.effectId)?.start ?? Infinity) <= position && calls.get(item.effectId)?.pinnedAt !== undefined).at(-1);
  }, [items, position]);
  return (
    <Panel title="Pinned context">
      <PinnedMessages run={run} item={last} isLatest={last !== undefined && (pairs(run).get(last.effectId)?.start ?? 0) > previousEnd(run)} />
    </Panel>
  );
}

const MAX_OUTPUTS = 300;

/** The last visit of every node that has started at the cursor. */
function Outputs({ run }: { run: OpenRun }) {
  const position = run.cursor.resting.value;
  const previous = previousEnd(run);
  const last = new Map<string, Visit>();
  for (const visit of run.model.visits) if (visit.start <= position) last.set(`${visit.thread}/${visit.node}`, visit);
  const visits = [...last.values()];
  const shown = visits.slice(-MAX_OUTPUTS);
  return (
    <Panel title="Node outputs" class="wide">
      {visits.length > shown.length && <p class="dim">The last {count(shown.length)} of {count(visits.length)} nodes.</p>}
      {shown.map((visit) => {
        const status = statusAt(visit, position);
        const isDone = status !== "RUNNING";
        const path = run.model.threads.get(visit.thread)?.path;
        return (
          <details key={`${visit.thread}/${visit.node}`} class={`entry ${isDone && (visit.end ?? 0) > previous ? "changed" : ""}`}>
            <summary>
              <Status status={status} short /> <strong>{visit.node}</strong> <span class="dim">{[visit.type, path].filter(Boolean).join(", ")}</span>{" "}
              {isDone && (visit.end ?? 0) > previous && <Mark change="changed" />} <span class="dim">{isDone ? brief(visit.error ? `${visit.error.code}: ${visit.error.message}` : (visit.output as Json), 120) : ""}</span>
            </summary>
            {isDone ? <JsonTree value={visit.error ?? visit.output ?? null} /> : <p class="dim">No output at this position.</p>}
          </details>
        );
      })}
    </Panel>
  );
}
