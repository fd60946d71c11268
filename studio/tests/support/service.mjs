// Starts `pirn serve` with the examples and the workflows of this folder, for browser tests and screenshots.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { findPirn, root } from "./server.mjs";

const here = dirname(fileURLToPath(import.meta.url));

/** Prefixes the ids of a file's profiles: the examples use the same names for different profiles. */
function withOwnProfiles(name, file) {
  const own = new Set((file.profiles ?? []).map((profile) => profile.id));
  const rename = (value) => {
    if (Array.isArray(value)) return value.map(rename);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [
        key,
        key === "profileId" && own.has(inner) ? `${name}-${inner}` : rename(inner),
      ]),
    );
  };
  const renamed = rename(file);
  for (const profile of renamed.profiles ?? []) profile.id = `${name}-${profile.id}`;
  return renamed;
}

/** The profiles and tools of the support desk, and a tool that needs consent. */
function config() {
  const desk = join(root, "examples/support-desk");
  return `${readFileSync(join(desk, "pirn.toml"), "utf8").replaceAll('cwd = "."', `cwd = ${JSON.stringify(desk)}`)}
[[tools]]
name = "refund"
description = "Pays money back to a customer"
approval = "ask"
inputSchema = { type = "object", properties = { order = { type = "string" }, amount = { type = "number", minimum = 0, maximum = 1000, description = "EUR" } }, required = ["order", "amount"], additionalProperties = false }
command = { program = "echo", args = ["refunded", "{{amount}}", "for", "{{order}}"] }
[[tools]]
name = "transfer"
description = "Moves money between two accounts"
approval = "ask"
inputSchema = { type = "object", properties = { from = { type = "integer" }, to = { type = "integer" }, note = {} }, required = ["from", "to"] }
command = { program = "echo", args = ["from {{from}} to {{to}}, note {{note}}"] }
`;
}

const EXAMPLES = ["research.json", "refine.json"];

async function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/**
 * A running service. `restart()` ends it and starts it again on the same port with the same store; `kill()` simulates a crash;
 * `close()` ends it and removes its files.
 */
export async function startService({ studio = "full", token, store = true, listen } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "pirn-studio-"));
  const files = EXAMPLES.map((name) => {
    const path = join(folder, name);
    const file = JSON.parse(readFileSync(join(root, "examples", name), "utf8"));
    writeFileSync(path, JSON.stringify(withOwnProfiles(name.replace(".json", ""), file), null, 2));
    return path;
  });
  const examples = ["support-desk/workflow.json", "approval/workflow.json", "service/workflows.json"];
  const own = [join(here, "workflows.json")];
  const port = listen ?? (await freePort());
  const args = ["serve", ...examples.map((name) => join(root, "examples", name)), ...files, ...own];
  writeFileSync(join(folder, "pirn.toml"), config());
  args.push("--profiles", join(folder, "pirn.toml"), "--listen", `127.0.0.1:${port}`, "--grace", "1");
  if (studio && studio !== "full") args.push("--studio", studio);
  if (store) args.push("--store", join(folder, "runs.db"));
  if (token) {
    writeFileSync(join(folder, "token"), `${token}\n`);
    args.push("--token-file", join(folder, "token"));
  }
  const base = `http://127.0.0.1:${port}`;
  let process_;
  let log = "";

  const start = async () => {
    process_ = spawn(findPirn(), args, { stdio: ["ignore", "pipe", "pipe"], cwd: folder });
    process_.stdout.on("data", (piece) => (log += piece));
    process_.stderr.on("data", (piece) => (log += piece));
    for (let attempt = 0; attempt < 200; attempt += 1) {
      if (process_.exitCode !== null) throw new Error(`pirn serve ended: ${log}`);
      try {
        if ((await fetch(`${base}/readyz`)).ok) return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    throw new Error(`pirn serve does not answer: ${log}`);
  };
  const end = (signal) =>
    new Promise((resolve) => {
      if (process_.exitCode !== null || process_.signalCode !== null) return resolve();
      process_.once("exit", resolve);
      process_.kill(signal);
    });
  await start();

  const call = async (path, body, headers = {}) => {
    const answer = await fetch(`${base}/v1${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: {
        ...(token ? { Authorization: `Bearer ${token.split(/\s/)[0]}` } : {}),
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  };
  return {
    base,
    call,
    log: () => log,
    stop: () => end("SIGTERM"),
    kill: () => end("SIGKILL"),
    start,
    restart: async () => {
      await end("SIGKILL");
      await start();
    },
    close: async () => {
      await end("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Calls `probe` until it returns a value that is not undefined, null or false. */
export async function until(probe, what = "the condition", seconds = 20) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what} did not occur within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Input of the example `support-desk`. */
export const SUPPORT_DESK = {
  workflow: "support-desk",
  runId: "ticket-1",
  input: JSON.parse(readFileSync(join(root, "examples/support-desk/ticket.json"), "utf8")),
  conversation: JSON.parse(readFileSync(join(root, "examples/support-desk/conversation.json"), "utf8")),
};
