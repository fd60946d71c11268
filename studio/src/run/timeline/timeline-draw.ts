// Draws the timeline on a canvas: only the rows and times in view.

import type { RunEvent } from "../../types";
import { duration, tokens } from "../../ui/text/format";
import { look } from "../../ui/status";
import { collapseText, strategyName } from "../model/digest";
import { type Call, type Compression, countUpTo, isOpenAt, type RunModel, type Span, statusAt, type Thread, type Visit } from "../model/model";
import { threadStatus, visitStatus } from "../model/node-state";
import { tickStep, type TimeScale } from "./time-scale";

export const ROW = 40;
export const RULER = 26;

export interface Frame {
  model: RunModel;
  rows: Thread[];
  rowOf: Map<string, number>;
  scale: TimeScale;
  /** Range of the axis in view. */
  from: number;
  to: number;
  top: number;
  width: number;
  height: number;
  gutter: number;
  sequence: number;
  /** Time up to which running items are drawn: that of the cursor, or the present one. */
  now: number;
  node?: string;
  thread?: string;
  hover?: number;
  select?: [number, number];
}

/** What a position of the canvas shows. */
export interface Hit {
  x: number;
  y: number;
  width: number;
  height: number;
  visit?: Visit;
  call?: Call;
  event?: RunEvent;
  thread: Thread;
  text: string;
}

type Colours = { [name: string]: string };

/** The page's colours by name; read when they are first used. */
export function colours(element: Element): Colours {
  const style = getComputedStyle(element);
  return new Proxy({} as Colours, { get: (known, name: string) => (known[name] ??= style.getPropertyValue(`--${name}`)) });
}

const TICKS = new Set(["CUSTOM", "NOTIFICATION", "USER_MESSAGE", "VARIABLE_CHANGED", "TOKEN_USAGE_WARNING", "TOKEN_LIMIT_EXCEEDED", "BUDGET_WARNING", "BUDGET_OVERRUN", "EFFECT_IN_DOUBT", "TRIGGER_FAILED", "ARTIFACT_KEPT", "CACHE_COLLAPSED", "SCRIPT_LOG", "INTERACTION_ANSWERED"]);
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

export function draw(pen: CanvasRenderingContext2D, frame: Frame, c: Colours): Hit[] {
  const hits: Hit[] = [];
  const { width, height, gutter } = frame;
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const first = Math.max(0, Math.floor(frame.top / ROW));
  const last = Math.min(frame.rows.length, Math.ceil((frame.top + height - RULER) / ROW));
  pen.save();
  pen.beginPath();
  pen.rect(0, RULER, width, height - RULER);
  pen.clip();
  for (let i = first; i < last; i++) {
    const y = RULER + i * ROW - frame.top;
    if (frame.rows[i]!.id === frame.thread) {
      fill(pen, c.select!, 0, y, width, ROW);
    }
    fill(pen, c.line!, 0, y + ROW - 1, width, 1);
  }
  pen.save();
  pen.beginPath();
  pen.rect(gutter, RULER, width - gutter, height - RULER);
  pen.clip();
  drawFolds(pen, frame, c);
  const events = ticksByThread(frame, first, last);
  for (let i = first; i < last; i++) drawRow(pen, frame, c, frame.rows[i]!, RULER + i * ROW - frame.top, events.get(frame.rows[i]!.id) ?? [], hits);
  drawJoins(pen, frame, c);
  pen.restore();
  for (let i = first; i < last; i++) drawName(pen, frame, c, frame.rows[i]!, RULER + i * ROW - frame.top);
  pen.restore();
  drawRuler(pen, frame, c);
  drawCursor(pen, frame, c);
  return hits;
}

export function xOf(frame: Frame, time: number): number {
  return frame.gutter + ((frame.scale.at(time) - frame.from) / (frame.to - frame.from)) * (frame.width - frame.gutter);
}
export function timeOf(frame: Frame, x: number): number {
  return frame.scale.timeAt(frame.from + ((x - frame.gutter) / (frame.width - frame.gutter)) * (frame.to - frame.from));
}

const endOf = (frame: Frame, span: Span): number => (span.end === undefined || span.end > frame.sequence ? frame.now : span.endAt!);

