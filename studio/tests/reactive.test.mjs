// Signals, against what their readers rely on.
import assert from "node:assert/strict";
import { it } from "node:test";
import { loadModule } from "./support/bundle.mjs";

const { batch, computed, effect, signal } = await loadModule("src/reactive.ts");

it("an effect runs once for each change of what it reads, and no more after its end", () => {
  const a = signal(1);
  const unread = signal(1);
  const seen = [];
  const stop = effect(() => void seen.push(a.value));
  a.value = 2;
  a.value = 2;
  unread.value = 2;
  stop();
  a.value = 3;
  assert.deepEqual(seen, [1, 2]);
});

it("an effect that reads two values of one source runs once, and sees both of the same time", () => {
  const a = signal(1);
  const twice = computed(() => a.value * 2);
  const negative = computed(() => -a.value);
  const seen = [];
  effect(() => void seen.push([twice.value, negative.value]));
  a.value = 2;
  assert.deepEqual(seen, [[2, -1], [4, -2]]);
});

it("a computed value is computed when it is read and a source has changed", () => {
  const a = signal(1);
  let times = 0;
  const parity = computed(() => (times++, a.value % 2));
  assert.equal(times, 0);
  assert.equal(parity.value + parity.value, 2);
  assert.equal(times, 1);
  const seen = [];
  effect(() => void seen.push(parity.value));
  a.value = 3;
  assert.deepEqual(seen, [1], "the value is the same");
  a.value = 4;
  assert.deepEqual(seen, [1, 0]);
});

it("an effect follows what it has read in its last run", () => {
  const which = signal("a");
  const a = signal(1);
  const b = signal(10);
  const seen = [];
  effect(() => void seen.push(which.value === "a" ? a.value : b.value));
  which.value = "b";
  a.value = 2;
  b.value = 11;
  assert.deepEqual(seen, [1, 10, 11]);
});

it("a batch runs effects once at its end, also a nested one", () => {
  const a = signal(1);
  const b = signal(1);
  const seen = [];
  effect(() => void seen.push(a.value + b.value));
  batch(() => {
    a.value = 2;
    batch(() => (b.value = 2));
    assert.deepEqual(seen, [2]);
  });
  assert.deepEqual(seen, [2, 4]);
});

it("a read by peek subscribes to nothing, and a throwing effect leaves others alone", () => {
  const a = signal(1);
  let runs = 0;
  effect(() => void (runs++, a.peek()));
  a.value = 2;
  assert.equal(runs, 1);
  const bad = signal(0);
  effect(() => {
    if (bad.value) throw new Error("bad");
  });
  assert.throws(() => (bad.value = 1), /bad/);
  const seen = [];
  effect(() => void seen.push(a.value));
  a.value = 3;
  assert.deepEqual(seen, [2, 3]);
});
