// The strip above a run: outcome and its cause, slowest path, most expensive call, retries, open questions.

import { href } from "../router";
import { duration, plural, tokens } from "../ui/text/format";
import { Status } from "../ui/status";
import { useNow } from "../ui/now";
import type { OpenRun } from "./model/open";
import { digest } from "./model/digest";

export function Strip({ run }: { run: OpenRun }) {
  void run.version.value;
  const { model, cursor } = run;
  const report = run.report.value;
  const status = run.status.value;
  const now = useNow(!run.ended.value);
  const end = run.ended.value ? model.lastAt : Math.max(now, model.lastAt);
  const facts = digest(model, report, run.requests.value, end);
  const forkedFrom = run.base.value ?? report?.forkedFrom;
  return (
    <header class="strip">
      <div class="strip-title">
        <h1>
          <a href={href(["workflows", model.workflow || report?.workflowId || ""])}>{model.workflow || report?.workflowId || "Run"}</a>{" "}
          <span class="run-id">{run.id}</span>
        </h1>
        <Status status={status} />
        {forkedFrom && (
          <a href={href(["compare", forkedFrom.runId, run.id])}>
            fork of {forkedFrom.runId} at step {forkedFrom.step}
          </a>
        )}
      </div>
      {run.isOrder && (
        <p class="order-note">
          <a href={href(["workflows", model.workflow, "orders"])}>Back to the orders</a> An explored order, not a run of the service. Its times count the choices.
        </p>
      )}
      <p class="cause">{facts.cause}</p>
      <dl class="facts">
        <Fact name="Duration" value={model.startAt ? duration(end - model.startAt) : "–"} />
        <Fact name="Tokens" value={facts.tokens === undefined ? "–" : tokens(facts.tokens)} />
        {facts.cost && <Fact name="Cost" value={facts.cost} />}
        {facts.slowest && (
          <Fact
            name="Slowest path"
            value={`${facts.slowest.label}, ${duration(facts.slowest.ms)}`}
            onClick={() => cursor.move({ sequence: facts.slowest!.sequence, node: facts.slowest!.node, thread: facts.slowest!.thread })}
          />
        )}
        {facts.dearest && (
          <Fact
            name="Most expensive call"
            value={`${facts.dearest.label}, ${facts.dearest.amount}`}
            onClick={() => cursor.move({ sequence: facts.dearest!.sequence, node: facts.dearest!.node, thread: facts.dearest!.thread })}
          />
        )}
        <Fact
          name="Retries"
          value={plural(facts.retries.length, "retry", "retries")}
          onClick={facts.retries.length ? () => cursor.move({ sequence: facts.retries[0]!.start, node: facts.retries[0]!.node, thread: facts.retries[0]!.thread }) : undefined}
        />
        <Fact
          name="Open questions"
          value={plural(facts.questions.length, "question")}
          tone={facts.questions.length ? "t-wait" : undefined}
          onClick={facts.questions.length ? () => cursor.move({ node: facts.questions[0]!.node, thread: facts.questions[0]!.thread }) : undefined}
        />
      </dl>
    </header>
  );
}

function Fact({ name, value, tone, onClick }: { name: string; value: string; tone?: string; onClick?: () => void }) {
  return (
    <div class={`fact ${tone ?? ""}`}>
      <dt>{name}</dt>
      <dd>{onClick ? <button class="link" onClick={onClick}>{value}</button> : value}</dd>
    </div>
  );
}
