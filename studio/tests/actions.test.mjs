// What a person does in the page, before a real service: answers, consents, forks, cancels; token, read-only mode, hostile texts.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { axe, closeBrowser, launch, open, skip } from "./support/browser.mjs";
import { findPirn, root, servePage } from "./support/server.mjs";
import { startService, SUPPORT_DESK, until } from "./support/service.mjs";

/** A service with the page before it. */
async function studio(options) {
  const service = await startService(options);
  const page = await servePage(() => service.base);
  const close = async () => {
    page.close();
    await service.close();
  };
  return { ...service, url: page.url, close };
}

/** Closes the page. Fails if it broke its policy, a script failed, or a text of a model was executed. */
async function close(page) {
  const injected = await page.evaluate(() => globalThis.injected);
  const { problems } = page;
  await page.close();
  assert.equal(injected, undefined);
  assert.deepEqual(problems, []);
}

const report = (service, run) => service.call(`/runs/${run}`);
const status = (service, run, wanted) => until(async () => (await report(service, run)).status === wanted, `${run} ${wanted}`);
const asked = (service, run) => until(async () => (await service.call(`/runs/${run}/interactions`)).interactions[0], `a question of ${run}`);
const button = (page, name) => page.getByRole("button", { name });

describe("actions in the page", { skip, concurrency: false }, () => {
  let service;
  before(async () => {
    await launch();
    service = await studio();
  });
  after(async () => {
    await service?.close();
    await closeBrowser();
  });

  it("answers a question with the form of its schema, after it has corrected an unsuitable value", async () => {
    await service.call("/runs", { workflow: "survey", runId: "survey-form", input: {} });
    await asked(service, "survey-form");
    const page = await open(service.url, "#/questions");
    const card = page.locator("article", { hasText: "survey-form" });
    await card.getByLabel("date").fill("2026-03-09");
    await card.getByLabel("floor").fill("99");
    await card.getByRole("button", { name: "Answer" }).click();
    await card.getByText("floor must be at most 60").waitFor();
    await card.getByText("how is required").waitFor();
    assert.equal(await card.getByLabel("floor").getAttribute("aria-invalid"), "true");
    await card.getByLabel("floor").fill("3");
    await card.getByLabel("shop").check();
    await card.getByRole("button", { name: "Add an item" }).click();
    await card.getByLabel("Item 1 (required)").fill("ring twice");
    await card.getByLabel("Your name").fill("Ada");
    await card.getByRole("button", { name: "Answer" }).click();
    await card.waitFor({ state: "detached" });
    await status(service, "survey-form", "COMPLETED");
    const { answer, by } = (await report(service, "survey-form")).output;
    assert.deepEqual(answer ?? (await report(service, "survey-form")).output, { date: "2026-03-09", how: "shop", floor: 3, notes: ["ring twice"] });
    assert.ok(by === undefined || by === "Ada");
    await close(page);
  });

  it("shows the refusal of the service, and keeps the question", async () => {
    await service.call("/runs", { workflow: "approval", runId: "approval-late", input: { supplier: "Halden", amount: 3 } });
    const { id } = await asked(service, "approval-late");
    const page = await open(service.url, "#/questions");
    const card = page.locator("article", { hasText: "Finance: pay 3 EUR" });
    await card.getByLabel("approve").check();
    // Somebody else answers first, and the list has not been read again yet.
    await page.route("**/v1/interactions?*", (route) => route.abort());
    await service.call(`/interactions/${id}`, { answer: "reject" });
    await card.getByRole("button", { name: "Answer" }).click();
    await card.getByText("INTERACTION_CLOSED").waitFor();
    await page.close();
    await service.call("/runs/approval-late/cancel", {});
  });

  it("edits the arguments of a tool call before it allows the call", async () => {
    await service.call("/runs", { workflow: "refund", runId: "refund-edit", input: { order: "HB-20977" } });
    await asked(service, "refund-edit");
    const page = await open(service.url, "#/runs/refund-edit/state");
    await button(page, "Edit the arguments").click();
    await page.getByLabel("amount (required)").fill("5000");
    await button(page, "Allow with these arguments").click();
    await page.getByText("amount must be at most 1000").waitFor();
    await page.getByLabel("amount (required)").fill("20");
    await button(page, "Allow with these arguments").click();
    await status(service, "refund-edit", "COMPLETED");
    const { messages } = (await report(service, "refund-edit")).conversation;
    assert.match(messages.find((message) => message.role === "tool").content, /refunded 20 for HB-20977/);
    await page.locator(".strip").getByText("completed").first().waitFor();
    await close(page);
  });

  it("sends the arguments of a tool call as they are shown, also large integers", async () => {
    await service.call("/runs", { workflow: "transfer", runId: "transfer-edit", input: {} });
    await asked(service, "transfer-edit");
    const page = await open(service.url, "#/questions");
    const card = page.locator("article", { hasText: "transfer-edit" });
    await card.getByText("18446744073709551615").first().waitFor();
    await card.getByRole("button", { name: "Edit the arguments" }).click();
    assert.equal(await card.getByLabel("from (required)").inputValue(), "9007199254740993");
    assert.equal(await card.getByLabel("note").inputValue(), "[\n  9223372036854775807\n]");
    await card.getByLabel("from (required)").fill("9007199254740995");
    await card.getByRole("button", { name: "Edit as JSON" }).click();
    await card.getByRole("button", { name: "Edit as a form" }).click();
    const sent = page.waitForRequest((one) => one.method() === "POST");
    await card.getByRole("button", { name: "Allow with these arguments" }).click();
    assert.equal((await sent).postData(), '{"answer":{"decision":"allow","arguments":{"from":9007199254740995,"to":18446744073709551615,"note":[9223372036854775807]}}}');
    await status(service, "transfer-edit", "COMPLETED");
    const { messages } = (await report(service, "transfer-edit")).conversation;
    assert.match(messages.find((message) => message.role === "tool").content, /from 9007199254740995 to 18446744073709551615, note \[9223372036854775807\]/);
    await close(page);
  });

  it("forks with the large integer that was entered", async () => {
    const page = await open(service.url, "#/runs/transfer-edit/state?step=0");
    await button(page, "Fork from step 0…").click();
    const dialog = page.getByRole("dialog");
    assert.equal(await dialog.getByLabel("Variable limit").inputValue(), "9007199254740993");
    await dialog.getByLabel("Variable limit").fill("9007199254740997");
    await dialog.getByLabel("Run id").fill("transfer-forked");
    const sent = page.waitForRequest((one) => one.method() === "POST");
    await dialog.getByRole("button", { name: "Fork and compare" }).click();
    assert.match((await sent).postData(), /"set":\{"limit":9007199254740997\}/);
    await close(page);
  });

  it("refuses a tool call with a reason, which the model receives", async () => {
    await service.call("/runs", { workflow: "refund", runId: "refund-refused", input: { order: "HB-20977" } });
    await asked(service, "refund-refused");
    const page = await open(service.url, "#/questions");
    const card = page.locator("article", { hasText: "refund-refused" });
    await card.getByRole("button", { name: "Refuse…" }).click();
    await card.getByLabel("Reason").fill("above the limit");
    await card.getByRole("button", { name: "Refuse the call" }).click();
    await status(service, "refund-refused", "COMPLETED");
    const { messages } = (await report(service, "refund-refused")).conversation;
    assert.match(messages.find((message) => message.role === "tool").content, /above the limit/);
    await close(page);
  });

  it("forks from a step with an edited variable, and compares both runs", async () => {
    await service.call("/runs?wait=10", { workflow: "letter", runId: "letter-fork", input: { name: "Ingrid" } });
    const page = await open(service.url, "#/runs/letter-fork/state?step=0");
    await button(page, "Fork from step 0…").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Variable tone").fill("friendly");
    await dialog.getByLabel("Run id").fill("letter-forked");
    await dialog.getByRole("button", { name: "Fork and compare" }).click();
    await page.waitForURL(/#\/compare\/letter-fork\/letter-forked/);
    await page.locator(".diff").getByText("Dear Ingrid").waitFor();
    assert.match((await report(service, "letter-forked")).output.letter, /Dear Ingrid/);
    assert.match((await report(service, "letter-fork")).output.letter, /Dear Ms Solheim/);
    await page.getByRole("row", { name: /letter\/write ≠ different/ }).waitFor();
    await close(page);
  });

  it("omits the time between a fork and its base", async () => {
    await service.call("/runs?wait=10", { workflow: "letter", runId: "letter-old", input: { name: "Ingrid" } });
    await service.call("/runs/letter-old/fork", { step: 1, runId: "letter-late" });
    await status(service, "letter-late", "COMPLETED");
    const { startedAt } = await service.call("/runs/letter-late?at=0");
    const page = await open(service.url, "#/runs");
    // The base was deleted, and the shared steps are an hour older than they are.
    await page.route(/runs\/letter-old\?at=0/, (route) => route.fulfill({ status: 404, json: { code: "RUN_NOT_FOUND", detail: "no such run" } }));
    const older = (at) => (at < startedAt ? at - 3_600_000 : at);
    await page.route(/runs\/letter-late\/(events|steps)/, async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: (await answer.text()).replace(/"(timestamp|at)":(\d+)/g, (_, name, at) => `"${name}":${older(Number(at))}`) });
    });
    await page.goto(`${service.url}#/runs/letter-late/events`);
    await page.getByText("fork of letter-old at step 1").waitFor();
    await page.locator(".row", { hasText: "THREAD_COMPLETED" }).click();
    // The page reads the start of the fork after its report: until then, the times include the hour.
    await page.locator(".position", { hasText: /\+\d+ ms$/ }).waitFor();
    await page.locator(".fact", { hasText: /Duration.*\d ms/ }).waitFor();
    await page.locator(".row", { hasText: "THREAD_STARTED" }).click();
    await page.locator(".raw").getByText(String(older((await service.call("/runs/letter-old?at=0")).startedAt))).waitFor();
    await page.goto(`${service.url}#/compare/letter-old/letter-late`);
    await page.getByRole("row", { name: /letter\/write equal \d+ ms \d+ ms/ }).waitFor();
    await page.getByText(/Equal at the start|No step differs/).waitFor();
    assert.doesNotMatch(await page.locator("main").innerText(), / (min|h) \d/);
    await close(page);
  });

  it("asks what if a node had another prompt: forks, runs and compares", async () => {
    await service.call("/runs?wait=10", { workflow: "letter", runId: "letter-if", input: { name: "Ingrid" } });
    const page = await open(service.url, "#/runs/letter-if/graph?node=write");
    await button(page, "What if…").click();
    const dialog = page.getByRole("dialog");
    assert.ok((await dialog.getByLabel("Model profile").locator("option, input").count()) > 2);
    await dialog.getByLabel("Prompt").fill("Write it, friendly and short.");
    await dialog.getByLabel("Run id").fill("letter-if-friendly");
    await dialog.getByRole("button", { name: "Fork and compare" }).click();
    await page.waitForURL(/#\/compare\/letter-if\/letter-if-friendly/);
    await page.locator(".diff").getByText("sorry that your order").waitFor();
    const fork = await report(service, "letter-if-friendly");
    assert.match(fork.output.letter, /Dear Ingrid/);
    // The step before the node is shared: its call is not made again.
    const steps = async (run) => (await service.call(`/runs/${run}/steps`)).steps;
    const [before, after] = [await steps("letter-if"), await steps("letter-if-friendly")];
    assert.deepEqual(after.slice(0, 2), before.slice(0, 2).map((step, at) => ({ ...after[at], at: step.at })));
    await page.getByRole("row", { name: /letter\/outline equal/ }).waitFor();
    await close(page);
  });

  it("asks what if a node had another model profile", async () => {
    await service.call("/runs?wait=10", { workflow: "letter", runId: "letter-model", input: { name: "Ingrid" } });
    const page = await open(service.url, "#/runs/letter-model/graph?node=outline");
    await button(page, "What if…").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Model profile").selectOption({ label: "echo" });
    await dialog.getByLabel("Run id").fill("letter-echo");
    await dialog.getByRole("button", { name: "Fork and compare" }).click();
    await page.waitForURL(/#\/compare\/letter-model\/letter-echo/);
    await status(service, "letter-echo", "COMPLETED");
    const { messages } = (await report(service, "letter-echo")).conversation;
    assert.match(messages.find((message) => message.role === "assistant").content, /Outline a letter to Ingrid/);
    await close(page);
  });

  it("asks what if a person had answered something else", async () => {
    await service.call("/runs", { workflow: "hostile", runId: "answer-yes", input: "hello" });
    const { id } = await asked(service, "answer-yes");
    await service.call(`/interactions/${id}`, { answer: "<b>yes</b>" });
    await status(service, "answer-yes", "COMPLETED");
    const page = await open(service.url, "#/runs/answer-yes/graph?node=ask");
    await button(page, "What if…").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("no", { exact: true }).check();
    await dialog.getByLabel("Run id").fill("answer-no");
    await dialog.getByRole("button", { name: "Fork and compare" }).click();
    await page.waitForURL(/#\/compare\/answer-yes\/answer-no/);
    await status(service, "answer-no", "COMPLETED");
    const answers = (await service.call("/runs/answer-no/steps")).steps.map((step) => step.kind);
    assert.ok(answers.length > 1);
    await page.getByRole("row", { name: /hostile\/ask ≠ different/ }).waitFor();
    await close(page);
  });

  it("copies a run as a test that passes, and fails after a change of the workflow", async () => {
    await service.call("/runs?wait=10", { workflow: "letter", runId: "letter-test", input: { name: "Ingrid" } });
    const page = await open(service.url, "#/runs/letter-test/request");
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await button(page, "Copy the run as a test").click();
    await page.getByText("Copied").waitFor();
    const script = await page.evaluate(() => navigator.clipboard.readText());
    const folder = await mkdtemp(join(tmpdir(), "studio-test-"));
    const { workflows } = JSON.parse(await readFile(join(root, "studio/tests/support/workflows.json"), "utf8"));
    const run = async (workflows) => {
      await writeFile(join(folder, "WORKFLOW.json"), JSON.stringify({ workflows: workflows.filter((one) => one.id === "letter") }));
      await writeFile(join(folder, "test.sh"), script.replace("pirn run", `${findPirn()} run`));
      return spawnSync("sh", ["test.sh"], { cwd: folder, encoding: "utf8" });
    };
    const same = await run(workflows);
    assert.equal(same.status, 0, same.stdout + same.stderr);
    const changed = await run(JSON.parse(JSON.stringify(workflows).replace("letter: output.content", "text: output.content")));
    assert.equal(changed.status, 1, changed.stdout + changed.stderr);
    await rm(folder, { recursive: true });
    await close(page);
  });

  it("cancels a run with a reason", async () => {
    await service.call("/runs", { workflow: "order", runId: "order-cancel", input: {} });
    const page = await open(service.url, "#/runs/order-cancel/state");
    await button(page, "Cancel the run…").click();
    await page.getByLabel("Reason").fill("ordered twice");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel the run" }).click();
    await status(service, "order-cancel", "CANCELLED");
    await page.locator(".strip").getByText("cancelled").first().waitFor();
    await close(page);
  });

  it("emits the event for which a run waits, by the keyboard alone", async () => {
    await service.call("/runs", { workflow: "order", runId: "order-emit", input: {} });
    const page = await open(service.url, "#/runs/order-emit/state");
    await button(page, "Emit an event…").waitFor();
    await button(page, "Emit an event…").focus();
    await page.keyboard.press("Enter");
    await until(() => page.evaluate(() => document.querySelector("dialog[open] textarea")?.value === "paid"), "the name of the event");
    await page.getByLabel("Data").focus();
    await page.keyboard.type('{"amount": 30}');
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await status(service, "order-emit", "COMPLETED");
    assert.deepEqual((await report(service, "order-emit")).output, { paid: 30 });
    await close(page);
  });

  it("follows a run again that another client has resumed", async () => {
    await service.call("/runs", { workflow: "order", runId: "order-parked", input: {} });
    const page = await open(service.url, "#/runs/order-parked");
    await page.locator(".follow", { hasText: "Live" }).waitFor();
    const watches = page.waitForResponse(/\/v1\/status/);
    await service.call("/runs/order-parked/park", {});
    await page.locator(".follow", { hasText: "End" }).waitFor();
    await watches;
    await service.call("/runs/order-parked/resume", {});
    await page.locator(".follow", { hasText: "Live" }).waitFor();
    await service.call("/runs/order-parked/emit", { name: "paid", data: { amount: 7 } });
    await page.locator(".strip").getByText("completed").first().waitFor();
    await page.locator(".cause", { hasText: "Completed at" }).waitFor();
    await close(page);
  });

  it("shows markup and scripts of models, inputs and questions as text", async () => {
    await service.call("/runs", { workflow: "hostile", runId: "hostile-1", input: "hello" });
    await asked(service, "hostile-1");
    for (const view of ["runs/hostile-1/conversation", "runs/hostile-1/request", "runs/hostile-1/state", "runs/hostile-1/events", "questions"]) {
      const page = await open(service.url, `#/${view}`);
      await page.getByText(/<img src=x|<script>window/).first().waitFor({ state: "attached" });
      assert.equal(await page.locator("main img[src=x], main script, main b").count(), 0, view);
      await close(page);
    }
  });

  it("isolates values whose marks change the direction of the text after them", async () => {
    // The name contains an override of the direction that does not end: the value after it would be drawn to its left.
    await service.call("/runs?wait=10", { workflow: "letter", runId: "letter-bidi", input: { name: "Ingrid", "\u202eredro": "A-1" } });
    const page = await open(service.url, "#/runs/letter-bidi/events?event=1");
    await page.locator(".row", { hasText: "NODE_COMPLETED" }).first().click();
    const line = page.locator(".raw .json-line", { hasText: "redro" }).first();
    await line.waitFor();
    const [name, value] = await line.locator("span").evaluateAll((spans) => spans.map((span) => span.getBoundingClientRect().left));
    assert.ok(name < value, `${name} ${value}`);
    await close(page);
  });

  it("shows questions of a run again after the service has restarted", async () => {
    await service.call("/runs", { workflow: "survey", runId: "survey-restart", input: {} });
    await asked(service, "survey-restart");
    const page = await open(service.url, "#/questions");
    const card = page.locator("article", { hasText: "survey-restart" });
    await card.waitFor();
    await service.kill();
    await page.getByText("Disconnected").first().waitFor();
    await service.start();
    await page.getByText("Disconnected").first().waitFor({ state: "detached", timeout: 20_000 });
    await card.getByLabel("date").fill("2026-03-10");
    await card.getByLabel("door").check();
    await card.getByRole("button", { name: "Answer" }).click();
    await status(service, "survey-restart", "COMPLETED");
    await close(page);
  });
});

describe("a conversation", { skip, concurrency: false }, () => {
  let service;
  before(async () => {
    await launch();
    service = await studio();
    await service.call("/runs?wait=30", SUPPORT_DESK);
  });
  after(async () => {
    await service?.close();
    await closeBrowser();
  });

  it("has a compression that opens to the removed messages, with every lost fact marked", async () => {
    const page = await open(service.url, "#/runs/ticket-1/conversation");
    await page.getByRole("button", { name: /Compressed from 341 to 15 messages/ }).first().click();
    await page.getByText(/The summary retains \d+ of \d+ facts/).waitFor();
    assert.ok((await page.locator(".compression mark.lost").count()) > 20);
    assert.ok((await page.locator("section[aria-label='Written by the compression'] .message").count()) > 0);
    await close(page);
  });

  it("shows the thread and the position of the cursor", async () => {
    const page = await open(service.url, "#/runs/ticket-1/conversation");
    await page.getByLabel("Thread").selectOption({ label: "branch policies (1)" });
    await page.getByText("4.2: the carton was opened before delivery").first().waitFor();
    await page.locator("input[type=range]").fill("30");
    await page.getByText("4.2: the carton was opened before delivery").first().waitFor({ state: "detached" });
    await close(page);
  });

  it("shows each request as sent, and two of them at the first differing byte", async () => {
    const page = await open(service.url, "#/runs/ticket-1/request");
    await page.getByRole("listbox", { name: "Model requests" }).focus();
    await page.keyboard.press("Home");
    await page.getByRole("heading", { name: /messages sent/ }).waitFor();
    await page.getByText("get_order").first().waitFor();
    await page.getByLabel("Compare with").selectOption({ index: 1 });
    await page.locator(".byte-diff mark").first().waitFor();
    await page.getByText(/The requests share their first/).waitFor();
    await close(page);
  });
});

describe("access", { skip, concurrency: false }, () => {
  before(launch);
  after(closeBrowser);

  it("requests the token of the service once, and keeps it for the tab", async () => {
    const service = await studio({ token: "secret-of-the-service" });
    try {
      const page = await open(service.url, "#/workflows");
      await page.locator("dialog input").fill("wrong");
      await button(page, "Continue").click();
      await page.locator("dialog input").fill("secret-of-the-service");
      await button(page, "Continue").click();
      await page.getByRole("link", { name: "letter" }).waitFor();
      await page.reload();
      await page.getByRole("link", { name: "letter" }).waitFor();
      assert.equal(await page.locator("dialog input").count(), 0);
      assert.equal(await page.evaluate(() => localStorage.length), 0);
      await close(page);
    } finally {
      await service.close();
    }
  });

  it("names the reason why it cannot send a token", async () => {
    const service = await studio({ token: "secret-of-the-service" });
    try {
      const page = await open(service.url, "#/workflows");
      for (const token of ["secret-🔑", "schlüssel", "secret-of-the-service roles=read"]) {
        await page.locator("dialog input").fill(token);
        await button(page, "Continue").click();
        await page.getByText("The page cannot send this token").waitFor();
      }
      await page.locator("dialog input").fill(" secret-of-the-service ");
      await button(page, "Continue").click();
      await page.getByRole("link", { name: "letter" }).waitFor();
      assert.equal(await page.getByText("Disconnected").count(), 0);
      await close(page);
    } finally {
      await service.close();
    }
  });

  it("connects its streams again with a new token", async () => {
    const service = await studio({ token: "secret-of-the-service" });
    try {
      const page = await open(service.url, "#/runs");
      await page.getByRole("button", { name: "Close" }).click();
      // Without a token, a new list asks for it again. The stream of changes stays the same.
      await page.getByLabel("Status").selectOption("completed");
      const stream = page.waitForRequest((one) => one.url().endsWith("/v1/status") && one.headers().authorization === "Bearer secret-of-the-service");
      await page.locator("dialog input").fill("secret-of-the-service");
      await button(page, "Continue").click();
      await stream;
      await service.call("/runs", { workflow: "letter", runId: "letter-token", input: { name: "Ingrid" } });
      await page.locator("tbody tr", { hasText: "letter-token" }).waitFor();
      await close(page);
    } finally {
      await service.close();
    }
  });

  it("has no actions with a token that only reads", async () => {
    const service = await studio({ token: "of-the-owner\nof-a-reader roles=read" });
    try {
      await service.call("/runs", { workflow: "letter", runId: "letter-read", input: { name: "Ingrid" } });
      for (const [token, changes] of [["of-a-reader", false], ["of-the-owner", true]]) {
        const page = await open(service.url, "#/runs?start=letter");
        await page.locator("dialog[aria-label=Token] input").fill(token);
        await button(page, "Continue").click();
        await page.locator("tbody tr", { hasText: "letter-read" }).waitFor();
        await page.locator(changes ? "dialog[aria-label='Start a run']" : "text=Read only").waitFor();
        assert.equal(await page.locator("button.primary", { hasText: "Start a run" }).count(), changes ? 1 : 0);
        assert.equal(await page.locator("dialog").count(), changes ? 1 : 0);
        await close(page);
      }
    } finally {
      await service.close();
    }
  });

  it("has no actions in the mode `read`, and the service refuses those of the page", async () => {
    const service = await studio({ studio: "read" });
    try {
      await service.call("/runs", { workflow: "refund", runId: "refund-read", input: { order: "HB-20977" } });
      await asked(service, "refund-read");
      for (const view of ["runs", "runs/refund-read/state", "questions", "workflows/refund", "sessions"]) {
        const page = await open(service.url, `#/${view}`);
        await page.getByText("Read only").waitFor();
        await page.locator("main h1").first().waitFor();
        for (const name of [/^Start/, /^Fork/, /^Cancel/, /^Allow/, /^Answer/]) assert.equal(await button(page, name).count(), 0, `${view} ${name}`);
        await close(page);
      }
      const page = await open(service.url, "#/runs?start=refund");
      await page.getByText("Read only").waitFor();
      await page.locator("tbody tr", { hasText: "refund-read" }).waitFor();
      assert.equal(await page.getByRole("dialog").count(), 0);
      const refused = await page.evaluate(async () => {
        const answer = await fetch("../v1/runs/refund-read/cancel", { method: "POST", headers: { "Content-Type": "application/json", "X-Pirn-Studio": "1" }, body: "{}" });
        return (await answer.json()).code;
      });
      assert.equal(refused, "STUDIO_READ_ONLY");
      await close(page);
    } finally {
      await service.close();
    }
  });
});

describe("every view", { skip, concurrency: false }, () => {
  const views = {
    "runs/ticket-1/conversation": ".message",
    "runs/ticket-1/request": ".request-detail h2",
    "runs/letter-1/state?step=1": ".panel",
    "runs/refund-1/state": ".question",
    compare: ".empty",
    "compare/letter-1/letter-2": "tbody tr",
    questions: ".question",
    workflows: ".card",
    "workflows/refund": ".panel",
    sessions: "table",
    "sessions/ingrid": ".message",
    engine: "h1",
  };
  let service;
  before(async () => {
    await launch();
    service = await studio();
    await service.call("/runs?wait=30", SUPPORT_DESK);
    for (const runId of ["letter-1", "letter-2"]) await service.call("/runs?wait=10", { workflow: "letter", runId, input: { name: runId }, session: "ingrid" });
    await service.call("/runs", { workflow: "refund", runId: "refund-1", input: { order: "HB-20977" } });
    await service.call("/runs", { workflow: "survey", runId: "survey-1", input: {} });
    await asked(service, "refund-1");
    await asked(service, "survey-1");
  });
  after(async () => {
    await service?.close();
    await closeBrowser();
  });

  for (const [view, shown] of Object.entries(views)) {
    it(`has no accessibility issues, light and dark, and fits screens of 360 and 1,920 pixels: ${view}`, async () => {
      const page = await open(service.url, `#/${view}`);
      await page.locator(`main ${shown}`).first().waitFor();
      const compression = page.locator("button.compression-title").first();
      if (await compression.count()) await compression.click();
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        assert.deepEqual(await axe(page), [], colorScheme);
      }
      for (const width of [360, 1920]) {
        await page.setViewportSize({ width, height: 900 });
        const wider = await page.evaluate(() => [document.documentElement, document.querySelector("main")].map((element) => element.scrollWidth - element.clientWidth));
        assert.ok(Math.max(...wider) <= 0, `${Math.max(...wider)} px wider than ${width} px`);
      }
      await close(page);
    });
  }
});
