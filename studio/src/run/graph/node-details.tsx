// What happened at the selected node: every attempt, its calls, the decision of a join, the items of a map, error and output.

import { canChange, info } from "../../api";
import { lazy } from "../../lazy";
import { brief, duration, pretty, time, tokens } from "../../ui/text/format";
import { JsonTree } from "../../ui/text/json";
import { List } from "../../ui/list";
import { Status } from "../../ui/status";
import { joinStory } from "../model/digest";
import { type Call, countUpTo, isOpenAt, type RunModel, statusAt, type Visit } from "../model/model";
import { forkOf, joinOf, nodeConfig, rootOf, threshold, visitStatus } from "../model/node-state";
import type { OpenRun } from "../model/open";
import { OpenQuestions } from "../questions";
import { paneHref } from "../view-href";

const MANY = 12;
const WhatIf = lazy("WhatIf");

export function Details({ run }: { run: OpenRun }) {
  void run.version.value;
  const { model, cursor } = run;
  const node = cursor.node.value;
  const thread = cursor.thread.value;
  const workflow = cursor.workflowShown();
  const sequence = cursor.position.value;
  if (node === undefined) return <Overview run={run} />;
  const chosen = model.threads.get(thread ?? "");
  const root = chosen && rootOf(model, chosen).id;
  const all = model.visitsAt(workflow, node, sequence);
  const visits = root === undefined ? all : all.filter((visit) => rootOf(model, model.threads.get(visit.thread)!).id === root);
  const current = visits.findLast((visit) => visit.thread === thread) ?? visits.at(-1);
  const join = current && (current.type === "JOIN" || current.type === "MAP") ? joinOf(model, current) : undefined;
  const config = nodeConfig(run.definitions.value, workflow, node);
  return (
    <aside class="details" aria-label={`Selected node of ${run.id}`} tabIndex={0}>
      <div class="details-title">
        <h2>{node}</h2>
        <span class="dim">{current?.type ?? "not reached"} in {workflow}</span>
        {current && <Status status={visitStatus(model, current, sequence)} />}
      </div>
      {root !== undefined && all.length > visits.length && (
        <p>
          Only {chosen?.name ?? root}. <button class="link" onClick={() => cursor.select(node, undefined, workflow)}>Show all {all.length}</button>
        </p>
      )}
      {join && (
        <section>
          <h3>Decision</h3>
          <ul class="plain">{joinStory(join, model, sequence, threshold(run.definitions.value, join, workflow)).map((line) => <li key={line}>{line}</li>)}</ul>
        </section>
      )}
      {current?.type === "MAP" && <Items run={run} visit={current} sequence={sequence} />}
      {visits.length > 0 && <Attempts run={run} visits={visits} current={current} sequence={sequence} />}
      {current && current.calls.some((call) => call.start <= sequence) && <Calls run={run} visit={current} sequence={sequence} />}
      <OpenQuestions run={run} of={(one) => one.node === node && one.thread === current?.thread} />
      {model.questions.filter((one) => one.thread === current?.thread && one.node === node && !isOpenAt(one, sequence) && one.start <= sequence).map((question) => (
        <section key={question.id}>
          <h3>Question</h3>
          <p>{question.question}</p>
          <p class="dim">
            {question.outcome}
            {question.answer !== undefined && `: ${brief(question.answer)}`}
          </p>
        </section>
      ))}
      {current?.error && current.end! <= sequence && (
        <section>
          <h3>Error</h3>
          <div class="problem"><strong>{current.error.code}</strong> {current.error.message}</div>
        </section>
      )}
      {current && current.end !== undefined && current.end <= sequence && current.output !== undefined && (
        <section>
          <h3>Output</h3>
          <JsonTree key={current.end} value={current.output} />
        </section>
      )}
      {current && canChange() && !run.isFixed && info.value?.store && <WhatIf run={run} visit={current} />}
      {config && (
        <details>
          <summary>Configuration</summary>
          <pre>{pretty(config)}</pre>
        </details>
      )}
      <p class="links">
        <a href={paneHref(run.id, "events", { inNode: node })}>Events of {node}</a>
      </p>
    </aside>
  );
}

/** Without a selected node: what runs or waits now. */
function Overview({ run }: { run: OpenRun }) {
  const { model, cursor } = run;
  const sequence = cursor.position.value;
  const busy = model.threadList.filter((thread) => isOpenAt(thread, sequence)).flatMap((thread) => thread.visits.slice(0, countUpTo(thread.visits, sequence, (visit) => visit.start)).at(-1) ?? []).filter((visit) => isOpenAt(visit, sequence));
  return (
    <aside class="details" aria-label={`At the cursor of ${run.id}`} tabIndex={0}>
      <h2>At the cursor</h2>
      <OpenQuestions run={run} />
      {busy.length === 0 && <p class="dim">Nothing is running. Select a node to see what happened there.</p>}
      <ul class="plain entries">
        {busy.slice(0, 50).map((visit) => (
          <li key={`${visit.thread} ${visit.start}`}>
            <button class="entry" onClick={() => cursor.select(visit.node, visit.thread)}>
              <Status status={visitStatus(model, visit, sequence)} />
              <span>{visit.node}</span>
              <span class="dim">{waitsFor(model, visit, sequence)}</span>
            </button>
          </li>
        ))}
      </ul>
    </aside>
  );
}

