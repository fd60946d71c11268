// Numbers, times and values as short texts.

import { stringify } from "../../data/json";
import type { Cost, Json } from "../../types";

export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  const m = Math.round(s / 60);
  if (m < 1440) return `${Math.floor(m / 60)} h ${m % 60} min`;
  return `${Math.floor(m / 1440)} d ${Math.floor((m % 1440) / 60)} h`;
}

const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (n: number | null | undefined): string => (n === null || n === undefined ? "–" : numbers.format(n));
export const tokens = count;
export const percent = (part: number, whole: number): string => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–");
export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

export function money(cost: Cost[] | Cost | number | string | null | undefined): string {
  if (cost === null || cost === undefined) return "–";
  if (Array.isArray(cost)) return cost.length ? cost.map(money).join(" + ") : "–";
  const amount = typeof cost === "object" ? (cost.amount ?? cost.cost ?? 0) : Number(cost);
  const currency = typeof cost === "object" ? (cost.currency ?? "") : "";
  const digits = amount !== 0 && Math.abs(amount) < 0.01 ? amount.toPrecision(2) : amount.toFixed(2);
  return currency ? `${digits} ${currency}` : digits;
}

const dayTime = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
/** Times below a day after the epoch are virtual: milliseconds since the start of the run. */
const isVirtual = (at: number) => at < 86_400_000;

export function time(at: number | null | undefined): string {
  if (at === null || at === undefined) return "–";
  if (isVirtual(at)) return `+${duration(at)}`;
  return new Date(at).toDateString() === new Date().toDateString() ? clock.format(at) : dayTime.format(at);
}
export const iso = (at: number): string => (isVirtual(at) ? `+${at} ms` : new Date(at).toISOString());
export const ago = (at: number, now: number): string => (now - at < 1000 ? "now" : `${duration(now - at)} ago`);

/** A value as one line of at most `limit` characters. */
export function brief(value: Json | undefined, limit = 160): string {
  if (value === undefined) return "";
  const text = (typeof value === "string" ? value : (stringify(value) ?? "")).slice(0, limit * 4).replace(/\s+/g, " ");
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}
/** Texts of choices. Those that would look equal, such as `1` and `"1"`, or that are empty are JSON. */
export function choiceTexts(choices: Json[]): string[] {
  const texts = choices.map((one) => brief(one));
  return texts.map((text, at) => (text.trim() !== "" && texts.indexOf(text) === texts.lastIndexOf(text) ? text : stringify(choices[at])));
}
export const pretty = (value: unknown): string => (typeof value === "string" ? value : (stringify(value, 2) ?? ""));
/** The text of a message's content: a string, or the text parts of a list. */
export function contentText(content: Json | undefined): string {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  if (Array.isArray(content))
    return content.map((part) => (part && typeof part === "object" && !Array.isArray(part) && typeof part.text === "string" ? part.text : pretty(part))).join("\n");
  return pretty(content);
}
