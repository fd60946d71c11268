import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { conversations, initialLength, rows } = await load("data/conversation.ts");

/** Builds the events of a run. */
class Events {
  list = [];

  add(threadId, type, fields = {}) {
    this.list.push({ type, threadId, sequence: this.list.length + 1, timestamp: 1000 + this.list.length, ...fields });
    return this;
  }

  message(threadId, index, content, more = {}) {
    return this.add(threadId, "MESSAGE_ADDED", { index, message: { role: "user", content, ...more }, tokens: 1 });
  }

  request(threadId, fields = {}) {
    return this.add(threadId, "REQUEST_PREPARED", { tokensUsed: 10, tokenLimit: 100, messages: 1, pinnedAt: null, stablePrefixTokens: 0, ...fields });
  }
}

const said = (thread) =>
  thread.items.map((item) => (item.kind === "message" ? item.message.content : item.kind === "gap" ? `gap ${item.count}` : item.kind));
const first = [{ role: "system", content: "s" }, { role: "user", content: "u" }];

test("a thread starts with the initial conversation of the run", () => {
  const events = new Events().add("r.0", "THREAD_STARTED", { kind: "main" }).message("r.0", 2, "a").request("r.0");
  assert.equal(initialLength(events.list, "r.0", 9), 2);
  assert.deepEqual(said(conversations(events.list, first, []).get("r.0")), ["s", "u", "a", "request"]);
});

test("a branch starts with its parent's conversation, and the main path's replaces the parent's", () => {
  const events = new Events()
    .add("r.0", "THREAD_STARTED", { kind: "main" })
    .message("r.0", 2, "a")
    .request("r.0")
    .add("r.0", "THREAD_FORK_STARTED", { forkPathIds: ["x", "y"] })
    .add("r.1", "THREAD_STARTED", { kind: "branch", pathId: "x" })
    .message("r.1", 3, "of x")
    .add("r.2", "THREAD_STARTED", { kind: "branch", pathId: "y" })
    .message("r.2", 3, "of y")
    .message("r.2", 4, "more of y")
    .add("r.0", "NODE_COMPLETED", {
      nodeType: "JOIN",
      output: { completed: ["y", "x"], childThreadIds: { x: "r.1", y: "r.2" } },
    })
    .message("r.0", 4, "b");
  const found = conversations(events.list, first, [{ threadId: "r.1", parentId: "r.0" }]);
  assert.deepEqual(said(found.get("r.1")), ["s", "u", "a", "of x"]);
  assert.deepEqual(said(found.get("r.2")), ["s", "u", "a", "of y", "more of y"]);
  assert.deepEqual(said(found.get("r.0")), ["s", "u", "a", "request", "of x", "b"]);
});

test("another main path is recognized by the length of the history", () => {
  const events = new Events()
    .add("r.0", "THREAD_STARTED", { kind: "main" })
    .add("r.0", "THREAD_FORK_STARTED", { forkPathIds: ["x", "y"] })
    .add("r.1", "THREAD_STARTED", { kind: "branch" })
    .add("r.2", "THREAD_STARTED", { kind: "branch" })
    .message("r.2", 2, "of y")
    .add("r.0", "NODE_COMPLETED", { nodeType: "JOIN", output: { completed: ["x", "y"], childThreadIds: { x: "r.1", y: "r.2" } } })
    .message("r.0", 3, "b");
  const threads = [{ threadId: "r.1", parentId: "r.0" }, { threadId: "r.2", parentId: "r.0" }];
  assert.deepEqual(said(conversations(events.list, first, threads).get("r.0")), ["s", "u", "of y", "b"]);
});

test("an item of a MAP starts without messages", () => {
  const events = new Events()
    .add("r.0", "THREAD_STARTED", { kind: "main" })
    .message("r.0", 2, "a")
    .add("r.0", "THREAD_FORK_STARTED", { forkPathIds: ["0"] })
    .add("r.1", "THREAD_STARTED", { kind: "branch" })
    .message("r.1", 0, "item");
  assert.deepEqual(said(conversations(events.list, first, []).get("r.1")), ["item"]);
});

test("a compression has the removed messages and what it wrote", () => {
  const events = new Events()
    .add("r.0", "THREAD_STARTED", { kind: "main" })
    .message("r.0", 2, "a")
    .message("r.0", 3, "b")
    .add("r.0", "TRIGGERED_SUBGRAPH_STARTED", { triggerId: "too-long", childThreadId: "r.1" })
    .add("r.1", "THREAD_STARTED", { kind: "triggered" })
    .add("r.1", "COMPRESSION_COMPLETED", { changed: true, result: { messages: [first[0], { role: "user", content: "summary" }, { role: "user", content: "b" }] } })
    .add("r.0", "COMPRESSION_COMPLETED", { changed: true, messagesBefore: 4, messagesAfter: 3, tokensBefore: 40, tokensAfter: 30 })
    .message("r.0", 7, "c");
  const thread = conversations(events.list, first, []).get("r.0");
  assert.deepEqual(said(thread), ["s", "compression", "summary", "b", "c"]);
  const [compression] = thread.items.filter((item) => item.kind === "compression");
  assert.deepEqual(compression.removed.map((item) => item.message.content), ["u", "a"]);
  assert.deepEqual(compression.written.map((item) => item.message.content), ["summary"]);
  assert.equal(compression.triggerId, "too-long");
  assert.equal(thread.length, 8);
});

test("missing events are a gap", () => {
  const events = new Events().add("r.0", "THREAD_STARTED", { kind: "main" }).message("r.0", 5, "late");
  assert.deepEqual(said(conversations(events.list, first, []).get("r.0")), ["s", "u", "gap 3", "late"]);
});

test("messages of earlier runs of the session are a gap before the run's own", () => {
  const events = new Events().add("r.0", "THREAD_STARTED", { kind: "main" }).message("r.0", 4, "a");
  const thread = conversations(events.list, [], [], 4).get("r.0");
  assert.deepEqual(said(thread), ["gap 4", "a"]);
  assert.equal(thread.length, 5);
});

test("results of tools are folded into their calls, also for repeated ids", () => {
  const call = (id) => ({ role: "assistant", content: "", toolCalls: [{ id, name: "t", arguments: {} }] });
  const result = (toolCallId, content) => ({ role: "tool", toolCallId, content });
  const messages = [call("1"), result("1", "one"), call("1"), result("1", "two"), result("9", "orphan")];
  const found = rows(messages.map((message) => ({ kind: "message", message })));
  assert.deepEqual(found.map((row) => row.calls?.map((call) => call.result.message.content)), [["one"], ["two"], undefined]);
});
