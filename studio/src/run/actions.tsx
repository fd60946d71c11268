// Actions on a run: fork from the cursor, pin, emit, pause, resume, park, cancel.

import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { info, post, Problem } from "../api";
import { parseJson } from "../data/schema";
import { go, href } from "../router";
import type { Json, JsonObject, Report } from "../types";
import { Dialog } from "../ui/keys";
import { ProblemBox, toProblem } from "../ui/resource";
import { editable } from "./state";
import type { OpenRun } from "./open";

type Opened = "fork" | "pin" | "emit" | "cancel";

export function Actions({ run, report }: { run: OpenRun; report?: Report }) {
  const [opened, open] = useState<Opened>();
  const [notice, setNotice] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const hasEnded = run.ended.value;
  const hasStore = info.value?.store !== false;
  const step = run.cursor.step.value;
  const act = async (name: string, done: string) => {
    setProblem(undefined);
    try {
      await post(run.path(`/${name}`));
      setNotice(done);
      run.refresh();
    } catch (error) {
      setProblem(toProblem(error));
    }
  };
  const close = (message?: string) => {
    open(undefined);
    if (message) {
      setNotice(message);
      run.refresh();
    }
  };
  const dialogs = { fork: ForkDialog, pin: PinDialog, emit: EmitDialog, cancel: CancelDialog };
  const Shown = opened && dialogs[opened];
  return (
    <section class="run-actions" aria-label="Actions">
      <div class="buttons">
        <button class="primary" disabled={!hasStore || step === undefined} title={hasStore ? undefined : "Forks need a store: start the service with --store FILE"} onClick={() => open("fork")}>
          Fork from {step === undefined ? "here" : `step ${step}`}…
        </button>
        {!hasEnded && (
          <>
            <button onClick={() => open("emit")}>Emit an event…</button>
            <button onClick={() => open("pin")}>Pin a section…</button>
            <button onClick={() => void act("pause", "The run pauses at its next safe point.")}>Pause</button>
          </>
        )}
        {(!hasEnded || run.status.value === "UNFINISHED") && <button onClick={() => void act("resume", "The run resumes.")}>Resume</button>}
        {!hasEnded && (
          <>
            {hasStore && <button onClick={() => void act("park", "The run is released; resume continues it.")}>Park</button>}
            <button class="danger" onClick={() => open("cancel")}>
              Cancel the run…
            </button>
          </>
        )}
      </div>
      <p role="status" class="dim">
        {notice}
      </p>
      {problem && <ProblemBox problem={problem} />}
      {Shown && <Shown run={run} report={report} onClose={close} />}
    </section>
  );
}

interface DialogProps {
  run: OpenRun;
  report?: Report;
  onClose: (notice?: string) => void;
}

/** A form in a dialog: sends, shows a problem, or closes with a notice. */
function ActionForm(props: { label: string; submit: string; danger?: boolean; onClose: (notice?: string) => void; send: () => Promise<string | undefined>; children: ComponentChildren }) {
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      props.onClose(await props.send());
    } catch (error) {
      setProblem(toProblem(error));
      setBusy(false);
    }
  };
  return (
    <Dialog label={props.label} wide onClose={() => props.onClose()}>
      <form onSubmit={submit}>
        {props.children}
        {problem && <ProblemBox problem={problem} />}
        <div class="actions">
          <button type="button" onClick={() => props.onClose()}>
            Back
          </button>
          <button type="submit" class={props.danger ? "danger" : "primary"} disabled={busy}>
            {busy ? "Sending…" : props.submit}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function TextField(props: { label: string; value: string; onInput: (text: string) => void; hint?: string; rows?: number; isCode?: boolean; required?: boolean }) {
  const id = useId();
  const common = { id, value: props.value, required: props.required, "aria-describedby": props.hint ? `${id}-hint` : undefined };
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.rows ? (
        <textarea {...common} class={props.isCode ? "mono" : undefined} spellcheck={!props.isCode} rows={props.rows} onInput={(event) => props.onInput(event.currentTarget.value)} />
      ) : (
        <input {...common} onInput={(event) => props.onInput(event.currentTarget.value)} />
      )}
      {props.hint && (
        <p id={`${id}-hint`} class="hint">
          {props.hint}
        </p>
      )}
    </div>
  );
}

/** Reads JSON of a field; throws a problem that names the field. */
function jsonOf(field: string, text: string): Json {
  const parsed = parseJson(text);
  if ("error" in parsed) throw new Problem("INVALID_JSON", 0, `${field}: ${parsed.error}`);
  return parsed.value;
}

