// Measures the page with a service of made-up data: node tests/measure.mjs. Prints a table, and fails above a bound.
//
// A run of 10,000 and of 100,000 events is opened, scrubbed and scrolled; then the page shows the list of runs of a busy engine, with the
// changes of one hour in a row, and its heap is compared after garbage collections.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { bundle } from "../build.mjs";
import { closeBrowser, CHROMIUM, launch, open } from "./support/browser.mjs";
import { CSP, root } from "./support/server.mjs";

const START = 1_700_000_000_000;
const FRAMES = 120;
/** Changes of runs in an hour: ten each second. */
const CHANGES = 36_000;

/** Events of a run whose FORK has branches, each a loop of model calls. */
function events(count, runId) {
  const list = [];
  let at = START;
  const add = (type, threadId, more) => list.push({ type, sequence: list.length + 1, timestamp: (at += 3), runId, workflowId: "wide", threadId, ...more });
  const main = `${runId}.0`;
  const paths = Array.from({ length: Math.min(200, Math.max(4, count / 200)) }, (_, i) => `p${i}`);
  add("THREAD_STARTED", main, { kind: "main" });
  add("NODE_STARTED", main, { nodeId: "start", nodeType: "START" });
  add("NODE_COMPLETED", main, { nodeId: "start", nodeType: "START", output: { n: 1 } });
  add("NODE_STARTED", main, { nodeId: "fork", nodeType: "FORK" });
  add("THREAD_FORK_STARTED", main, { nodeId: "fork", forkPathIds: paths });
  const threads = paths.map((pathId, i) => ({ pathId, id: `${runId}.${i + 1}`, messages: 0 }));
  for (const { pathId, id } of threads) add("THREAD_STARTED", id, { kind: "branch", pathId });
  for (let i = 0; list.length < count - 8; i++) {
    const thread = threads[i % threads.length];
    add("NODE_STARTED", thread.id, { nodeId: "work", nodeType: "LLM" });
    add("REQUEST_PREPARED", thread.id, { tokensUsed: 900 + i, tokenLimit: 8000, messages: thread.messages + 1, stablePrefixTokens: 800 });
    add("MESSAGE_ADDED", thread.id, { index: thread.messages++, tokens: 12, message: { role: "assistant", content: `The reply ${i} of ${thread.pathId} about looms and pirns.` } });
    add("NODE_COMPLETED", thread.id, { nodeId: "work", nodeType: "LLM", output: { content: `reply ${i}`, usage: { input: 900, output: 12, total: 912 } } });
  }
  add("THREAD_COMPLETED", main, { status: "COMPLETED", output: "done" });
  return list;
}

const NODES = ["start", "fork", "work", "join", "end"];
const DRAWING = {
  width: 900,
  height: 200,
  nodes: NODES.map((id, i) => ({ id, type: id.toUpperCase(), x: 20 + 170 * i, y: 60, width: 120, height: 48, title: id, lines: [{ text: id, x: 40 + 170 * i, y: 88 }] })),
  edges: NODES.slice(1).map((to, i) => ({ from: NODES[i], to, kind: "next", points: [[140 + 170 * i, 84], [190 + 170 * i, 84]] })),
  lanes: [],
};

