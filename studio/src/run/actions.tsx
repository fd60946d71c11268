// Actions on a run: fork from the cursor, pin, emit, pause, resume, park, cancel. Each dialog is a form of a schema.

import { stringify } from "../data/json";
import { useState } from "preact/hooks";
import { info, post, type Problem } from "../api";
import type { Schema } from "../data/schema";
import { go, href } from "../router";
import type { Json, JsonObject, Report } from "../types";
import { Dialog } from "../ui/keys";
import { ProblemBox, toProblem } from "../ui/resource";
import { JsonForm } from "../ui/forms/schema-form";
import { FINAL, type OpenRun } from "./model/open";

interface Action {
  label: string;
  submit: string;
  hint?: string;
  schema: Schema;
  initial?: Json;
  /** Returns a notice; undefined after a navigation. */
  send: (value: JsonObject) => Promise<string | undefined>;
}

/** `report` is that of the step once it is known. */
export function Actions({ run, step, report }: { run: OpenRun; step?: number; report?: Report }) {
  const [opened, open] = useState<Action>();
  const [notice, setNotice] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const isActive = !run.ended.value;
  const hasStore = info.value?.store !== false;
  const done = (text: string | undefined) => {
    open(undefined);
    setNotice(text ?? "");
    void run.refresh();
  };
  const act = (name: string, text: string) => {
    setProblem(undefined);
    post(run.path(`/${name}`)).then(
      () => {
        if (name === "resume") run.follow();
        done(text);
      },
      (error) => setProblem(toProblem(error)),
    );
  };
  return (
    <section class="run-actions" aria-label="Actions">
      <div class="buttons">
        <button class="primary" disabled={!hasStore || step === undefined || !report} title={hasStore ? undefined : "Forks need a store: start the service with --store FILE"} onClick={() => open(fork(run, step!, report))}>
          Fork from {step === undefined ? "here" : `step ${step}`}…
        </button>
        {isActive && (
          <>
            <button onClick={() => open(emit(run))}>Emit an event…</button>
            <button onClick={() => open(pin(run))}>Pin a section…</button>
            <button onClick={() => act("pause", "The run pauses at its next safe point.")}>Pause</button>
          </>
        )}
        {(isActive || !FINAL.has(run.status.value)) && <button onClick={() => act("resume", "The run resumes.")}>Resume</button>}
        {isActive && (
          <>
            {hasStore && <button onClick={() => act("park", "The run is released; resume continues it.")}>Park</button>}
            <button class="danger" onClick={() => open(cancel(run))}>
              Cancel the run…
            </button>
          </>
        )}
      </div>
      <p role="status" class="dim">
        {notice}
      </p>
      {problem && <ProblemBox problem={problem} />}
      {opened && (
        <Dialog label={opened.label} wide onClose={() => open(undefined)}>
          <p>{opened.hint}</p>
          <JsonForm schema={opened.schema} initial={opened.initial} submit={opened.submit} onSubmit={async (value) => done(await opened.send((value ?? {}) as JsonObject))} />
        </Dialog>
      )}
    </section>
  );
}

/** Forks a run, and opens the comparison of both unless it comes later. Returns the id of the fork. */
export async function forkTo(run: OpenRun, body: { [name: string]: Json | undefined }, opens = true): Promise<string> {
  const { runId } = await post<{ runId: string }>(run.path("/fork"), body);
  if (opens) go(href(["compare", run.id, runId]));
  return runId;
}

const object = (properties: { [name: string]: Schema }, required: string[] = []): Schema => ({ type: "object", properties, required });

function fork(run: OpenRun, step: number, report: Report | undefined): Action {
  const set = report?.variables ?? {};
  const input = (run.model.threadList[0]?.visits[0]?.output ?? null) as Json;
  const variables = Object.keys(set).map((name): [string, Schema] => [name, { title: `Variable ${name}` }]);
  const isChanged = (value: Json | undefined, old: Json | undefined) => value !== undefined && stringify(value) !== stringify(old);
  return {
    label: `Fork from step ${step}`,
    submit: "Fork and compare",
    hint: `A new run starts that shares the steps up to ${step}. Its later calls are made again; a request that step ${step} has prepared keeps its text. Then both runs are compared.`,
    schema: object({
      ...(variables.length > 0 && { set: { title: "Variables", ...(object(Object.fromEntries(variables)) as object) } }),
      input: { title: "Input", description: "A changed input replaces that of the run in the new one." },
      runId: { type: "string", title: "Run id", description: "Empty: the service chooses one." },
    }),
    initial: { set, input },
    async send(value) {
      const changed = Object.entries((value.set ?? {}) as JsonObject).filter(([name, one]) => isChanged(one, set[name]));
      const body = { step, runId: value.runId, set: Object.fromEntries(changed), input: isChanged(value.input, input) ? value.input : undefined };
      await forkTo(run, body);
      return undefined;
    },
  };
}

const pin = (run: OpenRun): Action => ({
  label: "Pin a section",
  submit: "Pin",
  schema: object(
    {
      section: { enum: ["role", "todo", "usefulInfo", "folderNotes"], title: "Section" },
      value: {
        title: "Value",
        description: 'A text; or [{"content": "...", "status": "open"}] for todo, [{"text": "..."}] for usefulInfo, {"folder": ["..."]} for folderNotes. Empty: the section is removed.',
      },
    },
    ["section"],
  ),
  initial: { section: "todo" },
  async send({ section, value }) {
    await post(run.path("/pin"), { section, value: value ?? null });
    return `The section ${section} is pinned from the next request on.`;
  },
});

const emit = (run: OpenRun): Action => ({
  label: "Emit an event",
  submit: "Emit",
  hint: "WAIT nodes and triggers of the run receive the CUSTOM event.",
  schema: object({ name: { type: "string", minLength: 1, title: "Name" }, data: { type: "object", title: "Data" } }, ["name"]),
  initial: { name: waitedFor(run) },
  async send(value) {
    await post(run.path("/emit"), value);
    return `The event ${value.name} was raised.`;
  },
});

/** Name of the event for which a WAIT of the run waits. */
function waitedFor(run: OpenRun): string {
  const waiting = run.model.visits.find((visit) => visit.type === "WAIT" && visit.end === undefined);
  const workflow = run.definitions.value?.find((one) => one.id === waiting?.workflow);
  return (workflow?.nodes.find((node) => node.id === waiting?.node)?.config?.event ?? "") as string;
}

const cancel = (run: OpenRun): Action => ({
  label: "Cancel the run",
  submit: "Cancel the run",
  hint: "The run and everything that it started end with the status CANCELLED.",
  schema: object({ reason: { type: "string", title: "Reason", description: "Shown in the run's report." } }),
  async send(value) {
    await post(run.path("/cancel"), value);
    return "The run is cancelled at its next safe point.";
  },
});