function drawRow(pen: CanvasRenderingContext2D, frame: Frame, c: Colours, thread: Thread, y: number, ticks: Tick[], hits: Hit[]): void {
  const { visits } = thread;
  const t0 = frame.scale.timeAt(frame.from);
  const t1 = frame.scale.timeAt(frame.to);
  if (thread.start > frame.sequence || thread.startAt > t1) return;
  // Visits of a thread follow each other, so only the one before the range can extend into it.
  const from = Math.max(0, countUpTo(visits, t0, (visit) => visit.startAt) - 1);
  const to = countUpTo(visits, t1, (visit) => visit.startAt);
  const a = xOf(frame, thread.startAt);
  const b = xOf(frame, endOf(frame, thread));
  fill(pen, c.line!, a, y + 14, Math.max(1, b - a), 1);
  let covered = -1;
  for (let i = from; i < to; i++) {
    const visit = visits[i]!;
    if (visit.start > frame.sequence) break;
    const x = xOf(frame, visit.startAt);
    const end = Math.max(x + 2, xOf(frame, endOf(frame, visit)));
    // Many bars within a pixel look like one.
    if (end <= covered) continue;
    covered = Math.max(covered, Math.floor(end));
    drawVisit(pen, frame, c, visit, x, end, y, hits, thread);
  }
  for (const { x, event } of ticks) {
    const mark = MARKS[event.type];
    fill(pen, /LIMIT|WARNING|OVERRUN|DOUBT|FAILED|COLLAPSED/.test(event.type) ? c.wait! : c.violet!, x, y + ROW - 7, 2, 6);
    if (mark) polygon(pen, mark.map(([a, b]) => [x + 1 + a!, y + ROW - 7 + b!]));
    hits.push({ x: x - 4, y: y + ROW - 12, width: 10, height: 11, event, thread, text: tickText(event) });
  }
  drawBrackets(pen, frame, c, thread, y);
  if (thread.status && thread.end! <= frame.sequence && thread.status !== "COMPLETED") {
    pen.fillStyle = thread.status === "CANCELLED" ? c.off! : c.bad!;
    pen.fillText(look(thread.status).symbol, b + 3, y + 14);
  }
}

function drawVisit(pen: CanvasRenderingContext2D, frame: Frame, c: Colours, visit: Visit, x: number, end: number, y: number, hits: Hit[], thread: Thread): void {
  const status = visitStatus(frame.model, visit, frame.sequence);
  const { tone } = look(status);
  const name = tone.slice(2);
  const isWait = visit.type === "WAIT" || visit.type === "USER_INTERACTION" || visit.type === "JOIN" || visit.type === "SUBGRAPH" || visit.type === "MAP";
  const selected = visit.node === frame.node && (frame.thread === undefined || visit.thread === frame.thread);
  const width = end - x;
  fill(pen, isWait ? c.sunken! : (c[`${name}-bg`] || c.sunken!), x, y + 5, width, 19);
  if (isWait && width > 3) hatch(pen, x, y + 5, width, 19, visit.type === "USER_INTERACTION" ? c.wait! : c["line-strong"]!);
  fill(pen, c[name] || c.dim!, x, y + 5, Math.min(2, width), 19);
  if (selected) {
    pen.strokeStyle = c.focus!;
    pen.lineWidth = 2;
    pen.strokeRect(x, y + 5, width, 19);
  }
  if (width > 26) label(pen, c.text!, `${status === "COMPLETED" ? "" : `${look(status).symbol} `}${visit.node}${visit.attempt > 1 ? ` ↻${visit.attempt}` : ""}`, x + 6, y + 15, width - 10, isWait ? c.sunken! : undefined);
  const took = duration(endOf(frame, visit) - visit.startAt);
  hits.push({ x, y: y + 4, width, height: 21, visit, thread, text: `${visit.node} ${visit.type}, ${look(status).word}${visit.attempt > 1 ? `, attempt ${visit.attempt}` : ""}, ${took}${visit.error ? `: ${visit.error.message}` : ""}` });
  let covered = -1;
  for (const call of visit.calls) {
    if (call.start > frame.sequence) break;
    const from = xOf(frame, call.startAt);
    const to = Math.max(from + 2, xOf(frame, endOf(frame, call)));
    if (to <= covered) continue;
    covered = Math.floor(to);
    drawCall(pen, frame, c, call, from, to, y, hits, thread, visit);
  }
}

