// Access to the service's API. The base is `../v1` relative to the page, so that the service can be nested under any path. In an
// exported page, answers come from the data in the page.

import { parse, stringify } from "./data/json";
import { signal } from "./reactive";
import type { Info, RunEvent } from "./types";

/** An error of the API: `application/problem+json`, or a failed connection with the code `OFFLINE`. */
export class Problem extends Error {
  constructor(
    readonly code: string,
    readonly status: number,
    detail: string,
    readonly fix?: string,
    readonly pointer?: string,
  ) {
    super(detail);
  }
}

const TOKEN = "pirn-token";
const MIN_WAIT = 250;
const MAX_WAIT = 15_000;
/** The longest time of a timer: until the token changes. */
const FOREVER = 2 ** 31 - 1;
const SILENCE = 45_000;

interface Exported {
  export: true;
  responses: { [path: string]: unknown };
}

function exported(): Exported | undefined {
  const element = document.getElementById("run-data");
  return element?.textContent ? (parse(element.textContent) as Exported) : undefined;
}

const data = exported();
/** The page is a file with the data of a run, without a service. */
export const isExport = data !== undefined;
/** The run ids in an exported page. */
export const exportedRuns: string[] = Object.keys(data?.responses ?? {}).flatMap((path) => /^\/runs\/([^/?]+)$/.exec(path)?.[1] ?? []);

/** Answers for the run of an explored order, by path. The service has no such run. */
let order: { [path: string]: unknown } = {};
/** The first characters of the id of such a run. Ids of runs have no colon. */
const ORDER = "order:";
export const isOrder = (id: string) => id.startsWith(ORDER);

/** Makes the page show the run of an explored order, and returns its id. */
export function showOrder(replay: string, answers: { [rest: string]: unknown }): string {
  const id = ORDER + replay;
  order = Object.fromEntries(Object.entries(answers).map(([rest, answer]) => [`/runs/${encodeURIComponent(id)}${rest}`, answer]));
  return id;
}

const fixed = (path: string) => data?.responses ?? (path.startsWith(`/runs/${encodeURIComponent(ORDER)}`) ? order : undefined);

/** Whether the service answers; views show stale data while it does not. */
export const connection = signal<"online" | "lost">("online");
/** The service has refused a request because it had no valid token. */
export const tokenWanted = signal(false);
export const info = signal<Info | undefined>(undefined);
/** Changes are possible: not an exported page, and the service does not run with `--studio read`. */
export const canChange = () => !isExport && info.value?.studio !== "read";

const base = new URL("../v1", document.baseURI.replace(/[?#].*$/, "")).href;

export type Params = { [name: string]: string | number | undefined };

export function query(path: string, params: Params = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined && value !== "") search.set(name, String(value));
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** The full address of an API path, for commands that a person copies. */
export const address = (path: string) => base + path;

/** `X-Pirn-Studio` marks requests of the page, which `--studio read` refuses if they change something. */
function headers(more: Record<string, string> = {}): Record<string, string> {
  const token = sessionStorage.getItem(TOKEN);
  return { ...more, "X-Pirn-Studio": "1", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
}

/** Uses a token for every request from now on, and connects streams again. Returns false for a token that a header cannot contain. */
export function setToken(token: string): boolean {
  if (!/^[!-~]+$/.test(token.trim())) return false;
  sessionStorage.setItem(TOKEN, token.trim());
  tokenWanted.value = false;
  tokenVersion.value++;
  tokenChange.abort();
  tokenChange = new AbortController();
  return true;
}
/** Aborted by the next change of the token. */
let tokenChange = new AbortController();
/** Changes with every new token: views repeat their requests. */
export const tokenVersion = signal(0);

async function problemOf(response: Response): Promise<Problem> {
  if (response.status === 401 || response.status === 403) tokenWanted.value = response.status === 401;
  const body = await response.text().then(parse<any>).catch(() => ({}));
  const { code = `HTTP_${response.status}`, detail = response.statusText, fix = FIXES[String(body.code)], pointer } = body;
  return new Problem(String(code), response.status, String(detail), fix, pointer ?? undefined);
}

const FIXES: { [code: string]: string } = {
  NO_STORE: "Start the service with --store FILE.",
  NOT_CARRIED: "Resume the run; then this service owns it.",
  OVERLOADED: "Wait until active runs have ended, or raise --max-runs.",
  DRAINING: "Wait until the service has restarted.",
  UNAUTHORIZED: "Enter a token of the service's --token-file.",
  STUDIO_READ_ONLY: "Start the service with --studio full.",
  OFFLINE: "Start the service. The page connects again automatically.",
};

async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(base + path, { ...init, headers: headers(init.headers as Record<string, string>) });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    connection.value = "lost";
    throw new Problem("OFFLINE", 0, "The service does not answer.", FIXES.OFFLINE);
  }
  connection.value = "online";
  if (!response.ok) throw await problemOf(response);
  return response;
}

/** An answer that the page has: with the exact parameters, or else without parameters. */
function fromPage(path: string, responses: { [path: string]: unknown }): unknown {
  const found = responses[path] ?? responses[path.replace(/\?.*/, "")];
  if (found !== undefined) return found;
  if (!data) throw new Problem("NOT_EXPLORED", 404, "The page does not have the order.", "Explore the orders of the workflow again.");
  throw new Problem("NOT_EXPORTED", 404, "This file does not contain the data.", "Open the run in the Studio of a service.");
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const known = fixed(path);
  if (known) return fromPage(path, known) as T;
  const response = await send(path, { signal });
  return (response.headers.get("Content-Type") ?? "").includes("json") ? parse<T>(await response.text()) : ((await response.text()) as T);
}

export async function post<T = unknown>(path: string, body: unknown = {}, signal?: AbortSignal): Promise<T> {
  if (data) throw new Problem("EXPORTED", 409, "An exported page cannot change a run.", "Open the run in the Studio of a service.");
  const response = await send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: stringify(body),
    signal,
  });
  return parse<T>(await response.text());
}

