// A run as a test: scripted profiles that reply as the models did, and the command that compares the output.

import { stringify } from "../data/json";
import { get } from "../api";
import { shellQuoted } from "../data/convert";
import { initialLength } from "../data/conversation";
import type { Json, Message, RequestDetail } from "../types";
import { CopyButton } from "../ui/clipboard";
import { contentText, pretty } from "../ui/text/format";
import type { OpenRun } from "./model/open";

/** Delay of a reply that the run has not awaited: its branch is cancelled before. */
const NEVER = 3_600_000;
/** Characters of a user message by which a reply is chosen. */
const MATCH = 200;
const MAX_REQUESTS = 1000;

export function CopyAsTest({ run }: { run: OpenRun }) {
  return <CopyButton label="Copy the run as a test" text={() => testOf(run)} />;
}

async function testOf(run: OpenRun): Promise<string> {
  const items = run.requests.value ?? [];
  if (items.length > MAX_REQUESTS) throw new Error(`the run has more than ${MAX_REQUESTS} model requests`);
  const details: RequestDetail[] = [];
  for (const item of items) details.push(await get<RequestDetail>(run.path(`/requests/${encodeURIComponent(item.effectId)}`)));
  const input = (run.model.threadList[0]?.visits[0]?.output ?? null) as Json;
  const answers = run.model.questions.filter((one) => one.outcome === "answered").map((one): [string, Json] => [one.node, one.answer ?? null]);
  const { messages = [], from = 0 } = run.report.value?.conversation ?? {};
  const initial = from > 0 ? [] : messages.slice(0, initialLength(run.model.events, run.model.threadList[0]?.id ?? "", messages.length));
  const tools = [...new Set(run.model.calls.flatMap((call) => call.name ?? []))];
  return testText({ name: run.id, details, input, answers, initial, tools, workflow: run.model.workflow, output: run.report.value?.output, error: run.report.value?.error?.code });
}

export interface RecordedRun {
  name: string;
  workflow: string;
  details: Pick<RequestDetail, "profileId" | "durationMs" | "finishReason" | "request" | "response" | "error">[];
  input: Json;
  answers: [node: string, answer: Json][];
  /** Messages with which the run started. */
  initial: Message[];
  /** Names of the called tools. */
  tools: string[];
  output?: Json;
  error?: string;
}

/** A shell script: files with the profiles, the conversation and the output, and the command that compares the output. */
export function testText({ name, workflow, details, input, answers, initial, tools, output, error }: RecordedRun): string {
  const file = (path: string, value: unknown) => `cat > ${path} <<'END_OF_FILE'\n${pretty(value)}\nEND_OF_FILE\n`;
  const command = [
    `pirn run WORKFLOW.json --workflow ${workflow} --profiles ${name}.profiles.json --virtual-time --quiet`,
    `--input ${shellQuoted(stringify(input))}`,
    ...answers.map(([node, answer]) => `--answer ${shellQuoted(`${node}=${stringify(answer)}`)}`),
    ...(initial.length > 0 ? [`--conversation ${name}.conversation.json`] : []),
  ].join(" \\\n  ");
  return [
    "#!/bin/sh",
    `# The run ${name} as a test: its models reply as recorded. Replace WORKFLOW.json by the files of the workflow.`,
    ...(tools.length > 0 ? [`# The run calls tools: add "tools" to ${name}.profiles.json, from your pirn.toml: ${tools.join(", ")}.`] : []),
    "set -e",
    file(`${name}.profiles.json`, { profiles: profilesOf(details) }),
    initial.length > 0 ? file(`${name}.conversation.json`, initial) : "",
    error === undefined
      ? `${file(`${name}.expected.json`, output ?? null)}${command} > ${name}.output.json\ndiff ${name}.expected.json ${name}.output.json`
      : `${command} --output json > ${name}.output.json || true\ngrep -q '"code": "${error}"' ${name}.output.json`,
    "",
  ].join("\n");
}

/** One scripted profile for each profile of the run. A reply is chosen by the last user message, in the order of the requests. */
function profilesOf(details: RecordedRun["details"]): Json[] {
  const found = new Map<string, Json[]>();
  for (const { profileId, durationMs, finishReason, request, response, error } of details) {
    const id = profileId ?? "default";
    const { content, toolCalls } = response?.message ?? {};
    const user = request.messages.findLast((message) => message.role === "user");
    const reply = {
      ...(user && { match: `^${escaped(contentText(user.content).slice(0, MATCH))}` }),
      ...(error && response === undefined ? { error: error.message } : { content: contentText(content) }),
      ...(toolCalls?.length && { toolCalls: toolCalls.map((call) => ({ id: call.id, name: call.name, arguments: call.arguments })) }),
      ...(finishReason && !/^(stop|tool_calls?)$/.test(finishReason) && { finishReason }),
      delayMs: response || error ? Math.round(durationMs ?? 0) : NEVER,
    };
    found.set(id, [...(found.get(id) ?? []), reply as unknown as Json]);
  }
  return [...found].map(([id, responses]) => ({ id, provider: "scripted", responses }));
}

const escaped = (text: string): string => text.replace(/[\\.+*?()|[\]{}^$#&~-]/g, "\\$&");