function drawCall(pen: CanvasRenderingContext2D, frame: Frame, c: Colours, call: Call, x: number, end: number, y: number, hits: Hit[], thread: Thread, visit: Visit): void {
  const status = statusAt(call, frame.sequence);
  pen.fillStyle = status === "FAILED" ? c.bad! : call.kind === "tool" ? c.violet! : call.held ? c.wait! : c.run!;
  const top = call.kind === "tool" ? y + 31 : y + 26;
  if (call.held) hatch(pen, x, top, end - x, 4, c.wait!);
  else pen.fillRect(x, top, end - x, 4);
  if (call.firstTokenAt !== undefined) {
    const at = xOf(frame, call.firstTokenAt);
    pen.fillStyle = c.text!;
    pen.beginPath();
    pen.moveTo(at, top - 1);
    pen.lineTo(at + 4, top - 6);
    pen.lineTo(at - 4, top - 6);
    pen.fill();
  }
  const took = duration(endOf(frame, call) - call.startAt);
  const what = call.kind === "tool" ? `tool ${call.name}` : call.held ? "request over the token limit, waits for a compression" : `model call, ${tokens(call.tokens)} tokens`;
  const firstToken = call.firstTokenAt === undefined ? "" : `, first token after ${duration(call.firstTokenAt - call.startAt)}`;
  hits.push({ x, y: top - 1, width: end - x, height: 6, call, visit, thread, text: `${what}, ${look(status).word}, ${took}${firstToken}` });
}

function label(pen: CanvasRenderingContext2D, colour: string, text: string, x: number, y: number, width: number, background?: string): void {
  let shown = text;
  if (pen.measureText(shown).width > width) {
    const keep = Math.floor((shown.length * width) / pen.measureText(shown).width) - 1;
    if (keep < 2) return;
    shown = `${shown.slice(0, keep)}…`;
  }
  if (background) {
    fill(pen, background, x - 3, y - 10, pen.measureText(shown).width + 6, 19);
  }
  pen.fillStyle = colour;
  pen.fillText(shown, x, y);
}

function fill(pen: CanvasRenderingContext2D, colour: string, x: number, y: number, width: number, height: number): void {
  pen.fillStyle = colour;
  pen.fillRect(x, y, width, height);
}

function hatch(pen: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, colour: string): void {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  // Only the part in view: a wait may be wider than the canvas by far.
  const start = Math.max(x, -height) - (Math.max(x, -height) % 6);
  for (let at = start - height; at < Math.min(x + width, 8000); at += 6) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}

/** A bracket over the time in which a thread waited for a compression, with the tokens before and after. */
function drawBrackets(pen: CanvasRenderingContext2D, frame: Frame, c: Colours, thread: Thread, y: number): void {
  for (const firing of frame.model.firings) {
    if (firing.thread !== thread.id || firing.start > frame.sequence) continue;
    const x = xOf(frame, firing.startAt);
    const end = Math.max(x + 3, xOf(frame, endOf(frame, firing)));
    pen.strokeStyle = c.violet!;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x, y + 8);
    pen.lineTo(x, y + 2);
    pen.lineTo(end, y + 2);
    pen.lineTo(end, y + 8);
    pen.stroke();
    const compression = compressionOf(frame.model, thread.id, firing.end);
    if (compression && compression.sequence <= frame.sequence && end - x > 110) label(pen, c.text!, `${tokens(compression.tokensBefore)} → ${tokens(compression.tokensAfter)}`, x + 60, y + 14, end - x - 64, c["run-bg"]);
  }
}

const compressionOf = (model: RunModel, thread: string, until: number | undefined): Compression | undefined =>
  model.compressions.findLast((one) => one.thread === thread && (until === undefined || one.sequence <= until));

interface Tick {
  x: number;
  event: RunEvent;
}

/** Shapes above a tick, relative to its top: a rhombus for a message of a person, a triangle that points down for a lost cache. */
const MARKS: { [type: string]: number[][] } = {
  USER_MESSAGE: [[0, -6], [4, -2], [0, 2], [-4, -2]],
  CACHE_COLLAPSED: [[-5, -5], [5, -5], [0, 2]],
};