function waitsFor(model: RunModel, visit: Visit, sequence: number): string {
  const since = duration(model.timeAt(sequence) - visit.startAt);
  const question = model.questions.find((one) => one.thread === visit.thread && isOpenAt(one, sequence));
  if (question) return `for an answer: ${brief(question.question, 60)}`;
  const call = visit.calls.findLast((one) => isOpenAt(one, sequence));
  if (call) return call.held ? `for a compression, ${since}` : `${call.kind === "tool" ? call.name : "model"}, ${since}`;
  if (visit.type === "JOIN") return `for branches, ${since}`;
  if (visit.type === "SUBGRAPH" || visit.type === "MAP") return `for its workflow, ${since}`;
  return since;
}

const label = (run: OpenRun, id: string): string => {
  const thread = run.model.threads.get(id);
  return thread?.path ?? (id.startsWith(run.id) ? id.slice(run.id.length) : id);
};

function Attempts({ run, visits, current, sequence }: { run: OpenRun; visits: Visit[]; current?: Visit; sequence: number }) {
  const { model, cursor } = run;
  const entry = (visit: Visit) => {
    const parts = [label(run, visit.thread), visit.round > 0 || visits.some((one) => one.round > 0) ? `round ${visit.round + 1}` : "", visit.attempt > 1 || visit.status === "FAILED" ? `attempt ${visit.attempt}` : ""];
    return (
      <>
        <Status status={visitStatus(model, visit, sequence)} short />
        <span class="grow">{parts.filter(Boolean).join(", ")}</span>
        <span class="dim" title={time(visit.startAt)}>+{duration(visit.startAt - model.startAt)}</span>
        <span class="took">{duration((isOpenAt(visit, sequence) ? model.timeAt(sequence) : visit.endAt!) - visit.startAt)}</span>
      </>
    );
  };
  const select = (visit: Visit) => cursor.move({ sequence: visit.end ?? undefined, node: visit.node, thread: visit.thread });
  return (
    <section>
      <h3>Attempts</h3>
      {visits.length > MANY ? (
        <List label="Attempts" class="short" count={visits.length} rowHeight={28} selected={current ? visits.indexOf(current) : -1} onSelect={(i) => select(visits[i]!)} row={(i) => entry(visits[i]!)} />
      ) : (
        <ul class="plain entries">
          {visits.map((visit) => (
            <li key={visit.start}>
              <button class="entry" aria-current={visit === current ? "true" : undefined} onClick={() => select(visit)}>
                {entry(visit)}
              </button>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Items({ run, visit, sequence }: { run: OpenRun; visit: Visit; sequence: number }) {
  const { cursor } = run;
  const branches = forkOf(run.model, visit)?.branches.filter((thread) => thread.start <= sequence) ?? [];
  return (
    <section>
      <h3>Items</h3>
      <List
        label="Items"
        class="short"
        count={branches.length}
        rowHeight={28}
        selected={branches.findIndex((thread) => thread.id === cursor.thread.value)}
        onSelect={(i) => cursor.select(visit.node, branches[i]!.id, branches[i]!.workflow)}
        row={(i) => {
          const thread = branches[i]!;
          const status = statusAt(thread, sequence);
          const input = thread.visits[0]?.output;
          return (
            <>
              <span class="item-index">{thread.path}</span>
              <Status status={status} short />
              <span class="grow" title={brief(input, 400)}>{brief(status === "COMPLETED" ? thread.output : (thread.error?.message ?? input), 120)}</span>
              <span class="took">{duration((thread.endAt ?? run.model.lastAt) - thread.startAt)}</span>
            </>
          );
        }}
      />
    </section>
  );
}

function Calls({ run, visit, sequence }: { run: OpenRun; visit: Visit; sequence: number }) {
  const { cursor } = run;
  const calls = visit.calls.filter((call) => call.start <= sequence);
  return (
    <section>
      <h3>Calls</h3>
      <ul class="plain entries">
        {calls.slice(-100).map((call) => (
          <li key={call.start}>
            <button class="entry" onClick={() => cursor.move({ sequence: call.end ?? call.start, node: visit.node, thread: visit.thread })}>
              <Status status={call.held && call.status === "CANCELLED" ? "CANCELLED" : statusAt(call, sequence)} short />
              <span class="grow">{call.kind === "tool" ? `${call.name} ${brief(call.arguments, 60)}` : modelText(call)}</span>
              <span class="took">{call.endAt === undefined ? "" : duration(call.endAt - call.startAt)}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function modelText(call: Call): string {
  const limit = call.limit ? ` of ${tokens(call.limit)}` : "";
  if (call.held) return `request of ${tokens(call.tokens)}${limit} tokens exceeds the limit`;
  return `model, ${tokens(call.tokens)}${limit} tokens${call.replyTokens ? `, reply ${tokens(call.replyTokens)}` : ""}`;
}
