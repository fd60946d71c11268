// A question of a run to a person, as a form: choices, a form of the answer's schema, or consent to a tool call.

import { useId, useState } from "preact/hooks";
import { canChange, post } from "../api";
import { parseJson, type Schema } from "../data/schema";
import { href } from "../router";
import type { Interaction, Json, JsonObject } from "../types";
import { brief, duration, iso } from "./format";
import { JsonForm } from "./schema-form";
import { JsonTree } from "./json";
import { useNow } from "./now";
import { ProblemBox, toProblem } from "./resource";
import type { Problem } from "../api";

interface Consent {
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
  const now = useNow(true);
  const id = useId();
  return (
    <article class="card question" aria-labelledby={id}>
      <header>
        <h3 id={id}>{question.question}</h3>
        <Remaining question={question} now={now} />
      </header>
      <p class="dim">
        {showRun && (
          <>
            Run <a href={href(["runs", question.runId, "graph"], { node: question.nodeId })}>{question.runId}</a> ({question.workflowId}),{" "}
          </>
        )}
        {consent ? "tool" : "node"} <code>{consent ? consent.name : question.nodeId}</code>
        {question.assignee && <> for {question.assignee}</>}
        {question.askedAt !== undefined && (
          <>
            , asked <time dateTime={iso(question.askedAt)}>{duration(Math.max(0, now - question.askedAt))} ago</time>
          </>
        )}
      </p>
      {consent?.reason && <p>{consent.reason}</p>}
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

function Remaining({ question, now }: { question: Interaction; now: number }) {
  const expiry = expiryOf(question);
  if (expiry === undefined) return null;
  const left = expiry - now;
  return (
    <span class={`remaining ${left < 60_000 ? "soon" : ""}`} role="timer">
      {left > 0 ? `${duration(Math.ceil(left / 1000) * 1000).replace(/\.\d+ s/, " s")} left` : "time is over"}
    </span>
  );
}

function ReadOnly({ question, consent }: { question: Interaction; consent?: Consent }) {
  if (consent) return <JsonTree value={consent.arguments} name="arguments" />;
  if (question.choices?.length) return <p>Choices: {question.choices.map((choice) => brief(choice as Json)).join(", ")}</p>;
  return question.schema ? <JsonTree value={question.schema} name="schema" open={false} /> : null;
}

async function answer(question: Interaction, value: Json, by: string): Promise<void> {
  await post(`/interactions/${encodeURIComponent(question.id)}`, { answer: value, ...(by.trim() ? { by: by.trim() } : {}) });
}

const AUTHOR = "pirn-author";

function useAuthor() {
  const [by, setBy] = useState(() => sessionStorage.getItem(AUTHOR) ?? "");
  const change = (name: string) => {
    sessionStorage.setItem(AUTHOR, name);
    setBy(name);
  };
  return [by, change] as const;
}

function Author({ by, onChange }: { by: string; onChange: (name: string) => void }) {
  const id = useId();
  return (
    <div class="field inline">
      <label for={id}>
        Your name <span class="dim">(recorded with the answer)</span>
      </label>
      <input id={id} autocomplete="name" value={by} onInput={(event) => onChange(event.currentTarget.value)} />
    </div>
  );
}

function AnswerForm({ question, onAnswered }: { question: Interaction; onAnswered: () => void }) {
  const [by, setBy] = useAuthor();
  const choices = question.choices as Json[] | null | undefined;
  // Without a schema, an answer is a text.
  const schema: Schema = choices?.length ? { title: "Answer", enum: choices } : ((question.schema as Schema | null | undefined) ?? { title: "Answer", type: "string", minLength: 1 });
  return (
    <JsonForm
      schema={schema}
      label="Answer"
      submit="Answer"
      onSubmit={async (value) => {
        await answer(question, value ?? null, by);
        onAnswered();
      }}
    >
      <Author by={by} onChange={setBy} />
    </JsonForm>
  );
}

function ConsentForm({ question, consent, onAnswered }: { question: Interaction; consent: Consent; onAnswered: () => void }) {
  const [by, setBy] = useAuthor();
  const [mode, setMode] = useState<"decide" | "edit" | "refuse">("decide");
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const id = useId();
  const send = async (value: Json) => {
    await answer(question, value, by);
    onAnswered();
  };
  const decide = async (value: Json) => {
    setBusy(true);
    setProblem(undefined);
    try {
      await send(value);
    } catch (error) {
      setProblem(toProblem(error));
    } finally {
      setBusy(false);
    }
  };
  if (mode === "edit") {
    return (
      <JsonForm
        schema={(consent.schema as Schema | null | undefined) ?? true}
        initial={consent.arguments}
        label="Arguments"
        submit="Allow with these arguments"
        onSubmit={(value) => send({ decision: "allow", arguments: value ?? {} })}
        buttons={
          <button type="button" onClick={() => setMode("decide")}>
            Back
          </button>
        }
      >
        <Author by={by} onChange={setBy} />
      </JsonForm>
    );
  }
  return (
    <div class="form">
      <JsonTree value={consent.arguments} name="arguments" />
      <Author by={by} onChange={setBy} />
      {mode === "refuse" && (
        <div class="field">
          <label for={id}>
            Reason <span class="dim">(the model receives it)</span>
          </label>
          <textarea id={id} rows={2} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
        </div>
      )}
      {problem && <ProblemBox problem={problem} />}
      <div class="actions">
        {mode === "decide" ? (
          <>
            <button class="primary" disabled={busy} onClick={() => decide("allow")}>
              Allow
            </button>
            <button disabled={busy} onClick={() => setMode("edit")}>
              Edit the arguments
            </button>
            <button disabled={busy} onClick={() => setMode("refuse")}>
              Refuse…
            </button>
          </>
        ) : (
          <>
            <button class="primary danger" disabled={busy} onClick={() => decide({ decision: "refuse", ...(reason.trim() ? { reason: reason.trim() } : {}) })}>
              Refuse the call
            </button>
            <button onClick={() => setMode("decide")}>Back</button>
          </>
        )}
      </div>
    </div>
  );
}

/** Reads JSON, or takes the text as a string. */
export function valueFrom(text: string): Json {
  const parsed = parseJson(text);
  return "value" in parsed ? parsed.value : text;
}
