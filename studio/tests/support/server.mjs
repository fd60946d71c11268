// Runs `pirn serve` for a test, and the page before it on one origin: service/studio/ at /studio/ with the headers of the service.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");
export const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8" };

/** The command to test: PIRN, or the newest build of the workspace. Undefined if there is none. */
export function findPirn() {
  const candidates = [process.env.PIRN, join(root, "target/debug/pirn"), join(root, "target/release/pirn")];
  return candidates.find((path) => path && existsSync(path));
}

/** Starts `pirn serve FILES` on a free port. Returns its address, the store's path, `stop()` and `restart()`. */
export async function servePirn(files, { store = true, args = [] } = {}) {
  const folder = await mkdtemp(join(tmpdir(), "studio-"));
  const path = join(folder, "runs.db");
  let child;
  let port = 0;
  const start = () =>
    new Promise((resolve, reject) => {
      const options = [...files.map((file) => (isAbsolute(file) ? file : join(root, file))), "--listen", `127.0.0.1:${port}`, ...(store ? ["--store", path] : []), ...args];
      child = spawn(findPirn(), ["serve", ...options], { stdio: ["ignore", "ignore", "pipe"], cwd: root });
      let log = "";
      child.stderr.on("data", (data) => {
        log += data;
        const found = /listening on http:\/\/[^\s:]+:(\d+)\s/.exec(log);
        if (found) {
          port = Number(found[1]);
          resolve();
        }
      });
      child.once("exit", (code) => reject(new Error(`pirn serve ended with ${code}: ${log}`)));
    });
  const end = (signal) =>
    new Promise((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) return resolve();
      child.once("exit", resolve);
      child.kill(signal);
    });
  await start();
  return {
    get url() {
      return `http://127.0.0.1:${port}`;
    },
    kill: () => end("SIGKILL"),
    start,
    stop: async () => {
      await end("SIGKILL");
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Serves service/studio/ at /studio/ and passes everything else to the service at `target()`. */
export async function servePage(target) {
  const dist = join(root, "service/studio");
  const server = createServer(async (incoming, answer) => {
    const { pathname } = new URL(incoming.url, "http://localhost");
    const name = pathname === "/studio/" ? "index.html" : /^\/studio\/((?:studio|more)\.(?:js|css))$/.exec(pathname)?.[1];
    if (name) {
      answer.writeHead(200, { "Content-Type": TYPES[name.split(".").pop()], "Content-Security-Policy": CSP, "Cache-Control": "no-store" });
      return answer.end(await readFile(join(dist, name)));
    }
    const { hostname, port } = new URL(target());
    const headers = { ...incoming.headers, host: `${hostname}:${port}` };
    delete headers.origin;
    const passed = request({ hostname, port, path: incoming.url, method: incoming.method, headers }, (from) => {
      answer.writeHead(from.statusCode, from.headers);
      from.pipe(answer);
      // A broken stream breaks at the page too.
      from.on("close", () => from.complete || answer.destroy());
    });
    passed.on("error", () => answer.destroy());
    answer.on("close", () => passed.destroy());
    incoming.pipe(passed);
  });
  await new Promise((resolve) => server.listen(Number(process.env.PAGE_PORT ?? 0), "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/studio/`, close: () => (server.closeAllConnections(), server.close()) };
}
