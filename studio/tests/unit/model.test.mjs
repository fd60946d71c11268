import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { RunModel, shiftBy, digest } = await load("run/model/model.ts", "run/model/digest.ts");

const HOUR = 3_600_000;
const event = (sequence, timestamp, type, more) => ({ sequence, timestamp, type, runId: "r", workflowId: "w", threadId: "r.0", nodeId: "a", ...more });

test("the time between a fork and its base is no part of the fork", () => {
  // The base ran from 0 to 100, its fork started an hour later, and the fork of the fork a day later, with one step of each.
  const gaps = [
    { end: HOUR + 50, start: 24 * HOUR },
    { end: 100, start: HOUR },
  ];
  const model = new RunModel(shiftBy(gaps));
  const events = [
    event(1, 0, "THREAD_STARTED", { kind: "main" }),
    event(2, 100, "NODE_STARTED", { nodeType: "LLM" }),
    event(3, HOUR + 50, "NODE_COMPLETED", { nodeType: "LLM" }),
    event(4, 24 * HOUR + 7, "THREAD_COMPLETED"),
  ];
  for (const one of events) model.apply(one);
  assert.equal(model.lastAt - model.startAt, 100 + 50 + 7);
  assert.equal(model.visits[0].endAt - model.visits[0].startAt, 50);
  assert.equal(model.lastAt, 24 * HOUR + 7);
  assert.deepEqual(events.map(({ sequence }) => model.originals.get(sequence)?.timestamp), [0, 100, HOUR + 50, undefined]);
});

test("the branches of concurrent nested MAPs are in the lanes of their MAP", () => {
  const model = new RunModel();
  let sequence = 0;
  const apply = (threadId, type, more) => model.apply(event(++sequence, sequence, type, { threadId, ...more }));
  const start = (id, pathId) => apply(id, "THREAD_STARTED", { kind: "branch", pathId, workflowId: pathId.length > 1 ? "w" : "item" });
  const map = (thread) => apply(thread, "THREAD_FORK_STARTED", { nodeId: `map-${thread}`, subgraphId: "item", forkPathIds: ["0", "1", "2"] });
  apply("r.0", "THREAD_STARTED", { kind: "main" });
  apply("r.0", "THREAD_FORK_STARTED", { nodeId: "fork", forkPathIds: ["left", "right"] });
  start("left", "left");
  start("right", "right");
  map("left");
  map("right");
  // Each MAP starts one item at a time, and the right one is faster.
  start("l0", "0");
  start("r0", "0");
  start("r1", "1");
  start("r2", "2");
  start("l1", "1");
  const parents = { left: "left", right: "right", l0: "left", l1: "left", r0: "right", r1: "right", r2: "right" };
  const item = (threadId, parentId, nodeId) => ({ threadId, parentId, nodeId, kind: "branch" });
  const items = ["l0", "r0", "r1", "r2", "l1"].map((id) => item(id, parents[id], `map-${parents[id]}`));
  model.setParents([item("left", "r.0", "fork"), item("right", "r.0", "fork"), ...items]);
  const lanes = () => Object.fromEntries(model.forks.map((fork) => [fork.node, fork.branches.map((thread) => thread.id)]));
  assert.deepEqual(lanes(), { fork: ["left", "right"], "map-left": ["l0", "l1"], "map-right": ["r0", "r1", "r2"] });
  for (const [id, parent] of Object.entries(parents).slice(2)) assert.deepEqual([model.threads.get(id).parent, model.threads.get(id).startedBy], [parent, `map-${parent}`]);
  // The last item of the left MAP is the only one that has not started.
  start("l2", "2");
  assert.deepEqual(lanes()["map-left"], ["l0", "l1", "l2"]);
});

test("the attempts of a failure are those of one item of a MAP", () => {
  const causeOf = (attempts) => {
    const model = new RunModel();
    let sequence = 0;
    const apply = (threadId, type, more) => model.apply(event(++sequence, sequence, type, { threadId, ...more }));
    apply("r.0", "THREAD_STARTED", { kind: "main" });
    const items = ["0", "1", "2", "3", "4"];
    apply("r.0", "THREAD_FORK_STARTED", { nodeId: "map", subgraphId: "w", forkPathIds: items });
    for (const item of items) apply(item, "THREAD_STARTED", { kind: "branch", pathId: item });
    for (let attempt = 1; attempt <= attempts; attempt += 1)
      for (const item of items) {
        apply(item, "NODE_STARTED", { nodeType: "LLM", attempt });
        apply(item, "NODE_FAILED", { nodeType: "LLM", error: { code: "LLM_ERROR", message: "down" } });
      }
    const cause = { code: "LLM_ERROR", message: "down", nodeId: "a" };
    apply("r.0", "THREAD_FAILED", { error: { code: "JOIN_FAILED", message: "no item", nodeId: "map", cause } });
    return digest(model, undefined, undefined, sequence).cause;
  };
  assert.equal(causeOf(1), "Failed at a: LLM_ERROR, down.");
  assert.equal(causeOf(3), "Failed at a after 3 attempts: LLM_ERROR, down.");
});

test("names and messages in another direction are isolated in the sentence of the cause", () => {
  const model = new RunModel();
  model.apply(event(1, 1, "THREAD_STARTED", { threadId: "r.0", kind: "main" }));
  model.apply(event(2, 2, "THREAD_FAILED", { threadId: "r.0", error: { code: "NODE_FAILED", message: "\u05e9\u05dc\u05d5\u05dd\u2069 1", nodeId: "\u05d0" } }));
  assert.equal(digest(model, undefined, undefined, 2).cause, "Failed at \u2068\u05d0\u2069: NODE_FAILED, \u2068\u05e9\u05dc\u05d5\u05dd 1\u2069.");
});
