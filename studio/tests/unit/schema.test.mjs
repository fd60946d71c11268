import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { fieldOf, problems, numberFrom, withProperty, parseJson, resolve } = await load("data/schema.ts");

const ORDER = {
  type: "object",
  required: ["customer", "amount"],
  properties: {
    customer: { type: "string", minLength: 1, description: "Who ordered" },
    amount: { type: "number", minimum: 0, multipleOf: 0.01 },
    express: { type: "boolean", default: true },
    kind: { enum: ["new", "repeat"] },
    lines: { type: "array", items: { $ref: "#/$defs/line" }, maxItems: 2 },
  },
  additionalProperties: false,
  $defs: { line: { type: "object", required: ["sku"], properties: { sku: { type: "string", pattern: "^[A-Z]{3}$" } } } },
};
const messages = (value, schema = ORDER) => problems(value, schema).map(({ pointer, message }) => `${pointer} ${message}`);

test("a schema becomes fields with titles, requirements and initial values", () => {
  const field = fieldOf(ORDER, ORDER);
  assert.equal(field.kind, "object");
  assert.deepEqual(field.properties.map(({ name, field }) => [name, field.kind, field.isRequired]), [
    ["customer", "string", true],
    ["amount", "number", true],
    ["express", "boolean", false],
    ["kind", "choice", false],
    ["lines", "list", false],
  ]);
  assert.deepEqual(field.initial, { express: true });
  assert.equal(field.properties[0].field.description, "Who ordered");
});

test("a reference is resolved, and a cyclic one ends as JSON", () => {
  const tree = { $ref: "#/$defs/node", $defs: { node: { type: "object", properties: { next: { $ref: "#/$defs/node" } } } } };
  let [field, depth] = [fieldOf(tree, tree), 0];
  while (field.kind === "object") [field, depth] = [field.properties[0].field, depth + 1];
  assert.equal(field.kind, "json");
  assert.equal(depth, 6);
  assert.equal(resolve({ $ref: "#" }, { $ref: "#" }), true);
  assert.equal(resolve({ $ref: "#/$defs/%" }, {}), true);
});

test("every unsuitable value has a message with its location", () => {
  assert.deepEqual(messages({ customer: "Ada", amount: 12.5, lines: [{ sku: "ABC" }] }), []);
  assert.deepEqual(messages({ customer: "", amount: "x" }), ["/customer must have at least 1 character", "/amount must be a number"]);
  assert.deepEqual(messages({ amount: -1 }), ["/customer is required", "/amount must be at least 0"]);
  assert.deepEqual(messages({ customer: "A", amount: 0.005 }), ["/amount must be a multiple of 0.01"]);
  assert.deepEqual(messages({ customer: "A", amount: 0, kind: "old", more: 1 }), [
    '/kind must be one of "new", "repeat"',
    "/more is not a known property",
  ]);
  assert.deepEqual(messages({ customer: "A", amount: 0, lines: [{ sku: "ab" }, {}, {}] }), [
    "/lines must have at most 2 items",
    "/lines/0/sku must match ^[A-Z]{3}$",
    "/lines/1/sku is required",
    "/lines/2/sku is required",
  ]);
  assert.deepEqual(messages([], ORDER), [" must be an object"]);
});

test("alternatives report the problems of the closest one", () => {
  const schema = { oneOf: [{ type: "string" }, { type: "object", required: ["a"], properties: { a: { type: "integer" } } }] };
  assert.deepEqual(messages("x", schema), []);
  assert.equal(messages({ a: 1.5 }, schema).length, 1);
  assert.equal(fieldOf(schema, schema).kind, "json");
  const constants = { oneOf: [{ const: "a" }, { const: "b" }] };
  assert.deepEqual(fieldOf(constants, constants).choices, ["a", "b"]);
});

test("a text that is no number stays a text, so that it is reported", () => {
  assert.equal(numberFrom(" 1.50 "), 1.5);
  assert.equal(numberFrom(""), undefined);
  assert.equal(numberFrom("1,5"), "1,5");
  assert.deepEqual(withProperty({ a: 1 }, "b", 2), { a: 1, b: 2 });
  assert.deepEqual(withProperty({ a: 1 }, "a", undefined), {});
});

test("a fault in JSON has a reason", () => {
  assert.deepEqual(parseJson('{"a": [1]}'), { value: { a: [1] } });
  assert.match(parseJson('{"a": x}').error, /^This is not JSON: .*x/);
});
