import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { factsOf, judge, statements } = await load("data/facts.ts");
const found = (text) => [...new Set(factsOf(text).map(({ kind, text: word }) => `${kind} ${word}`))].sort();

test("every kind of fact is recognized as by `pirn context judge`", () => {
  for (const [text, facts] of [
    ["we owe 1,200 and 48.30 and 7", ["number 1200", "number 48.3", "number 7"]],
    ["1.234.567,50 or 12,5", ["number 12.5", "number 1234567.5"]],
    ["on 2026-01-02, 3/4/2026 or 24.12.2026 at 14:30.", ["date 14:30", "date 2026-01-02", "date 24.12.2026", "date 3/4/2026"]],
    ["since 2026-01-02T10:30:00Z", ["date 2026-01-02t10:30:00z"]],
    ["order AX-7741 of ada@example.org, order_id, 12-34", ["id 12-34", "id ada@example.org", "id ax-7741", "id order_id"]],
    ["The parcel of Petra's son. Tell DHL that I know", ["name dhl", "name petra"]],
    ["it is not refundable, isn’t the end, never. Open", ["negation end", "negation refundable"]],
    ["das ist nicht die Regel", ["name regel", "negation regel"]],
    ["订单12345不退款", ["negation 退", "number 12345"]],
    ["nothing here to see", []],
  ]) {
    assert.deepEqual(found(text), facts, text);
  }
});

test("a lost fact is marked in every text that contains it", () => {
  const judged = judge(["Pay 48.30 EUR to Ada.", "Then 48.30 again, not later."], "EUR 12 to ada");
  assert.deepEqual(judged.lost.map((fact) => fact.text).sort(), ["48.3", "later"]);
  assert.equal(judged.total, 4);
  assert.equal(judged.kept, 2);
  assert.deepEqual(judged.lostIn.map((facts) => facts.length), [1, 2]);
});

test("a statement has the lost facts within it", () => {
  const text = "It is fine. Pay 48.30 EUR at 3.5 %!\nNo more.";
  const parts = statements(text, factsOf(text).filter((fact) => fact.text === "48.3"));
  assert.deepEqual(parts.map((part) => part.text), ["It is fine. ", "Pay 48.30 EUR at 3.5 %!\n", "No more."]);
  assert.deepEqual(parts.map((part) => part.lost.length), [0, 1, 0]);
  const lost = parts[1].lost[0];
  assert.equal(parts[1].text.slice(lost.from, lost.to), "48.30");
  assert.equal(parts.map((part) => part.text).join(""), text);
});
