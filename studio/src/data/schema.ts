// Forms from JSON Schema: the fields of a form, their initial values, and messages for values that do not match.

import { isExact, isObject, isWhole, numberOf, parse, stringify } from "./json";
import type { Json } from "../types";
import { decoded } from "./uri";

export type Schema = boolean | { [keyword: string]: unknown };

export interface Field {
  kind: "string" | "number" | "boolean" | "choice" | "list" | "object" | "json";
  title: string;
  description: string;
  isRequired: boolean;
  /** Format of a string (`email`, `date`, ...). */
  format?: string;
  /** Values of a choice. */
  choices?: Json[];
  /** Fields of an object by property. */
  properties?: { name: string; field: Field }[];
  /** Schema of the elements of a list. */
  items?: Schema;
  /** Initial value; undefined if the field is initially absent. */
  initial?: Json;
  schema: Schema;
}

/** Levels of nesting that are fields of their own; deeper values are edited as JSON. */
const MAX_DEPTH = 6;

type Keywords = { [keyword: string]: unknown };

/** Follows `$ref` to a definition in the same document. Returns the schema itself if there is none. */
export function resolve(schema: Schema, root: Schema): Schema {
  let found = schema;
  for (let steps = 0; steps < 32; steps += 1) {
    if (typeof found !== "object" || typeof found.$ref !== "string" || !found.$ref.startsWith("#")) return found;
    const path = decoded(found.$ref.slice(1)).split("/").slice(1);
    let target: unknown = root;
    for (const part of path) target = (target as Keywords | undefined)?.[part.replaceAll("~1", "/").replaceAll("~0", "~")];
    if (target === undefined || target === null) return true;
    found = target as Schema;
  }
  return true;
}

/** Type names of a schema. A schema with `properties` is an object even if it does not say so. */
function typesOf(schema: Keywords): string[] {
  if (Array.isArray(schema.type)) return schema.type as string[];
  if (typeof schema.type === "string") return [schema.type];
  if (schema.properties) return ["object"];
  if (schema.items) return ["array"];
  return [];
}

/** Describes the form field of a schema. */
export function fieldOf(schema: Schema, root: Schema, name = "", isRequired = true, depth = 0): Field {
  const resolved = resolve(schema, root);
  // A title next to a reference describes this use of the definition.
  const keywords: { [keyword: string]: any } = { ...(resolved as object), ...(typeof schema === "object" && schema) };
  const { oneOf, anyOf, enum: choices, const: constant, properties, items, format, title = name, description = "" } = keywords;
  const alternatives: Schema[] | undefined = oneOf ?? anyOf;
  const field: Field = { kind: "json", title, description, isRequired, schema: resolved, initial: keywords.default ?? constant };
  const types = typesOf(keywords).filter((one) => one !== "null");
  const type = types.length === 1 ? types[0] : "";
  const be = (kind: Field["kind"], more: Partial<Field>, initial?: Json) => {
    Object.assign(field, { kind, ...more });
    if (isRequired) field.initial ??= initial;
  };
  const constants = alternatives?.map((one) => (resolve(one, root) as { const?: Json }).const);
  const all: Json[] | undefined = constant !== undefined ? [constant] : (choices ?? (constants?.every((one) => one !== undefined) ? constants : undefined));
  if (all) be("choice", { choices: all });
  else if (type === "boolean") be("boolean", {}, false);
  else if (type === "string") be("string", { format });
  else if (type === "number" || type === "integer") be("number", {});
  else if (depth < MAX_DEPTH && type === "array") be("list", { items: items ?? true }, []);
  else if (depth < MAX_DEPTH && type === "object" && properties) {
    const fields = Object.entries(properties as Record<string, Schema>).map(([key, one]) => ({
      name: key,
      field: fieldOf(one, root, key, (keywords.required ?? []).includes(key), depth + 1),
    }));
    const initial = fields.filter((one) => one.field.initial !== undefined).map((one) => [one.name, one.field.initial]);
    be("object", { properties: fields }, Object.fromEntries(initial));
  } else if (type === "object") be("json", {}, {});
  return field;
}

/** Value that an input for numbers produces for a text: a text that is no number stays a text, which `problems` then reports. */
export function numberFrom(input: string): Json | undefined {
  const trimmed = input.trim();
  if (trimmed === "") return undefined;
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(trimmed) ? numberOf(trimmed, true) : trimmed;
}

/** Sets or removes a property of an object without changing the object. */
export function withProperty(value: Json | undefined, name: string, inner: Json | undefined): Json {
  const object = isObject(value) ? { ...value } : {};
  if (inner === undefined) delete object[name];
  else object[name] = inner;
  return object;
}

export interface Problem {
  /** JSON pointer to the value; empty for the whole value. */
  pointer: string;
  message: string;
}

const FORMATS: Record<string, [RegExp, string]> = {
  email: [/^[^\s@]+@[^\s@]+$/, "must be an e-mail address"],
  date: [/^\d{4}-\d{2}-\d{2}$/, "must be a date such as 2026-03-09"],
};

const typeOf = (value: Json): string => (value === null ? "null" : Array.isArray(value) ? "array" : isExact(value) ? "number" : typeof value);

