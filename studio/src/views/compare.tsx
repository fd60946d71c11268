// Compare: two runs side by side: the first differing step, graphs, outputs, and tokens and time by node.

import { isObject, stringify } from "../data/json";
import { useEffect, useMemo } from "preact/hooks";
import { href, route } from "../router";
import type { Diff, Report, Step } from "../types";
import { count, duration, plural, pretty, time } from "../ui/text/format";
import { TextDiff } from "../ui/text/diff";
import { Facts, Panel, Table } from "../ui/panel";
import { ProblemBox, useResource } from "../ui/resource";
import { Status } from "../ui/status";
import { OpenRun } from "../run/model/open";
import { Graph } from "../run/graph/graph";

function useRun(id: string): OpenRun {
  const run = useMemo(() => new OpenRun(id), [id]);
  useEffect(() => () => run.close(), [run]);
  return run;
}

export function Compare() {
  const [a = "", b = ""] = route.value.args;
  if (!b) {
    return (
      <div class="view">
        <h1>Compare</h1>
        <p class="empty">
          Select two runs in the <a href={href(["runs"])}>list of runs</a>, or fork a run.
        </p>
      </div>
    );
  }
  return <Both key={`${a}/${b}`} a={a} b={b} />;
}

function Both({ a, b }: { a: string; b: string }) {
  const [left, right] = [useRun(a), useRun(b)];
  void left.version.value;
  void right.version.value;
  const diff = useResource<Diff>(`/runs/${encodeURIComponent(a)}/diff/${encodeURIComponent(b)}`);
  // The difference is known as far as both runs have come; it is read again when one of them ends.
  useEffect(() => {
    if (diff.data.value || diff.problem.value) void diff.reload();
  }, [left.ended.value, right.ended.value]);
  return (
    <div class="view compare">
      <div class="view-title">
        <h1>Compare</h1>
        <a class="button" href={href(["compare", b, a])}>
          Swap
        </a>
      </div>
      <div class="columns">
        <Title run={left} />
        <Title run={right} />
      </div>
      <Panel title="First differing step">
        {diff.problem.value && <ProblemBox problem={diff.problem.value} />}
        {diff.data.value && <FirstStep a={left} b={right} diff={diff.data.value} />}
      </Panel>
      <Panel title="Graphs">
        <div class="columns">
          <Graph run={left} />
          <Graph run={right} />
        </div>
      </Panel>
      <Panel title="Outputs">
        <Texts left={outcomeOf(left.report.value)} right={outcomeOf(right.report.value)} label="Outputs" />
      </Panel>
      <Panel title="Variables">
        <Texts left={variablesOf(left.report.value)} right={variablesOf(right.report.value)} label="Variables" />
      </Panel>
      <Panel title="Tokens and time by node">
        <Nodes left={left} right={right} />
      </Panel>
    </div>
  );
}

function Title({ run }: { run: OpenRun }) {
  const { model } = run;
  const report = run.report.value;
  return (
    <section class="panel" aria-label={run.id}>
      <h2>
        <a href={href(["runs", run.id])}>{run.id}</a>
      </h2>
      {run.problem.value && <ProblemBox problem={run.problem.value} />}
      <Status status={run.status.value} />
      <Facts
        of={[
          ["Workflow", report?.workflowId ?? model.workflow],
          ["Started", time(model.startAt || undefined)],
          ["Duration", duration(model.startAt ? model.lastAt - model.startAt : undefined)],
          ["Tokens", count(report?.tokens?.spent?.total)],
        ]}
      />
    </section>
  );
}

function FirstStep({ a, b, diff }: { a: OpenRun; b: OpenRun; diff: Diff }) {
  const { commonSteps } = diff;
  if (!diff.a && !diff.b) {
    return <p>No step differs ({count(commonSteps)} compared); the outcomes {diff.outcome?.equal === false ? "differ" : "are equal"}.</p>;
  }
  return (
    <>
      <p>Equal at the start: {plural(commonSteps, "step")}. Then:</p>
      <div class="columns">
        <StepCard run={a} step={diff.a} />
        <StepCard run={b} step={diff.b} />
      </div>
    </>
  );
}

