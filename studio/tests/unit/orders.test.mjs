import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { rowsOf, eventsTo, eventText, letterOf } = await load("data/orders.ts");

/** Branches a and b: a, then b at its model or its timeout; b ends the run. */
const NODES = [
  {},
  { parent: 0, thread: "a", node: "x", kind: "model", options: 2 },
  { parent: 1, thread: "b", node: "y", kind: "wait", options: 1 },
  { parent: 2, thread: "b", node: "z", kind: "answer", answer: '"yes"', options: 2, end: { replay: "1:1", outcome: 0 } },
  { parent: 2, thread: "", node: "z", kind: "timeout", options: 2, end: { replay: "3:2", outcome: 1 } },
  { parent: 0, thread: "b", node: "", kind: "start", options: 2, end: { replay: "1:2", sameAs: 2 } },
];

test("events without an alternative are one row, and rows are in depth-first order", () => {
  const { rows, rowOf } = rowsOf(NODES);
  assert.deepEqual(
    rows.map(({ depth, events, orders }) => [depth, events.join(" > "), orders]),
    [
      [0, "", 3],
      [1, "a/x model > b/y wait", 2],
      [2, 'b/z answer "yes"', 1],
      [2, "z timeout", 1],
      [1, "b", 1],
    ],
  );
  assert.deepEqual(rowOf, [0, 1, 1, 2, 3, 4]);
  assert.equal(rows[4].end.sameAs, 2);
});

test("a run without a choice is one row", () => {
  const { rows } = rowsOf([{ end: { replay: "1:1", outcome: 0 } }]);
  assert.deepEqual(rows, [{ depth: 0, node: 0, events: [], end: { replay: "1:1", outcome: 0 }, orders: 1 }]);
});

test("the events of an order start with the first one", () => {
  assert.deepEqual(eventsTo(NODES, 4), ["a/x model", "b/y wait", "z timeout"]);
  assert.equal(eventText({ thread: "", node: "", kind: "timeout" }), "timeout");
});

test("outcomes after Z have two letters", () => {
  assert.deepEqual([0, 25, 26, 51, 52, 701, 702].map(letterOf), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
});

test("a deep tree of many orders is listed without recursion", () => {
  const nodes = [{}];
  for (let i = 0; i < 20_000; i += 1) {
    const parent = i === 0 ? 0 : 2 * i - 1;
    nodes.push({ parent, node: `n${i}`, kind: "model" }, { parent, node: `m${i}`, kind: "wait", end: { replay: "1:1", outcome: 0 } });
  }
  const { rows } = rowsOf(nodes);
  assert.equal(rows.length, nodes.length);
  assert.equal(rows[0].orders, 20_000);
});
