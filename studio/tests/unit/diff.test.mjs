import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { excerpt, lineDiff, firstDifference } = await load("data/diff.ts");
const signs = { same: " ", removed: "-", added: "+" };
const shown = (left, right) => lineDiff(left, right).map(({ kind, text }) => signs[kind] + text).join("|");

test("lines are equal, removed or added", () => {
  assert.equal(shown("a\nb\nc", "a\nx\nc"), " a|-b|+x| c");
  assert.equal(shown("a\nb\nc\nd", "b\nc\nd\ne"), "-a| b| c| d|+e");
  assert.equal(shown("a", "a"), " a");
  assert.equal(shown("", "a"), "-|+a");
});

test("a difference rebuilds both texts and is the shortest one", () => {
  let seed = 7;
  const random = (limit) => (seed = (seed * 48271) % 2147483647) % limit;
  for (let round = 0; round < 300; round += 1) {
    const text = () => Array.from({ length: random(12) + 1 }, () => "abc"[random(3)]);
    const [a, b] = [text(), text()];
    const lines = lineDiff(a.join("\n"), b.join("\n"));
    assert.deepEqual(lines.filter((line) => line.kind !== "added").map((line) => line.text), a);
    assert.deepEqual(lines.filter((line) => line.kind !== "removed").map((line) => line.text), b);
    assert.deepEqual(lines.filter((line) => line.left).map((line) => line.left), a.map((_, at) => at + 1));
    assert.deepEqual(lines.filter((line) => line.right).map((line) => line.right), b.map((_, at) => at + 1));
    assert.equal(lines.filter((line) => line.kind === "same").length, longestCommon(a, b), `${a} ${b}`);
  }
});

function longestCommon(a, b) {
  const best = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  return best[0][0];
}

test("a large difference ends in bounded time", () => {
  const lines = (name) => Array.from({ length: 20_000 }, (_, at) => `${name}${at}`).join("\n");
  assert.equal(lineDiff(lines("a"), lines("b")).length, 40_000);
});

test("equal lines far from a change are omitted", () => {
  const left = Array.from({ length: 20 }, (_, at) => `line ${at}`);
  const right = left.with(10, "changed");
  const found = excerpt(lineDiff(left.join("\n"), right.join("\n")), 2);
  assert.deepEqual(found.map((line) => (typeof line === "number" ? line : line.text)), [8, "line 8", "line 9", "line 10", "changed", "line 11", "line 12", 7]);
});

test("the first difference is counted in bytes of UTF-8 and lies between characters", () => {
  assert.equal(firstDifference("abc", "abc"), null);
  assert.deepEqual(firstDifference("abc", "abd"), { byte: 2, index: 2 });
  assert.deepEqual(firstDifference("äbc", "äbd"), { byte: 3, index: 2 });
  assert.deepEqual(firstDifference("ab", "abc"), { byte: 2, index: 2 });
  assert.deepEqual(firstDifference("x😀", "x😁"), { byte: 4, index: 1 });
  assert.deepEqual(firstDifference("é", "è"), { byte: 1, index: 0 });
});