/** A service with runs named by their number of events. */
async function service() {
  const files = process.argv.includes("--dist") ? undefined : await bundle();
  const types = { js: "text/javascript", css: "text/css", html: "text/html" };
  const runs = new Map();
  const runOf = (id) => {
    if (!runs.has(id)) {
      const list = events(Number(id), id);
      const steps = list.filter((event) => /COMPLETED|MESSAGE/.test(event.type)).map((event, i) => ({ step: i, threadId: event.threadId, nodeId: event.nodeId, kind: "model", at: event.timestamp }));
      const stream = `${list.map((event) => `id: ${event.sequence}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}`).join("\n\n")}\n\nevent: end\ndata: {"status":"COMPLETED"}\n\n`;
      runs.set(id, { list, steps, stream });
    }
    return runs.get(id);
  };
  const statuses = new Set();
  const item = (i, status) => ({ runId: `run-${i}`, workflowId: "wide", session: `session-${i % 50}`, status, startedAt: START + i, updatedAt: START + i + 5, tokens: i, openQuestions: 0 });
  const server = createServer(async (request, answer) => {
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    const json = (value) => answer.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(value));
    const file = /^\/studio\/(.*)$/.exec(pathname)?.[1];
    if (file !== undefined) {
      const name = file || "index.html";
      answer.writeHead(200, { "Content-Type": types[name.split(".").pop()], "Content-Security-Policy": CSP });
      return answer.end(files?.[name] ?? (await readFile(join(root, "service/studio", name))));
    }
    if (pathname === "/v1/info") return json({ version: "0", studio: "full", store: true });
    if (pathname === "/v1/status") {
      answer.writeHead(200, { "Content-Type": "text/event-stream" });
      answer.write(": open\n\n");
      statuses.add(answer);
      return answer.on("close", () => statuses.delete(answer));
    }
    if (pathname === "/v1/runs") return json({ runs: Array.from({ length: 100 }, (_, i) => item(i, "RUNNING")) });
    const [, id, rest] = /^\/v1\/runs\/(\d+)(.*)$/.exec(pathname) ?? [];
    if (id === undefined) return json({ workflows: [], interactions: [], sessions: [], series: [], intervalMs: 5000, from: START });
    const { list, steps, stream } = runOf(id);
    if (rest === "/events") return answer.writeHead(200, { "Content-Type": "text/event-stream" }).end(stream);
    const after = Number(searchParams.get("after") ?? -1);
    if (rest === "/steps") {
      const page = steps.slice(after + 1, after + 1001);
      return json({ steps: page, next: page.length === 1000 ? page.at(-1).step : null });
    }
    if (rest === "/threads") return json({ threads: [] });
    if (rest === "/requests") return json({ requests: [] });
    if (rest === "/drawings") return json({ drawings: { wide: DRAWING } });
    if (rest === "/definition") return json({ workflows: [] });
    return json({ runId: id, workflowId: "wide", status: "COMPLETED", nodes: [], threads: [], variables: {}, elapsedMs: list.length });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/studio/`,
    prepare: runOf,
    /** Sends changes of runs to every open page. */
    async change(from, count) {
      for (let i = from; i < from + count; i += 20) {
        const text = Array.from({ length: 20 }, (_, k) => `id: e.${i + k}\nevent: run\ndata: ${JSON.stringify(item((i + k) % 5000, "COMPLETED"))}\n\n`).join("");
        for (const one of statuses) if (!one.write(text)) await new Promise((resolve) => one.once("drain", resolve));
        if (i % 400 === 0) await new Promise((resolve) => setTimeout(resolve, 4));
      }
    },
    close: () => (server.closeAllConnections(), server.close()),
  };
}

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const p95 = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length * 0.95)];

/** Milliseconds of each frame while `step` changes the page once in it. */
const frames = (page, kind) =>
  page.evaluate(
    async ([count, kind]) => {
      const range = document.querySelector("input[type=range]");
      const list = document.querySelector(".list, .timeline-box, .pane");
      const max = Number(range.max);
      const took = [];
      const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
      let before = await frame();
      for (let i = 0; i < count; i++) {
        if (kind === "scroll") list.scrollTop = (list.scrollHeight * (i + 1)) / (count + 2);
        else {
          Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(range, String(Math.floor((max * (i + 1)) / (count + 2))));
          range.dispatchEvent(new Event("input", { bubbles: true }));
        }
        const now = await frame();
        took.push(now - before);
        before = now;
      }
      return took;
    },
    [FRAMES, kind],
  );

if (!CHROMIUM) {
  console.error("nothing is measured: chromium is not installed");
  process.exit(0);
}
await launch();
const site = await service();
const results = [];
const report = (name, value, bound, unit) => {
  results.push(value <= bound);
  console.log(`${value <= bound ? "ok  " : "OVER"} ${name}: ${value.toFixed(1)} ${unit} (bound ${bound})`);
};
try {
  for (const [count, opens] of [[10_000, 300], [100_000, 1500]]) {
    site.prepare(String(count));
    const page = await open(site.url, "#/compare", { width: 1280, height: 800 });
    await page.waitForSelector("h1");
    const took = await page.evaluate(async (count) => {
      const start = performance.now();
      location.hash = `#/runs/${count}/events`;
      while (!document.querySelector(".list .row") || Number(document.querySelector("input[type=range]").max) < count - 12) await new Promise((resolve) => setTimeout(resolve, 1));
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      return performance.now() - start;
    }, count);
    report(`open ${count} events`, took, opens, "ms");
    await page.waitForFunction(() => /step/.test(document.querySelector(".position").textContent), undefined, { timeout: 60_000 });
    for (const pane of ["events", "graph", "timeline", "conversation", "state"]) {
      await page.evaluate(([count, pane]) => (location.hash = `#/runs/${count}/${pane}`), [count, pane]);
      await page.waitForTimeout(1000);
      if (pane === "events") {
        const scrolled = await frames(page, "scroll");
        report(`scroll the events of ${count}, mean frame`, mean(scrolled), 17.5, "ms");
        report(`scroll the events of ${count}, 95th percentile`, p95(scrolled), 34, "ms");
      }
      const scrubbed = await frames(page, "scrub");
      report(`scrub ${pane} of ${count}, mean frame`, mean(scrubbed), 17.5, "ms");
      report(`scrub ${pane} of ${count}, 95th percentile`, p95(scrubbed), 34, "ms");
    }
    await page.close();
  }
  for (const view of ["runs", "questions", "engine"]) {
    const page = await open(site.url, `#/${view}`, { width: 1280, height: 800 });
    await page.waitForSelector("h1");
    const session = await page.context().newCDPSession(page);
    await session.send("HeapProfiler.enable");
    const heap = async () => {
      await page.waitForTimeout(800);
      await session.send("HeapProfiler.collectGarbage");
      return (await session.send("Runtime.getHeapUsage")).usedSize / 1024;
    };
    await site.change(0, CHANGES / 10);
    const first = await heap();
    await site.change(CHANGES / 10, CHANGES);
    const last = await heap();
    console.log(`     heap of ${view}: ${first.toFixed(0)} KiB after six minutes, ${last.toFixed(0)} KiB after an hour`);
    report(`growth of the heap of ${view} in an hour`, Math.max(0, last - first), 512, "KiB");
    await page.close();
  }
} finally {
  site.close();
  await closeBrowser();
}
process.exitCode = results.every(Boolean) ? 0 : 1;