function ForkDialog({ run, report, onClose }: DialogProps) {
  const step = run.cursor.step.value ?? 0;
  const given = run.model.threadList[0]?.visits[0]?.output;
  const input = editable(given);
  const variables = Object.entries(report?.variables ?? {});
  const [inputText, setInput] = useState(input);
  const [texts, setTexts] = useState<{ [name: string]: string }>(() => Object.fromEntries(variables.map(([name, value]) => [name, editable(value)])));
  const [runId, setRunId] = useState("");
  const send = async () => {
    const set: JsonObject = {};
    for (const [name, value] of variables) if (texts[name] !== editable(value)) set[name] = jsonOf(`Variable ${name}`, texts[name]!);
    const body = {
      step,
      ...(runId.trim() ? { runId: runId.trim() } : {}),
      ...(Object.keys(set).length ? { set } : {}),
      ...(inputText !== input ? { input: jsonOf("Input", inputText) } : {}),
    };
    const fork = await post<{ runId: string }>(run.path("/fork"), body);
    go(href(["compare", run.id, fork.runId]));
    return undefined;
  };
  return (
    <ActionForm label={`Fork from step ${step}`} submit="Fork and compare" onClose={onClose} send={send}>
      <p>A new run starts that shares the first {step} steps. Its calls from there on are made again. Then both runs are compared.</p>
      {variables.map(([name]) => (
        <TextField key={name} label={`Variable ${name} (JSON)`} value={texts[name]!} rows={Math.min(6, texts[name]!.split("\n").length)} isCode onInput={(text) => setTexts({ ...texts, [name]: text })} />
      ))}
      <TextField label="Input (JSON)" value={inputText} rows={Math.min(8, Math.max(2, inputText.split("\n").length))} isCode onInput={setInput} hint="A changed input replaces that of the run in the new one." />
      <TextField label="Run id" value={runId} onInput={setRunId} hint="Empty: the service chooses one." />
    </ActionForm>
  );
}

const SECTIONS: [string, string][] = [
  ["role", "Role: a text"],
  ["todo", 'TODO list: a text, or [{"content": "...", "status": "open"}]'],
  ["usefulInfo", 'Useful information: a text, or [{"text": "..."}]'],
  ["folderNotes", 'Folder notes: a text, or {"folder": ["..."]}'],
];

function PinDialog({ run, onClose }: DialogProps) {
  const [section, setSection] = useState("todo");
  const [text, setText] = useState("");
  const id = useId();
  const send = async () => {
    const isJson = /^\s*[[{]/.test(text) || text.trim() === "null";
    await post(run.path("/pin"), { section, value: text.trim() === "" ? null : isJson ? jsonOf("Value", text) : text });
    return `The section ${section} is pinned from the next request on.`;
  };
  return (
    <ActionForm label="Pin a section" submit="Pin" onClose={onClose} send={send}>
      <div class="field">
        <label for={id}>Section</label>
        <select id={id} value={section} onChange={(event) => setSection(event.currentTarget.value)}>
          {SECTIONS.map(([name]) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </div>
      <TextField label="Value" value={text} rows={5} onInput={setText} hint={`${SECTIONS.find(([name]) => name === section)![1]}. Empty: the section is removed.`} />
    </ActionForm>
  );
}

function EmitDialog({ run, onClose }: DialogProps) {
  const [name, setName] = useState(waitedFor(run));
  const [data, setData] = useState("{}");
  const send = async () => {
    await post(run.path("/emit"), { name: name.trim(), data: data.trim() === "" ? {} : jsonOf("Data", data) });
    return `The event ${name.trim()} was raised.`;
  };
  return (
    <ActionForm label="Emit an event" submit="Emit" onClose={onClose} send={send}>
      <TextField label="Name" value={name} required onInput={setName} hint="WAIT nodes and triggers of the run receive the CUSTOM event." />
      <TextField label="Data (JSON object)" value={data} rows={4} isCode onInput={setData} />
    </ActionForm>
  );
}

/** Name of the event for which a WAIT of the run waits. */
function waitedFor(run: OpenRun): string {
  const waiting = run.model.visits.find((visit) => visit.type === "WAIT" && visit.end === undefined);
  if (!waiting) return "";
  const workflow = run.definitions.value?.find((one) => one.id === waiting.workflow);
  const config = workflow?.nodes.find((node) => node.id === waiting.node)?.config;
  return typeof config?.event === "string" ? config.event : "";
}

function CancelDialog({ run, onClose }: DialogProps) {
  const [reason, setReason] = useState("");
  const send = async () => {
    await post(run.path("/cancel"), reason.trim() ? { reason: reason.trim() } : {});
    return "The run is cancelled at its next safe point.";
  };
  return (
    <ActionForm label="Cancel the run" submit="Cancel the run" danger onClose={onClose} send={send}>
      <p>The run and everything that it started end with the status CANCELLED.</p>
      <TextField label="Reason" value={reason} onInput={setReason} hint="Shown in the run's report." />
    </ActionForm>
  );
}
