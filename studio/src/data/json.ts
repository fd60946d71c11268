// JSON without loss: a number that a double cannot represent retains its digits, so that the sent value equals the displayed one.

import type { Json, JsonObject } from "../types";

/** Marks the digits of an exact number in the text between the two passes of `parse` and `stringify`. Texts of models cannot contain it. */
const MARK = `exact${Math.random().toString(36).slice(2)}:`;
const MARKED = new RegExp(`"${MARK}([^"]*)"`, "g");
/** True for every text with a number that a double may not hold: more than 15 digits, or an exponent of three. */
const SUSPECT = /[\d.]{16}|\de[+-]?\d{3}/i;
const STRING_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
const NUMBER = /^([+-]?)(\d*)\.?(\d*)(?:e([+-]?\d+))?$/i;

/** A number that a double cannot hold. In calculations, it is the nearest double. */
class Exact extends Number {
  constructor(readonly digits: string) {
    super(digits);
  }

  override toString(): string {
    return this.digits;
  }

  toJSON(): string {
    return MARK + this.digits;
  }
}

export const isExact = (value: unknown): boolean => value instanceof Exact;

export const isObject = (value: unknown): value is JsonObject => typeof value === "object" && value !== null && !Array.isArray(value) && !isExact(value);

/** The significant digits and the exponent of a number, equal for equal numbers. */
function parts(text: string): [digits: string, exponent: number] {
  const [, sign, whole = "", fraction = "", exponent = "0"] = NUMBER.exec(text) ?? [];
  const all = (whole + fraction).replace(/^0+/, "");
  const digits = all.replace(/0+$/, "");
  return digits === "" ? ["", 0] : [(sign === "-" ? "-" : "") + digits, Number(exponent) - fraction.length + all.length - digits.length];
}

/**
 * The number of a text such as `12`, `+.5` or `1e3`: a double, or an exact number if a double cannot hold it. An `edited` number is also exact
 * if its double has no decimal point: the service distinguishes `1.0` from `1`.
 */
export function numberOf(text: string, edited = false): number {
  const double = Number(text);
  const losesPoint = edited && /\.\d|e/i.test(text) && Number.isInteger(double);
  if (!losesPoint && String(parts(text)) === String(parts(String(double)))) return double;
  const [, sign, whole = "", fraction, exponent] = NUMBER.exec(text)!;
  const digits = `${sign === "-" ? "-" : ""}${whole.replace(/^0+/, "") || "0"}${fraction && `.${fraction}`}${exponent ? `e${exponent}` : ""}`;
  return new Exact(digits) as unknown as number;
}

/** True for a number without a fraction. */
export const isWhole = (value: unknown): boolean => (isExact(value) ? parts(String(value))[1] >= 0 : Number.isInteger(value));

/** `JSON.parse`, which keeps the digits of every number. For `edited`, see `numberOf`. */
export function parse<T = Json>(text: string, edited = false): T {
  const value = JSON.parse(text) as T;
  if (!edited && !SUSPECT.test(text)) return value;
  const marked = text.replace(STRING_OR_NUMBER, (token) => (token[0] === '"' || !isExact(numberOf(token, edited)) ? token : `"${MARK}${token}"`));
  if (marked === text) return value;
  return JSON.parse(marked, (_, one) => (typeof one === "string" && one.startsWith(MARK) ? new Exact(one.slice(MARK.length)) : one)) as T;
}

/** `JSON.stringify`, for values of `parse` too. */
export const stringify = (value: unknown, space?: number): string => JSON.stringify(value, null, space)?.replace(MARKED, "$1");
