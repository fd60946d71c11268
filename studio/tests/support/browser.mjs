// Chromium for the tests of the page. Each page records violations of the Content-Security-Policy and errors of scripts.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { findPirn, servePage, servePirn } from "./server.mjs";

export const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => existsSync(path));
/** The reason to skip browser tests, or false. */
export const skip = !findPirn() ? "there is no pirn command (set PIRN, or cargo build -p pirn-cli)" : !CHROMIUM ? "chromium is not installed" : false;

let browser;
export async function launch() {
  const { chromium } = await import("playwright-core");
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
}
export const closeBrowser = () => browser?.close();

/** A service with the page before it. */
export async function studio(files, options) {
  const service = await servePirn(files, options);
  const page = await servePage(() => service.url);
  return {
    service,
    url: page.url,
    post: async (path, body) => {
      const answer = await fetch(`${service.url}/v1${path}`, { method: "POST", headers: { "Content-Type": "application/json", ...options?.headers }, body: JSON.stringify(body) });
      if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
      return answer.json();
    },
    get: async (path) => (await fetch(`${service.url}/v1${path}`, { headers: options?.headers })).json(),
    stop: async () => {
      page.close();
      await service.stop();
    },
  };
}

/** Opens a view and returns the page; `problems` collects what must not happen. */
export async function open(base, hash, { width = 1280, height = 800, scheme = "light" } = {}) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme });
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) page.problems.push(message.text());
  });
  page.setDefaultTimeout(10_000);
  await page.goto(base + hash);
  return page;
}

const require = createRequire(import.meta.url);
/** Runs axe-core and returns the violations as short texts. */
export async function axe(page) {
  // Evaluated by the debugger, which the policy of the page does not restrict.
  const { readFile } = await import("node:fs/promises");
  await page.evaluate(await readFile(require.resolve("axe-core/axe.min.js"), "utf8"));
  return page.evaluate(async () => {
    const { violations } = await globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
    return violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", ")}`);
  });
}
