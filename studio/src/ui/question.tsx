// A question of a run to a person, as a form: choices, a form of the answer's schema, or consent to a tool call.

import { useState } from "preact/hooks";
import { useId } from "./id";
import { canChange, post } from "../api";
import type { Schema } from "../data/schema";
import { href } from "../router";
import type { Interaction, Json, JsonObject } from "../types";
import { brief, duration, iso } from "./format";
import { JsonForm } from "./schema-form";
import { JsonTree } from "./json";
import { useNow } from "./now";

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
        <h2 id={id}>{question.question}</h2>
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
            , asked <time dateTime={iso(question.askedAt)}>{roughly(now - question.askedAt)} ago</time>
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
  const [mode, setMode] = useState<"allow" | "edit" | "refuse">("allow");
  const schema: { [mode in typeof mode]: Schema } = {
    allow: { const: "allow", title: " " },
    edit: (consent.schema as Schema | null | undefined) ?? { type: "object", title: "Arguments" },
    refuse: { type: "string", title: "Reason", description: "The model receives it." },
  };
  const answers: { [mode in typeof mode]: (value: Json | undefined) => Json } = {
    allow: () => "allow",
    edit: (value) => ({ decision: "allow", arguments: value ?? {} }),
    refuse: (value) => ({ decision: "refuse", ...(value ? { reason: value } : {}) }),
  };
  return (
    <>
      {mode !== "edit" && <JsonTree value={consent.arguments} name="arguments" />}
      <JsonForm
        key={mode}
        schema={schema[mode]}
        isHidden={mode === "allow"}
        isOptional={mode === "refuse"}
        initial={mode === "edit" ? consent.arguments : undefined}
        submit={{ allow: "Allow", edit: "Allow with these arguments", refuse: "Refuse the call" }[mode]}
        onSubmit={async (value) => {
          await answer(question, answers[mode](value), by);
          onAnswered();
        }}
        buttons={
          mode === "allow" ? (
            <>
              <button type="button" onClick={() => setMode("edit")}>
                Edit the arguments
              </button>
              <button type="button" onClick={() => setMode("refuse")}>
                Refuse…
              </button>
            </>
          ) : (
            <button type="button" onClick={() => setMode("allow")}>
              Back
            </button>
          )
        }
      >
        <Author by={by} onChange={setBy} />
      </JsonForm>
    </>
  );
}
