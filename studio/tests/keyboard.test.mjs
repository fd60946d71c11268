// Every action of every view, by the keyboard alone: the test presses keys and reads the page, and never clicks, focuses or fills.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { closeBrowser, launch, open, skip } from "./support/browser.mjs";
import { servePage } from "./support/server.mjs";
import { startService, SUPPORT_DESK, until } from "./support/service.mjs";

const MOST_TABS = 250;

describe("by the keyboard alone", { skip, concurrency: false }, () => {
  let service;
  let site;
  let page;
  before(async () => {
    await launch();
    service = await startService();
    site = await servePage(() => service.base);
    await service.call("/runs?wait=30", SUPPORT_DESK);
    await service.call("/runs?wait=10", { workflow: "letter", runId: "letter-1", input: { name: "Ingrid" }, session: "ingrid" });
  });
  after(async () => {
    site?.close();
    await service?.close();
    await closeBrowser();
  });

  const key = (...keys) => keys.reduce((before, one) => before.then(() => page.keyboard.press(one)), Promise.resolve());
  /** Text and kind of the focused element. */
  const focused = (tag) =>
    page.evaluate((tag) => {
      const at = document.activeElement;
      const label = at.labels?.[0]?.textContent ?? at.textContent;
      return { name: (at.getAttribute("aria-label") ?? label ?? "").trim().replace(/\s+/g, " "), is: tag !== undefined && at.matches(tag), isVisible: at.matches(":focus-visible") };
    }, tag);
  /** Presses Tab until an element with this name has the focus; `tag` is a selector that distinguishes elements of one name. */
  const tabTo = async (name, tag) => {
    await page.waitForFunction(
      ([source, tag]) =>
        [...document.querySelectorAll(tag ?? "a, button, input, select, textarea, summary, [tabindex='0']")].some((one) =>
          new RegExp(source).test((one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? one.textContent).trim().replace(/\s+/g, " ")),
        ),
      [name.source, tag],
    );
    for (let i = 0; i < MOST_TABS; i++) {
      await key("Tab");
      const at = await focused(tag);
      if (name.test(at.name) && (tag === undefined || at.is)) {
        assert.ok(at.isVisible, `the focus at ${name} is visible`);
        return;
      }
    }
    throw new Error(`Tab does not reach ${name}`);
  };
  const press = async (name, tag = "button", by = "Enter") => {
    await tabTo(name, tag);
    await key(by);
  };
  const type = async (name, text, tag) => {
    await tabTo(name, tag);
    await key("Control+a");
    await page.keyboard.type(text);
  };
  const show = async (hash, ready) => {
    if (!page) page = await open(site.url, hash);
    else await page.evaluate((to) => (location.hash = to), hash);
    await page.locator(ready).first().waitFor();
  };
  /** A new view takes the focus. */
  const arrived = async (address) => {
    await page.waitForURL(address);
    await page.waitForFunction(() => document.activeElement.id === "main");
  };
  const seen = (text) => page.getByText(text).first().waitFor();
  const status = (run, wanted) => until(async () => (await service.call(`/runs/${run}`)).status === wanted, `${run} ${wanted}`);
  const ask = async (workflow, runId, input) => {
    await service.call("/runs", { workflow, runId, input });
    await until(async () => (await service.call(`/runs/${runId}/interactions`)).interactions[0], `a question of ${runId}`);
  };
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  const dialog = () => page.locator("dialog[open]").waitFor();

  it("Runs: skips to the content, shows the help, starts, filters, selects, compares, cancels and resumes", async () => {
    await show("#/runs", "tbody tr");
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await press(/^Skip to the content/, "a");
    await key("?");
    await seen("Go to workflows");
    await key("Escape");
    await page.locator("dialog").waitFor({ state: "detached" });
    await press(/^Start a run/);
    await dialog();
    await tabTo(/^Workflow/, "select");
    await page.keyboard.type("order");
    await type(/^Run id/, "order-keys");
    await press(/^Start$/);
    await arrived(/runs\/order-keys/);
    await key("g", "r");
    await page.locator("tbody tr").first().waitFor();
    await key("/");
    await page.keyboard.type("letter");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await key("Control+a", "Delete");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 3);
    for (const [name, letter] of [[/^Status/, "c"], [/^Workflow/, "l"], [/^Started/, "l"]]) {
      await tabTo(name, "select");
      await page.keyboard.type(letter);
    }
    await page.waitForURL(/status=COMPLETED.*workflow=letter.*period=hour/);
    await type(/^Session/, "ingrid", "input");
    await key("Tab");
    await page.waitForURL(/session=ingrid/);
    await show("#/runs", "tr:has-text('order-keys')");
    await press(/^Select all runs/, "input", "Space");
    await seen("3 runs selected");
    // The buttons concern no run that a filter hides.
    await key("/");
    await page.keyboard.type("letter");
    await seen("1 run selected");
    await key("Control+a", "Delete");
    await seen("3 runs selected");
    await press(/^Clear$/);
    await press(/^Select letter-1/, "input", "Space");
    await press(/^Select ticket-1/, "input", "Space");
    await press(/^Compare$/, "a.button");
    await page.waitForURL(/compare\/letter-1\/ticket-1|compare\/ticket-1\/letter-1/);
    await press(/^Swap$/, "a");
    await page.waitForURL(/compare\/letter-1\/ticket-1|compare\/ticket-1\/letter-1/);
    await show("#/runs", "tr:has-text('order-keys')");
    await press(/^Select order-keys/, "input", "Space");
    await press(/^Resume$/);
    await page.locator(".selected-bar").waitFor({ state: "detached" });
    await press(/^Select order-keys/, "input", "Space");
    await press(/^Cancel$/);
    await status("order-keys", "CANCELLED");
  });

  it("a run's graph: selects nodes, zooms, moves the cursor, asks what if, and answers", async () => {
    await show("#/runs/letter-1/graph", "[data-node=start]");
    await press(/^start/, "g");
    await key("ArrowDown");
    await page.waitForFunction(() => document.activeElement.getAttribute("data-node") === "outline");
    await page.locator(".details h2:has-text('outline')").waitFor();
    for (const one of ["+", "-", "0"]) await key(one);
    await press(/^Zoom in/);
    await press(/^Fit$/);
    for (const one of ["Escape", "ArrowLeft", "Home", "End"]) await key(one);
    await press(/^Position in the run/, "input", "ArrowLeft");
    await page.waitForFunction(() => document.querySelector(".follow").getAttribute("aria-pressed") === "false");
    await press(/^End$/);
    await tabTo(/^start/, "g");
    await key("Enter", "ArrowDown");
    await press(/^What if/);
    await dialog();
    await type(/^Prompt/, "Outline a short letter.");
    await type(/^Run id/, "letter-keys");
    await press(/^Fork and compare$/);
    await page.waitForURL(/compare\/letter-1\/letter-keys/);
    await ask("approval", "approval-keys", { supplier: "Mill", amount: 7 });
    await show("#/runs/approval-keys/graph?node=finance", ".question");
    await tabTo(/^approve$/, "input");
    await key("Space");
    await press(/^Answer$/);
    await page.locator("[data-node=finance][aria-label*=completed]").waitFor();
    await press(/^Events of finance/, "a");
    await page.waitForURL(/approval-keys\/events\?.*inNode=finance/);
  });

  it("timeline, conversation, requests and events", async () => {
    await show("#/runs/ticket-1/timeline", "canvas");
    for (const one of ["ArrowDown", "ArrowUp", "+", "-", "0", "f"]) await key(one);
    await press(/^Zoom in/);
    await press(/^All$/);
    await press(/^Fold idle time/, "input", "Space");
    await key("3");
    await page.locator(".compression-title").first().waitFor();
    await tabTo(/^Thread/, "select");
    await key("ArrowDown", "ArrowUp");
    await press(/^Copy the last request/);
    await until(async () => (await copied()).startsWith("curl"), "the copied text");
    await tabTo(/^Format/, "select");
    await page.keyboard.type("an");
    const download = page.waitForEvent("download");
    await press(/^Export$/);
    assert.match((await download).suggestedFilename(), /anthropic\.json$/);
    await press(/Compressed from/);
    await seen(/The summary retains/);
    await press(/only with lost facts/, "input", "Space");
    await key("4");
    await page.locator(".request-detail h2").waitFor();
    await tabTo(/^Model requests/, "div");
    await key("Home", "ArrowDown");
    await tabTo(/^Compare with/, "select");
    await key("ArrowDown");
    await page.locator(".byte-diff mark").first().waitFor();
    await press(/^Show everything/);
    await press(/^Copy the run as a test/);
    await until(async () => (await copied()).startsWith("#!/bin/sh"), "the copied text");
    assert.match(await copied(), /"provider": "scripted"/);
    await press(/^Copy as cURL/);
    await until(async () => (await copied()).startsWith("curl"), "the copied text");
    await key("6");
    await page.locator(".events .row").first().waitFor();
    await tabTo(/^Type/, "select");
    await page.keyboard.type("MESSAGE");
    await page.waitForURL(/type=MESSAGE_ADDED/);
    await tabTo(/^Events$/, "div");
    await key("Home", "ArrowDown", "PageDown", "End");
    await page.locator(".row.selected").waitFor();
    await page.locator(".raw").waitFor();
  });

  it("state: emits, pins, pauses, resumes, parks, forks and cancels", async () => {
    await service.call("/runs", { workflow: "order", runId: "order-state", input: {} });
    await show("#/runs/order-state/state", ".run-actions");
    await press(/^Pause$/);
    await seen("The run pauses");
    await press(/^Resume$/);
    await seen("The run resumes");
    await press(/^Pin a section/);
    await dialog();
    await type(/^Value/, '[{"content": "call back", "status": "open"}]');
    await press(/^Pin$/);
    await seen("is pinned");
    await press(/^Park$/);
    await seen("The run is released");
    await press(/^Resume$/);
    await seen("The run resumes");
    await until(async () => (await service.call("/runs/order-state")).status !== "UNFINISHED", "the resumed run");
    await press(/^Fork from step/);
    await dialog();
    await type(/^Run id/, "order-fork");
    await press(/^Fork and compare$/);
    await page.waitForURL(/compare\/order-state\/order-fork/);
    await show("#/runs/order-state/state", ".run-actions");
    await press(/^Emit an event/);
    await dialog();
    await type(/^Name/, "paid");
    await type(/^Data/, '{"amount": 30}');
    await press(/^Emit$/);
    await status("order-state", "COMPLETED");
    await show("#/runs/order-fork/state", ".run-actions");
    await press(/^Cancel the run/);
    await dialog();
    await type(/^Reason/, "enough");
    await press(/^Cancel the run$/);
    await status("order-fork", "CANCELLED");
  });

  it("Questions: answers a form, edits the arguments of a call, and refuses one", async () => {
    for (const run of ["refund-edit", "refund-no"]) await ask("refund", run, { order: "HB-20977" });
    const only = async (run) => {
      await show(`#/questions?run=${run}`, ".question");
      await page.waitForFunction(() => document.querySelectorAll(".question").length === 1);
    };
    await only("refund-edit");
    await press(/^Edit the arguments/);
    await type(/^amount/, "20");
    await type(/^Your name/, "Ada");
    await press(/^Allow with these arguments/);
    await status("refund-edit", "COMPLETED");
    await only("refund-no");
    await press(/^Refuse…/);
    await type(/^Reason/, "above the limit");
    await press(/^Refuse the call/);
    await status("refund-no", "COMPLETED");
    await ask("survey", "survey-keys", {});
    await only("survey-keys");
    await tabTo(/^date/, "input");
    await page.keyboard.type("03092026");
    await tabTo(/^door$/, "input");
    await key("ArrowDown", "ArrowDown");
    await press(/^Add an item/);
    await type(/^Item 1/, "ring twice");
    await press(/^Remove item 1/);
    await press(/^Edit as JSON/);
    await press(/^Edit as a form/);
    await press(/^Answer$/);
    await status("survey-keys", "COMPLETED");
  });

  it("Workflows, Sessions and Engine: opens one, starts a run in it, filters", async () => {
    await key("g", "w");
    await arrived(/workflows/);
    await press(/^letter$/, "a");
    await arrived(/workflows\/letter/);
    await press(/^Start a run/);
    await dialog();
    await type(/^Input/, '{"name": "Bo"}');
    await type(/^Run id/, "letter-start");
    await press(/^Start$/);
    await arrived(/runs\/letter-start/);
    await key("g", "s");
    await arrived(/sessions/);
    await press(/^ingrid$/, "a");
    await arrived(/sessions\/ingrid/);
    await press(/^Start a run in the session/);
    await dialog();
    await type(/^Input/, '{"name": "Bo"}');
    await type(/^Run id/, "letter-session");
    await press(/^Start$/);
    await arrived(/runs\/letter-session/);
    await status("letter-session", "COMPLETED");
    await key("g", "e");
    await arrived(/engine/);
    await page.locator(".tile").first().waitFor();
    await key("/");
    await page.keyboard.type("runs");
    await seen(/\d+ of \d+ figures/);
    await press(/completed$/, "a");
    await page.waitForURL(/runs\?status=COMPLETED/);
    assert.deepEqual(page.problems, []);
  });
});
