// A question of a run to a person, as a form: choices, a form of the answer's schema, or consent to a tool call.

import { useId } from "../id";
import { canChange } from "../../api";
import { lazy } from "../../lazy";
import { href } from "../../router";
import type { Interaction, Json, JsonObject } from "../../types";
import { choiceTexts, duration, iso } from "../text/format";
import { JsonTree } from "../text/json";
import { useNow } from "../now";

const AnswerForm = lazy("AnswerForm");
const ConsentForm = lazy("ConsentForm");
const Plan = lazy("Plan");

export interface Consent {
  name: string;
  arguments: JsonObject;
  reason?: string;
  schema?: JsonObject | null;
}

/** The tool call that a question is about; undefined for a question of a node. */
function consentOf(question: Interaction): Consent | undefined {
  const { tool } = question;
  if (!tool) return undefined;
  if (typeof tool === "string") return { name: tool, arguments: question.arguments ?? {}, schema: question.schema };
  return { ...tool, arguments: tool.arguments ?? question.arguments ?? {} };
}

/** End of the time to answer, in milliseconds since 1970. */
function expiryOf(question: Interaction): number | undefined {
  if (question.expiresAt) return question.expiresAt;
  return question.timeoutMs && question.askedAt ? question.askedAt + question.timeoutMs : undefined;
}

/** A question with its form. `onAnswered` is called after the service has accepted the answer. */
export function QuestionCard({ question, onAnswered, showRun }: { question: Interaction; onAnswered: () => void; showRun?: boolean }) {
  const consent = consentOf(question);
  const plan = consent && planOf(question, consent);
  const now = useNow(true);
  const id = useId();
  return (
    <article class="card question" aria-labelledby={id}>
      <header>
        <h2 id={id}>{plan ? plan.title : question.question}</h2>
        <Remaining question={question} now={now} />
      </header>
      <p class="dim">
        {showRun && (
          <>
            Run <a href={href(["runs", question.runId, "graph"], { node: question.nodeId })}>{question.runId}</a> ({question.workflowId}),{" "}
          </>
        )}
        {consent ? "tool" : "node"} <code>{consent ? consent.name : question.nodeId}</code>
        {question.assignee && <> for <bdi>{question.assignee}</bdi></>}
        {question.askedAt !== undefined && (
          <>
            , asked <time dateTime={iso(question.askedAt)}>{roughly(now - question.askedAt)} ago</time>
          </>
        )}
      </p>
      {plan ? <Plan id={question.id} text={plan.text} /> : consent?.reason && <p>{consent.reason}</p>}
      {!canChange() ? (
        <ReadOnly question={question} consent={consent} />
      ) : consent ? (
        <ConsentForm question={question} consent={consent} onAnswered={onAnswered} />
      ) : (
        <AnswerForm question={question} onAnswered={onAnswered} />
      )}
    </article>
  );
}

/** The title and the limits of a workflow that a model wrote; the rest of the question is its graph as text, which the page draws. */
function planOf(question: Interaction, consent: Consent): { title: string; text: string } | undefined {
  if (consent.name !== "run_workflow" || !consent.arguments.graph || !consent.reason) return undefined;
  const [text = "", graph] = consent.reason.split(/:?\nflowchart /);
  if (graph === undefined) return undefined;
  return { title: question.question.split(text)[0]!.trim(), text };
}

/** A duration without fractions of seconds. */
const roughly = (ms: number): string => duration(Math.max(0, Math.ceil(ms / 1000)) * 1000).replace(/^0 ms/, "0 s").replace(/\.\d+ s/, " s");

function Remaining({ question, now }: { question: Interaction; now: number }) {
  const expiry = expiryOf(question);
  if (expiry === undefined) return null;
  const left = expiry - now;
  return (
    <span class={`remaining ${left < 60_000 ? "soon" : ""}`} role="timer">
      {left > 0 ? `${roughly(left)} left` : "time is over"}
    </span>
  );
}

function ReadOnly({ question, consent }: { question: Interaction; consent?: Consent }) {
  if (consent) return <JsonTree value={consent.arguments} name="arguments" />;
  if (question.choices?.length) return <p>Choices: {choiceTexts(question.choices as Json[]).join(", ")}</p>;
  return question.schema ? <JsonTree value={question.schema} name="schema" open={false} /> : null;
}
