import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { choiceTexts } = await load("ui/text/format.ts");

test("choices that would look equal are shown as JSON", () => {
  assert.deepEqual(choiceTexts(["yes", "no", 1]), ["yes", "no", "1"]);
  assert.deepEqual(choiceTexts([1, "1", null, ""]), ["1", '"1"', "null", '""']);
  assert.deepEqual(choiceTexts([true, "true", "a b", "a\nb"]), ["true", '"true"', '"a b"', '"a\\nb"']);
  const long = "x".repeat(200);
  assert.deepEqual(choiceTexts([`${long}1`, `${long}2`]), [`"${long}1"`, `"${long}2"`]);
});