const TYPE_NAMES: Record<string, string> = {
  string: "a text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
};

/** Keywords with a limit: the type of the values, the comparison with the limit, and the message if it fails. */
const LIMITS: [keyword: string, type: string, comparison: number, message: string][] = [
  ["minLength", "string", 0, "have at least # characters"],
  ["maxLength", "string", 1, "have at most # characters"],
  ["minimum", "number", 0, "be at least #"],
  ["maximum", "number", 1, "be at most #"],
  ["exclusiveMinimum", "number", 2, "be greater than #"],
  ["exclusiveMaximum", "number", 3, "be less than #"],
  ["minItems", "array", 0, "have at least # items"],
  ["maxItems", "array", 1, "have at most # items"],
];
/** Numbers that only the service can tell apart. */
const isRounded = (value: number, limit: number) => (isExact(value) || isExact(limit)) && Number(value) === Number(limit);
const COMPARISONS: ((value: number, limit: number) => boolean)[] = [
  (value, limit) => value >= limit,
  (value, limit) => value <= limit,
  (value, limit) => value > limit || isRounded(value, limit),
  (value, limit) => value < limit || isRounded(value, limit),
];

/** True if the pattern matches, or if this browser cannot read it: the service decides then. */
function matches(pattern: string, value: string): boolean {
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true;
  }
}

const inner = (pointer: string, key: string | number) => `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;

/** Returns what is wrong with a value. The service checks the value again, with all keywords of JSON Schema. */
export function problems(value: Json | undefined, schema: Schema, root: Schema = schema, pointer = "", depth = 0): Problem[] {
  const found: Problem[] = [];
  const check = (isRight: boolean, message: string, at = pointer) => {
    if (!isRight) found.push({ pointer: at, message });
  };
  const resolved = resolve(schema, root);
  if (typeof resolved !== "object" || depth > 64) return resolved === false ? [{ pointer, message: "is not allowed" }] : found;
  if (value === undefined) return [{ pointer, message: "is required" }];
  const keywords = resolved as { [keyword: string]: any };
  const type = typeOf(value);
  const types = typesOf(keywords);
  const isOfType = types.some((one) => one === type || (one === "integer" && isWhole(value)));
  if (keywords.type !== undefined && !isOfType) {
    check(false, `must be ${types.map((one) => TYPE_NAMES[one] ?? one).join(" or ")}`);
    return found;
  }
  // `1.0` is one of the choices if `1` is.
  const written = stringify(isExact(value) ? numberOf(String(value)) : value);
  const isOneOf = (choices: Json[]) => choices.some((one) => stringify(one) === written);
  if (keywords.enum) check(isOneOf(keywords.enum), `must be one of ${keywords.enum.map((one: Json) => stringify(one)).join(", ")}`);
  if (keywords.const !== undefined) check(isOneOf([keywords.const]), `must be ${stringify(keywords.const)}`);
  const size = typeof value === "string" ? [...value].length : Array.isArray(value) ? value.length : (value as number);
  for (const [keyword, of, comparison, message] of LIMITS) {
    const limit = keywords[keyword];
    if (of === type && limit !== undefined) check(COMPARISONS[comparison]!(size, limit), `must ${message.replace("#", limit).replace(/( 1 \w+)s$/, "$1")}`);
  }
  const { pattern, format, multipleOf } = keywords;
  if (type === "string" && pattern) check(matches(pattern, value as string), `must match ${pattern}`);
  if (type === "string" && FORMATS[format]) check(FORMATS[format][0].test(value as string), FORMATS[format][1]);
  // Decimal steps such as 0.01 have no exact quotient.
  if (type === "number" && multipleOf && !isExact(value)) check(Math.abs(size / multipleOf - Math.round(size / multipleOf)) < 1e-9, `must be a multiple of ${multipleOf}`);
  if (Array.isArray(value) && keywords.items) {
    value.forEach((one, at) => found.push(...problems(one, keywords.items, root, inner(pointer, at), depth + 1)));
  }
  if (isObject(value)) {
    for (const key of keywords.required ?? []) check(value[key] !== undefined, "is required", inner(pointer, key));
    for (const [key, one] of Object.entries(value)) {
      const own = Object.hasOwn(keywords.properties ?? {}, key) ? keywords.properties[key] : undefined;
      if (own !== undefined) found.push(...problems(one, own, root, inner(pointer, key), depth + 1));
      else check(keywords.additionalProperties !== false || keywords.patternProperties, "is not a known property", inner(pointer, key));
    }
  }
  const failures = (schemas: Schema[]) => schemas.map((one) => problems(value, one, root, pointer, depth + 1));
  if (keywords.allOf) found.push(...failures(keywords.allOf).flat());
  for (const alternatives of [keywords.anyOf, keywords.oneOf]) {
    // The alternative with the fewest problems is most likely the intended one.
    if (alternatives?.length) found.push(...failures(alternatives).reduce((best, one) => (one.length < best.length ? one : best)));
  }
  return found;
}

/** Reads a JSON text. Returns the value, or the reason why it is not JSON. */
export function parseJson(input: string): { value: Json } | { error: string } {
  try {
    return { value: parse(input, true) as Json };
  } catch (error) {
    return { error: `This is not JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
}