function StepCard({ run: { id, model }, step }: { run: OpenRun; step: Step | null }) {
  if (!step) return <p class="dim">{id} has no further step.</p>;
  const { step: number, threadId, nodeId, kind, effectId, at, durationMs } = step;
  return (
    <div>
      <p>
        <a href={href(["runs", id, "state"], { step: number, node: nodeId ?? undefined })}>Step {number}</a>: {kind}
        {nodeId && (
          <>
            {" "}
            at <strong>{nodeId}</strong>
          </>
        )}{" "}
        in thread <code>{threadId}</code>
        {effectId && (
          <span class="dim">
            {" "}
            ({effectId}
            {durationMs != null && `, ${duration(model.shift(at) - model.shift(at - durationMs))}`})
          </span>
        )}
      </p>
    </div>
  );
}

/** An output without the usage of tokens and the ids of threads, which differ in every run. */
function stable(output: unknown): unknown {
  if (!isObject(output)) return output;
  const { usage: _, childThreadIds: __, ...rest } = output;
  return rest;
}

const outcomeOf = (report: Report | undefined) =>
  report && (report.error ? `${report.error.code}: ${report.error.message}\n` : "") + (report.output === undefined ? "" : pretty(report.output));

const variablesOf = (report: Report | undefined) => report && (report.variables ?? {});

function Texts({ left, right, label }: { left: unknown; right: unknown; label: string }) {
  if (left === undefined || right === undefined) return <p class="dim loading">Loading…</p>;
  return <TextDiff left={pretty(left)} right={pretty(right)} label={label} />;
}

interface NodeFigures {
  visits: number;
  ms: number;
  tokens: number;
  output: string;
}

function figuresOf(run: OpenRun): Map<string, NodeFigures> {
  const found = new Map<string, NodeFigures>();
  for (const visit of run.model.visits) {
    const name = `${visit.workflow}/${visit.node}`;
    const figures = found.get(name) ?? { visits: 0, ms: 0, tokens: 0, output: "" };
    figures.visits += 1;
    figures.ms += (visit.endAt ?? run.model.lastAt) - visit.startAt;
    figures.output += visit.status + stringify(stable(visit.error ?? visit.output));
    found.set(name, figures);
  }
  for (const node of run.report.value?.usage?.nodes ?? []) {
    const figures = found.get(`${node.workflowId}/${node.nodeId}`);
    if (figures) figures.tokens += (node.usage as { total?: number } | undefined)?.total ?? 0;
  }
  return found;
}

function Nodes({ left, right }: { left: OpenRun; right: OpenRun }) {
  const [a, b] = [figuresOf(left), figuresOf(right)];
  const names = [...new Set([...a.keys(), ...b.keys()])];
  const change = (one: number, other: number, format: (value: number) => string) => (one === other ? "=" : `${other > one ? "+" : "−"}${format(Math.abs(other - one))}`);
  return (
    <Table
      label="Table of nodes"
      columns={["Node", "Output", "#Time, first", "#Time, second", "#Change of time", "#Tokens, first", "#Tokens, second", "#Change of tokens"]}
      rows={names.slice(0, 500).map((name) => {
        const [one, two] = [a.get(name), b.get(name)];
        const both = one && two;
        return [
          name,
          !both ? <span class="badge change">only in the {one ? "first" : "second"}</span> : one.output === two.output ? "equal" : <span class="badge change">≠ different</span>,
          duration(one?.ms),
          duration(two?.ms),
          both && change(one.ms, two.ms, duration),
          count(one?.tokens || undefined),
          count(two?.tokens || undefined),
          both && change(one.tokens, two.tokens, count),
        ];
      })}
    />
  );
}