function polygon(pen: CanvasRenderingContext2D, points: number[][]): void {
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x!, y!);
  pen.fill();
}

/** What an event of a tick says. */
function tickText(event: RunEvent): string {
  if (event.type === "CACHE_COLLAPSED") return `cache collapsed: ${collapseText(event)}`;
  if (event.type === "USER_MESSAGE") return `message of a person, ${event.status.toLowerCase()}: ${event.text}`;
  return look(event.type).word;
}

function ticksByThread(frame: Frame, first: number, last: number): Map<string, Tick[]> {
  const ticks = new Map<string, Tick[]>();
  for (let i = first; i < last; i++) ticks.set(frame.rows[i]!.id, []);
  const { events } = frame.model;
  const from = countUpTo(events, frame.scale.timeAt(frame.from) - 1, (event) => event.timestamp);
  const to = Math.min(events.length, countUpTo(events, frame.scale.timeAt(frame.to), (event) => event.timestamp));
  for (let i = from; i < to; i++) {
    const event = events[i]!;
    if (event.sequence > frame.sequence) break;
    if (!TICKS.has(event.type)) continue;
    const list = ticks.get(event.threadId);
    if (!list) continue;
    const x = Math.round(xOf(frame, event.timestamp));
    // Many events within a pixel look like one; those with a shape are drawn in any case.
    if (list.at(-1)?.x !== x || MARKS[event.type]) list.push({ x, event });
  }
  return ticks;
}

function drawJoins(pen: CanvasRenderingContext2D, frame: Frame, c: Colours): void {
  for (const join of frame.model.joins) {
    if (join.end === undefined || join.end > frame.sequence) continue;
    const row = frame.rowOf.get(join.thread);
    if (row === undefined || !join.fork) continue;
    let lowest = row;
    for (const branch of join.fork.branches) lowest = Math.max(lowest, frame.rowOf.get(branch.id) ?? row);
    const x = Math.round(xOf(frame, join.endAt!)) + 0.5;
    const top = RULER + row * ROW - frame.top + 24;
    const bottom = RULER + lowest * ROW - frame.top + 26;
    if (bottom < RULER || top > frame.height || x < frame.gutter || x > frame.width) continue;
    pen.strokeStyle = join.status === "COMPLETED" ? c.ok! : c.bad!;
    pen.lineWidth = 1.5;
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(x, Math.max(RULER, top));
    pen.lineTo(x, Math.min(frame.height, bottom));
    pen.stroke();
    pen.setLineDash([]);
  }
}

function drawFolds(pen: CanvasRenderingContext2D, frame: Frame, c: Colours): void {
  for (const part of frame.scale.parts) {
    if (!part.folded || part.to < frame.from || part.from > frame.to) continue;
    const x = xOf(frame, part.start);
    const width = xOf(frame, part.end) - x;
    fill(pen, c.sunken!, x, RULER, width, frame.height);
  }
}

function drawName(pen: CanvasRenderingContext2D, frame: Frame, c: Colours, thread: Thread, y: number): void {
  const isLater = thread.start > frame.sequence;
  const indent = 8 + Math.min(6, thread.depth) * 10;
  const status = look(isLater ? undefined : threadStatus(frame.model, thread, frame.sequence));
  pen.fillStyle = isLater ? c.dim! : (c[status.tone.slice(2)] || c.text!);
  pen.fillText(status.symbol, indent, y + 15);
  const name = thread.name;
  label(pen, isLater ? c.dim! : c.text!, name, indent + 16, y + 15, frame.gutter - indent - 20);
  const more = thread.kind === "main" ? "main thread" : thread.kind === "branch" ? `branch of ${thread.startedBy ?? "fork"}` : thread.kind === "triggered" ? `by ${thread.startedBy ?? "trigger"}` : `called by ${thread.startedBy ?? "node"}`;
  pen.font = FONT.replace("12px", "11px");
  label(pen, c.dim!, more, indent + 16, y + 30, frame.gutter - indent - 20);
  pen.font = FONT;
  fill(pen, c.line!, frame.gutter - 1, y, 1, ROW);
}