/** One server-sent event. */
export interface Sent {
  id: string;
  event: string;
  data: string;
}

/** Cuts a stream into server-sent events; the rest of an incomplete one stays for the next call. */
export class SseParser {
  #rest = "";

  push(text: string): Sent[] {
    const all = this.#rest + text;
    const end = all.lastIndexOf("\n\n");
    if (end < 0) {
      this.#rest = all;
      return [];
    }
    this.#rest = all.slice(end + 2);
    const sent: Sent[] = [];
    for (const block of all.slice(0, end).split("\n\n")) {
      const one: Sent = { id: "", event: "", data: "" };
      for (const line of block.split("\n")) {
        if (line.startsWith("data: ")) one.data = one.data ? `${one.data}\n${line.slice(6)}` : line.slice(6);
        else if (line.startsWith("id: ")) one.id = line.slice(4);
        else if (line.startsWith("event: ")) one.event = line.slice(7);
      }
      if (one.data || one.event) sent.push(one);
    }
    return sent;
  }
}

export interface StreamOptions {
  /** Receives the events of a piece of the stream; called at most once for each piece that arrives. */
  onEvents: (events: Sent[]) => void;
  /** The stream has ended for good: `event: end`, 204, or `signal`. */
  onEnd?: () => void;
  onProblem?: (problem: Problem) => void;
  /** The id after which the stream starts. */
  after?: string;
  signal: AbortSignal;
}

/**
 * Reads a stream of server-sent events. When the connection breaks (a restart of the service, for example) it connects again, waiting
 * 0.25 s, then twice as long each time up to 15 s, and continues after the last id, so that no event is lost or sent twice. A stream that
 * was refused for its token connects again with the next one.
 */
export async function stream(path: string, options: StreamOptions): Promise<void> {
  let last = options.after;
  let wait = MIN_WAIT;
  for (;;) {
    let ended = false;
    let isRefused = false;
    const attempt = new AbortController();
    for (const signal of [options.signal, tokenChange.signal]) signal.addEventListener("abort", () => attempt.abort(), { signal: attempt.signal });
    try {
      const response = await send(path, {
        headers: { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) },
        signal: attempt.signal,
      });
      if (response.status === 204 || !response.body) ended = true;
      else
        ended = await readAll(response.body, (events) => {
          wait = MIN_WAIT;
          for (const one of events) if (one.id) last = one.id;
          options.onEvents(events);
        });
    } catch (error) {
      if (options.signal.aborted) return;
      if (error instanceof Problem && error.status >= 400 && error.status < 500) {
        options.onProblem?.(error);
        isRefused = error.status === 401;
        if (!isRefused) return options.onEnd?.();
      }
    }
    if (options.signal.aborted) return;
    if (ended) return options.onEnd?.();
    if (!isRefused) connection.value = "lost";
    await pause(isRefused ? FOREVER : wait, attempt.signal);
    wait = attempt.signal.aborted ? MIN_WAIT : Math.min(wait * 2, MAX_WAIT);
    attempt.abort();
  }
}

/** Returns true if the stream has ended by `event: end`. */
async function readAll(body: ReadableStream<Uint8Array>, onEvents: (events: Sent[]) => void): Promise<boolean> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  for (;;) {
    // The service sends at least a comment every 15 s; a connection without one is dead, although nothing has closed it.
    const watch = setTimeout(() => void reader.cancel(), SILENCE);
    const { done, value } = await reader.read();
    clearTimeout(watch);
    if (done) return false;
    const events = parser.push(decoder.decode(value, { stream: true }));
    if (events.length === 0) continue;
    onEvents(events);
    if (events.at(-1)?.event === "end") {
      void reader.cancel();
      return true;
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}

/** The events of an exported run or an explored order: a list, `{events}`, lines of JSON, or the stream as the service sends it. */
export function exportedEvents(path: string): RunEvent[] {
  const found = fromPage(path, fixed(path) ?? {}) as RunEvent[] | { events: RunEvent[] } | string;
  if (Array.isArray(found)) return found;
  if (typeof found !== "string") return found.events;
  const lines = found.split("\n").map((line) => (line.startsWith("data: ") ? line.slice(6) : line));
  return lines.filter((line) => line.startsWith("{")).map((line) => parse(line) as RunEvent).filter((event) => event.type);
}

export async function loadInfo(): Promise<void> {
  if (isExport) return;
  info.value = await get<Info>("/info");
}
