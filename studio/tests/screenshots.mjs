// Writes the pictures of docs/studio.md from runs of the examples: node tests/screenshots.mjs [NAME...]
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { closeBrowser, launch, open, skip } from "./support/browser.mjs";
import { root, servePage } from "./support/server.mjs";
import { startService, SUPPORT_DESK, until } from "./support/service.mjs";

const MAX_BYTES = 150_000;
const folder = join(root, "docs/studio");

const shots = {
  timeline: { hash: "runs/ticket-1/timeline", shown: ".pane canvas, .pane svg" },
  conversation: {
    hash: "runs/ticket-1/conversation",
    shown: "button.compression-title",
    async prepare(page) {
      await page.locator("button.compression-title").first().click();
      await page.locator(".pane").evaluate((element) => (element.scrollTop = 180));
    },
  },
  request: {
    hash: "runs/ticket-1/request",
    shown: ".request-detail h2",
    async prepare(page) {
      await page.getByRole("listbox", { name: "Model requests" }).focus();
      await page.keyboard.press("Home");
      await page.keyboard.press("ArrowDown");
      await page.getByLabel("Compare with").selectOption({ index: 1 });
      await page.locator(".byte-diff mark").first().waitFor();
      await page.locator(".request-detail").evaluate((element) => (element.scrollTop = element.querySelector(".prefix").offsetTop - element.offsetTop));
    },
  },
  state: { hash: "runs/letter-1/state?step=1", shown: ".pinned, .panel .message" },
  questions: { hash: "questions", shown: ".question" },
};

if (skip) {
  console.error(`no pictures: ${skip}`);
  process.exit(1);
}
await launch();
const service = await startService();
const site = await servePage(() => service.base);
try {
  await service.call("/runs?wait=30", SUPPORT_DESK);
  await service.call("/runs?wait=10", { workflow: "letter", runId: "letter-1", input: { name: "Ingrid" } });
  await service.call("/runs", { workflow: "survey", runId: "parcel-1", input: {} });
  await service.call("/runs", { workflow: "approval", runId: "order-7", input: { supplier: "Halden Mills", amount: 1200 } });
  await service.call("/runs", { workflow: "refund", runId: "refund-3", input: { order: "HB-20977" } });
  await until(async () => (await service.call("/runs/refund-3/interactions")).interactions.length > 0, "the consent");
  mkdirSync(folder, { recursive: true });
  const names = process.argv.slice(2);
  for (const [name, { hash, shown, prepare }] of Object.entries(shots)) {
    if (names.length > 0 && !names.includes(name)) continue;
    const page = await open(site.url, `#/${hash}`, { width: 1000, height: 620 });
    await page.locator(shown).first().waitFor();
    await page.waitForTimeout(500);
    await prepare?.(page);
    await page.waitForTimeout(500);
    const path = join(folder, `${name}.png`);
    await page.screenshot({ path });
    await page.close();
    const { size } = statSync(path);
    console.log(`${path}: ${size} bytes`);
    if (size > MAX_BYTES) throw new Error(`${path} has ${size} bytes, more than ${MAX_BYTES}`);
  }
} finally {
  site.close();
  await service.close();
  await closeBrowser();
}