function drawRuler(pen: CanvasRenderingContext2D, frame: Frame, c: Colours): void {
  fill(pen, c.panel!, 0, 0, frame.width, RULER);
  fill(pen, c.line!, 0, RULER - 1, frame.width, 1);
  const space = (frame.width - frame.gutter) / 90;
  const step = tickStep(frame.to - frame.from, space);
  let free = frame.gutter - 4;
  for (const part of frame.scale.parts) {
    if (part.to < frame.from || part.from > frame.to) continue;
    if (part.folded) {
      const x = xOf(frame, part.start);
      const end = xOf(frame, part.end);
      fill(pen, c.sunken!, x, 0, end - x, RULER - 1);
      const text = `${duration(part.end - part.start)} idle`;
      if (pen.measureText(text).width < end - x) label(pen, c.dim!, text, x + (end - x - pen.measureText(text).width) / 2, RULER / 2, end - x);
      free = Math.max(free, end);
      continue;
    }
    const visibleFrom = Math.max(part.start, frame.scale.timeAt(Math.max(part.from, frame.from)));
    const visibleTo = Math.min(part.end, frame.scale.timeAt(Math.min(part.to, frame.to)));
    for (let at = Math.ceil((visibleFrom - frame.model.startAt) / step) * step; at + frame.model.startAt <= visibleTo; at += step) {
      const x = xOf(frame, at + frame.model.startAt);
      fill(pen, c.line!, Math.round(x), RULER - 6, 1, 5);
      const text = duration(at);
      const width = pen.measureText(text).width;
      if (x < free || x + width + 6 > frame.width) continue;
      pen.fillStyle = c.dim!;
      pen.fillText(text, x + 3, RULER / 2 - 1);
      free = x + width + 16;
    }
  }
  pen.fillStyle = c.dim!;
  pen.fillText("Threads", 8, RULER / 2);
}

function drawCursor(pen: CanvasRenderingContext2D, frame: Frame, c: Colours): void {
  const x = Math.round(xOf(frame, frame.now));
  if (x >= frame.gutter) {
    fill(pen, c.accent!, x - 1, 0, 2, frame.height);
    pen.beginPath();
    pen.moveTo(x - 6, 0);
    pen.lineTo(x + 6, 0);
    pen.lineTo(x, 8);
    pen.fill();
  }
  if (frame.hover !== undefined && frame.hover >= frame.gutter) {
    fill(pen, c["line-strong"]!, frame.hover, RULER, 1, frame.height);
  }
  if (frame.select) {
    const [a, b] = frame.select;
    pen.globalAlpha = 0.25;
    fill(pen, c.accent!, Math.min(a, b), 0, Math.abs(b - a), frame.height);
    pen.globalAlpha = 1;
  }
}

/** Threads in the order of their tree, children after their parent in the order of their start. */
export function treeOrder(model: RunModel): Thread[] {
  const children = new Map<string | undefined, Thread[]>();
  for (const thread of model.threadList) {
    const parent = thread.parent !== undefined && model.threads.has(thread.parent) ? thread.parent : undefined;
    const list = children.get(parent);
    if (list) list.push(thread);
    else children.set(parent, [thread]);
  }
  const ordered: Thread[] = [];
  const stack = [...(children.get(undefined) ?? [])].reverse();
  while (stack.length > 0) {
    const thread = stack.pop()!;
    ordered.push(thread);
    const below = children.get(thread.id);
    if (below) for (let i = below.length - 1; i >= 0; i--) stack.push(below[i]!);
  }
  return ordered;
}

/** A sentence about what a thread does at a sequence, for screen readers. */
export function describe(model: RunModel, thread: Thread, sequence: number): string {
  const visit = thread.visits.findLast((one) => one.start <= sequence);
  const status = look(thread.start > sequence ? undefined : threadStatus(model, thread, sequence)).word;
  const join = visit && model.joins.find((one) => one.thread === thread.id && isOpenAt(one, sequence));
  return `${thread.name}, ${thread.kind}, ${status}${visit ? `, at ${visit.node}` : ""}${join ? `, joins by ${strategyName(join.strategy)}` : ""}`;
}
