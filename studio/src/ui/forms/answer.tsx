// The forms of a question to a person: choices, a form of the answer's schema, or consent to a tool call.

import { useState } from "preact/hooks";
import { useId } from "../id";
import { post } from "../../api";
import type { Schema } from "../../data/schema";
import type { Interaction, Json } from "../../types";
import { JsonTree } from "../text/json";
import type { Consent } from "./question";
import { Loaded, useResource } from "../resource";
import { JsonForm } from "./schema-form";

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

export function AnswerForm({ question, onAnswered }: { question: Interaction; onAnswered: () => void }) {
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

/** The limits and the drawing of a workflow that a model wrote. */
export function Plan({ id, text }: { id: string; text: string }) {
  const drawing = useResource<string>(`/interactions/${encodeURIComponent(id)}/drawing?format=svg`);
  return (
    <>
      <p>{text}</p>
      {/* An image executes no scripts. */}
      <Loaded resource={drawing}>{(svg) => <img src={`data:image/svg+xml,${encodeURIComponent(svg)}`} class="plan" alt="Drawing of the workflow" />}</Loaded>
    </>
  );
}

export function ConsentForm({ question, consent, onAnswered }: { question: Interaction; consent: Consent; onAnswered: () => void }) {
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
