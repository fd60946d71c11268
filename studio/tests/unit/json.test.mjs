import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { parse, stringify, numberOf, isWhole, isObject, numberFrom, problems } = await load("data/json.ts", "data/schema.ts");

test("a value is written with the numbers that were read", () => {
  for (const text of [
    '{"id":9007199254740993,"list":[-9223372036854775808,18446744073709551615]}',
    "123456789012345678901234567890",
    "[0.1234567890123456789012,1e400,-1.5E-400]",
    '{"text":"9007199254740993, \\"9007199254740993\\" and \\\\","n":9007199254740993}',
    '{"9007199254740993":9007199254740993}',
  ])
    assert.equal(stringify(parse(text)), text);
});

test("a number that a double holds is a plain number", () => {
  for (const text of ["1.10", "1e21", "1234567890123456e200", "0.30000000000000004", "9007199254740992", "100000000000000000000000", "0e999"])
    assert.equal(typeof parse(text), "number", text);
  assert.equal(parse('{"at":1790000000000000.5}').at, 1790000000000000.5);
});

test("an exact number is a leaf that shows its digits and can be calculated with", () => {
  const { id } = parse('{"id":9007199254740993}');
  assert.equal(String(id), "9007199254740993");
  assert.equal(isObject(id), false);
  assert.equal(id + 1, 9007199254740993);
  assert.equal(stringify({ id }, 2), '{\n  "id": 9007199254740993\n}');
});

test("a text that is not JSON has the same reason as before", () => {
  for (const text of ["[9007199254740993 1]", "09007199254740993", "9007199254740993x", ""]) {
    let reason;
    try {
      JSON.parse(text);
    } catch (error) {
      reason = error.message;
    }
    assert.throws(() => parse(text), { message: reason });
  }
});

test("a number that is entered keeps its digits", () => {
  assert.equal(stringify(numberFrom(" 9007199254740993 ")), "9007199254740993");
  assert.equal(stringify(numberFrom("+009007199254740993.50")), "9007199254740993.50");
  assert.equal(stringify(numberFrom("-.12345678901234567890")), "-0.12345678901234567890");
  assert.equal(numberFrom("1.10"), 1.1);
  assert.equal(isWhole(numberOf("9007199254740993")), true);
  assert.equal(isWhole(numberOf("90071992547409930e-1")), true);
  assert.equal(isWhole(numberOf("9007199254740993.5")), false);
});

test("an edited number keeps its decimal point", () => {
  for (const text of ["1.0", "-0.0", "1e3", '{"a":[1.0,"1.0",2,2.5]}']) assert.equal(stringify(parse(text, true)), text);
  assert.equal(stringify(numberFrom("1.0")), "1.0");
  assert.equal(typeof parse("1.0"), "number");
  const messages = (text, schema) => problems(parse(text, true), parse(schema)).map(({ message }) => message);
  assert.deepEqual(messages("1.0", '{"type":"integer","minimum":1,"enum":[1,2]}'), []);
  assert.deepEqual(messages("1.0", '{"const":1}'), []);
});

test("an exact number is checked as a number", () => {
  const messages = (text, schema) => problems(parse(text), parse(schema)).map(({ message }) => message);
  assert.deepEqual(messages("9007199254740993", '{"type":"integer","minimum":9007199254740993,"multipleOf":3}'), []);
  assert.deepEqual(messages("9007199254740993.5", '{"type":"integer"}'), ["must be a whole number"]);
  assert.deepEqual(messages("9007199254740992", '{"exclusiveMaximum":9007199254740993}'), []);
  assert.deepEqual(messages("9007199254740993", '{"maximum":10}'), ["must be at most 10"]);
  assert.deepEqual(messages("9007199254740993", '{"enum":[9007199254740992,9007199254740995]}'), ["must be one of 9007199254740992, 9007199254740995"]);
});
