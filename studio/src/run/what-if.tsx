// "What if" at a node: a fork from before the node with another model profile, prompt, configuration or answer, compared with the run.

import { useState } from "preact/hooks";
import { get, info, post } from "../api";
import type { Schema } from "../data/schema";
import { go, href } from "../router";
import type { Definition, Interaction, Json, JsonObject } from "../types";
import { Dialog } from "../ui/keys";
import { JsonForm } from "../ui/forms/schema-form";
import { forkTo } from "./actions";
import { countUpTo, type Question, type Visit } from "./model/model";
import type { OpenRun } from "./model/open";

/** Milliseconds until the fork must have asked its question, and between two looks for it. */
const ASKED_WITHIN = 30_000;
const LOOK = 200;

export function WhatIf({ run, visit }: { run: OpenRun; visit: Visit }) {
  const [isOpen, setOpen] = useState(false);
  const question = run.model.questions.find((one) => one.thread === visit.thread && one.node === visit.node && one.outcome === "answered" && one.start >= visit.start);
  const workflow = run.definitions.value?.find((one) => one.id === visit.workflow);
  const config = workflow?.nodes.find((one) => one.id === visit.node)?.config;
  // The definition applies to the shared steps too: the step that starts the node prepares its request by the new configuration. An
  // answer is a step of its own.
  const { list, ends } = run.steps.value ?? { list: [], ends: [] };
  const before = list[countUpTo(ends, (question?.end ?? visit.start) - 1, (end) => end) - (question ? 1 : 0)]?.step;
  if (before === undefined || !(question || config)) return null;
  return (
    <section>
      <button onClick={() => setOpen(true)}>What if…</button>
      {isOpen && (
        <Dialog label={`What if at ${visit.node}`} wide onClose={() => setOpen(false)}>
          <p>
            A new run shares the steps up to {before} and makes every later call again, with the change below. Then both runs are compared.
          </p>
          {question ? (
            <JsonForm schema={object({ answer: answerOf(question), ...RUN_ID }, ["answer"])} initial={{ answer: question.answer ?? null }} submit="Fork and compare" onSubmit={(value) => answered(run, question, before, value as JsonObject)} />
          ) : (
            <JsonForm schema={schemaOf(visit, config!)} initial={visit.type === "LLM" ? pick(config!) : { config: config! }} submit="Fork and compare" onSubmit={(value) => configured(run, visit, workflow!, before, value as JsonObject)} />
          )}
        </Dialog>
      )}
    </section>
  );
}

const object = (properties: { [name: string]: Schema }, required: string[] = []): Schema => ({ type: "object", properties, required });
const RUN_ID = { runId: { type: "string", title: "Run id", description: "Empty: the service chooses one." } };

function answerOf(question: Question): Schema {
  const title = { title: question.question };
  if (question.tool) return { ...title, enum: ["allow", "refuse"] };
  if (question.choices?.length) return { ...title, enum: question.choices };
  return { type: "string", ...question.schema, ...title };
}

const LLM = ["profileId", "prompt", "system"];
const pick = (config: JsonObject): JsonObject => Object.fromEntries(LLM.flatMap((name) => (config[name] === undefined ? [] : [[name, config[name]]])));

function schemaOf(visit: Visit, config: JsonObject): Schema {
  if (visit.type !== "LLM") return object({ config: { type: "object", title: `Configuration of ${visit.node}` }, ...RUN_ID }, ["config"]);
  const known = info.value?.profiles ?? [];
  const profiles = [...new Set([...known, ...(config.profileId ? [config.profileId] : [])])];
  return object({
    profileId: { title: "Model profile", ...(profiles.length > 0 ? { enum: profiles } : { type: "string" }) },
    prompt: { type: "string", title: "Prompt" },
    system: { type: "string", title: "System message" },
    ...RUN_ID,
  });
}

async function configured(run: OpenRun, visit: Visit, workflow: Definition, step: number, { runId, ...value }: JsonObject): Promise<void> {
  const change = (config: JsonObject = {}): JsonObject => {
    if (visit.type !== "LLM") return value.config as JsonObject;
    const rest = Object.entries(config).filter(([name]) => !LLM.includes(name));
    return { ...Object.fromEntries(rest), ...value };
  };
  const nodes = workflow.nodes.map((node) => (node.id === visit.node ? { ...node, config: change(node.config) } : node));
  await forkTo(run, { step, runId, workflows: [{ ...workflow, nodes }] as Json });
}

/** Forks from before the answer, and gives another one when the fork has asked the question. */
async function answered(run: OpenRun, question: Question, step: number, { runId, answer }: JsonObject): Promise<void> {
  const id = await forkTo(run, { step, runId }, false);
  const path = `/runs/${encodeURIComponent(id)}/interactions`;
  for (let waited = 0; waited < ASKED_WITHIN; waited += LOOK) {
    const { interactions } = await get<{ interactions: Interaction[] }>(path);
    const asked = interactions.find((one) => one.nodeId === question.node && one.question === question.question);
    if (asked) {
      await post(`/interactions/${encodeURIComponent(asked.id)}`, { answer: answer ?? null });
      return go(href(["compare", run.id, id]));
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK));
  }
  throw new Error(`The fork ${id} has not asked the question within ${ASKED_WITHIN / 1000} s. Answer it in the view Questions.`);
}
