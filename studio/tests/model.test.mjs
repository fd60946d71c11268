// The fold of a run's events, against the reports of the same runs.
import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { loadModule } from "./support/bundle.mjs";
import { findPirn, root } from "./support/server.mjs";
import { FAILING } from "./support/workflows.mjs";

const pirn = findPirn();
const { RunModel, statusAt } = await loadModule("src/run/model/model.ts");
let folder;
before(async () => (folder = await mkdtemp(join(tmpdir(), "studio-model-"))));
after(() => rm(folder, { recursive: true, force: true }));

/** Runs a workflow and returns its report and the model of its events. */
async function run(file, args = []) {
  const events = join(folder, "events.jsonl");
  await rm(events, { force: true });
  const done = spawnSync(pirn, ["run", file, "--output", "json", "--events", events, ...args], { cwd: root, encoding: "utf8" });
  const lines = (await readFile(events, "utf8")).trim().split("\n").map((line) => JSON.parse(line));
  return { report: JSON.parse(done.stdout), lines, model: fold(lines) };
}

function fold(events) {
  const model = new RunModel();
  for (const event of events) model.apply(event);
  return model;
}

function assertEqualsReport(model, report) {
  const main = model.threadList[0];
  assert.equal(main.status, report.status);
  assert.deepEqual(main.output ?? null, report.output ?? null);
  assert.equal(main.error?.code, report.error?.code);
  assert.deepEqual(
    model.threadList.map((thread) => ({ threadId: thread.id, kind: thread.kind, workflowId: thread.workflow, pathId: thread.path, status: thread.status })).sort(byId),
    report.threads.map(({ threadId, kind, workflowId, pathId, status }) => ({ threadId, kind, workflowId, pathId, status })).sort(byId),
  );
  // The report has one item for each entry into a node, with the number of its attempts.
  const last = new Map();
  for (const visit of main.visits) last.set(`${visit.node}/${visit.round}`, visit);
  assert.deepEqual(
    [...last.values()].map((visit) => ({ nodeId: visit.node, status: visit.status, attempts: visit.attempt })).sort(byId),
    report.nodes.map(({ nodeId, status, attempts }) => ({ nodeId, status, attempts })).sort(byId),
  );
  assert.deepEqual(
    model.firings.map((firing) => ({ firing: firing.firing, triggerId: firing.trigger, threadId: firing.child, mainThreadId: firing.thread })),
    (report.firings ?? []).map(({ firing, triggerId, threadId, mainThreadId }) => ({ firing, triggerId, threadId, mainThreadId })),
  );
}
const byId = (a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);

const EXAMPLES = {
  "support-desk": ["examples/support-desk/workflow.json", ["--conversation", "examples/support-desk/conversation.json", "--input", "@examples/support-desk/ticket.json"]],
  research: ["examples/research.json", ["--input", '{"question": "What is a pirn?", "sources": ["dictionary", "museum", "newspaper", "library", "weaver"]}']],
  refine: ["examples/refine.json", ["--input", '"no looms on Friday"']],
  approval: ["examples/approval/workflow.json", ["--input", '{"supplier": "Halden Mills", "amount": 1200}', "--answer", "legal=approve", "--answer", "finance=reject"]],
};

describe("the fold of events", { skip: pirn ? false : "there is no pirn command (set PIRN, or cargo build -p pirn-cli)" }, () => {
  for (const [name, [file, args]] of Object.entries(EXAMPLES)) {
    it(`of ${name} is the report of the run`, async () => {
      const { model, report } = await run(file, args);
      assertEqualsReport(model, report);
    });
  }

  it("names the agents of a script by their labels", async () => {
    const { model } = await run("examples/dynamic/review.js", ["--input", '{"plan": "ship"}']);
    const names = model.threadList.map((thread) => thread.name);
    assert.deepEqual(names.slice(0, 2), ["review", "find"]);
    assert.ok(names.slice(2).every((name) => ["cost", "safety", "time"].includes(name)), names.join());
  });

  it("of a failed run with retries is its report, and retries stay visible", async () => {
    const file = join(folder, "failing.json");
    await writeFile(file, JSON.stringify(FAILING));
    const { model, report } = await run(file);
    assertEqualsReport(model, report);
    const attempts = model.visits.filter((visit) => visit.node === "unstable");
    assert.deepEqual(attempts.map((visit) => [visit.attempt, visit.status]), [[1, "FAILED"], [2, "FAILED"], [3, "FAILED"]]);
  });

  it("names the branches, the decision and the cancelled branch of a join", async () => {
    const { model } = await run(...EXAMPLES["support-desk"]);
    const join = model.joins.find((one) => one.node === "reviewed");
    assert.deepEqual(join.fork.branches.map((thread) => [thread.path, thread.status]), [["facts", "COMPLETED"], ["tone", "COMPLETED"], ["lawyer", "CANCELLED"]]);
    assert.equal(join.status, "COMPLETED");
    assert.equal(model.firings.length, 3);
    assert.deepEqual(model.firings.map((firing) => firing.event.type), ["TOKEN_LIMIT_EXCEEDED", "TOKEN_LIMIT_EXCEEDED", "TOKEN_LIMIT_EXCEEDED"]);
    const applied = model.compressions.filter((one) => one.result === undefined);
    assert.equal(applied.length, 3);
    assert.ok(applied[0].tokensAfter < applied[0].tokensBefore);
  });

  it("at any position equals the fold of the events up to it", async () => {
    const { model, lines } = await run(...EXAMPLES.research);
    const events = lines.filter((event) => event.type !== "LLM_TOKEN");
    for (let n = 1; n <= events.length; n++) {
      const { sequence } = events[n - 1];
      const part = fold(events.slice(0, n));
      const shown = model.visits.filter((visit) => visit.start <= sequence).map((visit) => [visit.thread, visit.node, statusAt(visit, sequence)]);
      assert.deepEqual(shown, part.visits.map((visit) => [visit.thread, visit.node, visit.status]));
    }
  });

  it("applies an event that arrives twice once", async () => {
    const { model, lines } = await run(...EXAMPLES.refine);
    const events = model.events.length;
    for (const event of lines) if (event.type !== "LLM_TOKEN") model.apply(event);
    assert.equal(model.events.length, events);
  });
});
