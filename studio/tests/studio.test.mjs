// The page in a browser, before real services and runs of the examples.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { axe, closeBrowser, launch, open, skip, studio } from "./support/browser.mjs";
import { root } from "./support/server.mjs";
import { provider } from "./support/provider.mjs";
import { FAILING, fork, RACE, twoCalls } from "./support/workflows.mjs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";

const DESK = "examples/support-desk/workflow.json";
const APPROVAL = "examples/approval/workflow.json";
const example = async (name) => JSON.parse(await readFile(join(root, "examples", name), "utf8"));

/** Fails if the page broke its policy or a script failed. */
async function close(page) {
  const { problems } = page;
  await page.close();
  assert.deepEqual(problems, []);
}
const text = (page, selector) => page.locator(selector).first().innerText();

describe("the page", { skip, concurrency: false }, () => {
  let folder;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "studio-files-"));
    await launch();
  });
  after(async () => {
    await closeBrowser();
    await rm(folder, { recursive: true, force: true });
  });
  const file = async (name, workflow) => {
    const path = join(folder, name);
    await writeFile(path, JSON.stringify(workflow));
    return path;
  };

  describe("of the support desk and the approval", () => {
    let desk;
    before(async () => {
      desk = await studio([DESK, APPROVAL]);
      await desk.post("/runs?wait=20", { workflow: "support-desk", runId: "desk", input: await example("support-desk/ticket.json"), conversation: await example("support-desk/conversation.json") });
      await desk.post("/runs", { workflow: "approval", runId: "order", input: { supplier: "Halden Mills", amount: 1200 } });
    });
    after(() => desk.stop());

    it("lists runs with their status, and filters by the address", async () => {
      const page = await open(desk.url, "#/runs");
      await page.waitForSelector("tbody tr:has-text('desk')");
      assert.match(await text(page, "tr:has-text('desk') .status"), /completed/);
      await page.selectOption("select >> nth=1", "approval");
      await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
      assert.match(page.url(), /workflow=approval/);
      await close(page);
    });

    it("shows a problem for an address with a wrong escape", async () => {
      const page = await open(desk.url, "#/runs/%");
      await page.waitForSelector(".problem");
      await page.click("a:has-text('Questions')");
      await page.waitForSelector("h1:has-text('Questions')");
      await close(page);
    });

    it("removes a run that no longer matches the filter", async () => {
      await desk.post("/runs", { workflow: "approval", runId: "leaving", input: { supplier: "Mill", amount: 3 } });
      const page = await open(desk.url, "#/runs?status=RUNNING");
      await page.waitForSelector("tbody tr:has-text('leaving')");
      await desk.post("/runs/leaving/cancel", {});
      await page.waitForSelector("tbody tr:has-text('leaving')", { state: "detached" });
      assert.ok((await page.locator("tbody tr:has-text('order')").count()) > 0);
      await close(page);
    });

    it("starts a run from the form", async () => {
      const page = await open(desk.url, "#/runs");
      await page.click("text=Start a run");
      await page.selectOption("dialog select", "approval");
      await page.fill("dialog textarea", '{"supplier": "Mill", "amount": 3}');
      await page.click("dialog button.primary");
      await page.waitForSelector("text=waiting");
      assert.match(page.url(), /#\/runs\/run-/);
      await close(page);
    });

    it("draws nodes, lanes, the decision of a join, and the triggered workflow", async () => {
      const page = await open(desk.url, "#/runs/desk");
      await page.waitForSelector("[data-node=reviewed]");
      assert.match(await page.getAttribute("[data-node=reviewed]", "aria-label"), /2 of 3, threshold 2, completed/);
      assert.match(await page.getAttribute("[data-node=lawyer]", "aria-label"), /cancelled/);
      assert.equal(await page.locator(".link.dashed").count(), 3);
      await page.dispatchEvent("[data-node=reviewed]", "click");
      assert.match(await text(page, ".details"), /lawyer cancelled at/);
      await page.waitForFunction(() => location.hash.includes("node=reviewed"));
      await close(page);
    });

    it("moves graph, timeline and events with one cursor, and keeps it in the address", async () => {
      const page = await open(desk.url, "#/runs/desk");
      await page.waitForSelector("[data-node=end]");
      // Until the list of steps has arrived, the position is that of an event.
      await page.waitForSelector(".position:has-text('step')");
      const range = page.locator("input[type=range]");
      await range.fill("40");
      assert.match(await page.getAttribute("[data-node=end]", "aria-label"), /not reached/);
      assert.match(await page.getAttribute("[data-node=policies]", "aria-label"), /running/);
      const shown = await text(page, ".position");
      await page.waitForFunction(() => /step=|event=/.test(location.hash));
      await page.keyboard.press("2");
      await page.waitForSelector("canvas");
      // The page writes the cursor into the address of the new pane a moment after the pane is shown.
      await page.waitForFunction(() => /timeline\?.*(step|event)=/.test(location.hash));
      const address = page.url();
      await page.reload();
      await page.waitForFunction((before) => document.querySelector(".position").textContent === before, shown);
      assert.equal(page.url(), address);
      await page.goto(address.replace("timeline", "events"));
      await page.waitForSelector(".row.selected");
      await close(page);
    });

    it("counts the steps up to the number of the last one", async () => {
      const page = await open(desk.url, "#/runs/desk/graph");
      await page.waitForSelector(".position:has-text('step')");
      const [, step, last] = /^step (\d+) of (\d+)/.exec(await text(page, ".position"));
      assert.equal(step, last);
      await close(page);
    });

    it("moves the cursor to the step of a link to the open run", async () => {
      const page = await open(desk.url, "#/runs/desk/events?step=2");
      await page.waitForSelector(".position:has-text('step 2 of')");
      await page.evaluate(() => (location.hash = location.hash.replace("step=2", "step=4")));
      await page.waitForSelector(".position:has-text('step 4 of')");
      await page.evaluate(() => (location.hash = "#/runs/desk/state?node=reviewed&event=3"));
      await page.waitForSelector(".position:has-text('event 3 of')");
      await page.waitForFunction(() => /node=reviewed/.test(location.hash));
      // A link without a position keeps that of the cursor, as between the panes.
      await page.evaluate(() => (location.hash = "#/runs/desk/timeline"));
      await page.waitForFunction(() => /timeline\?.*event=3/.test(location.hash));
      await close(page);
    });

    it("continues to show a run after the service was killed and started again", async () => {
      const page = await open(desk.url, "#/runs/order");
      await page.waitForSelector("text=Waits for 2 answers");
      await desk.service.kill();
      await page.waitForSelector("text=Disconnected");
      await desk.service.start();
      const { interactions } = await desk.get("/runs/order/interactions");
      for (const one of interactions) await desk.post(`/interactions/${one.id}`, { answer: "approve" });
      await page.waitForSelector(".strip .t-ok", { timeout: 20_000 });
      assert.match(await text(page, ".cause"), /Completed at ordered/);
      assert.equal(await page.locator("text=Disconnected").count(), 0);
      await close(page);
    });

    it("resumes the lane in view after an answer at its node", async () => {
      await desk.post("/runs", { workflow: "approval", runId: "answered", input: { supplier: "Mill", amount: 7 } });
      const page = await open(desk.url, "#/runs/answered/graph?node=finance");
      await page.getByLabel("approve").check();
      await page.getByRole("button", { name: "Answer", exact: true }).click();
      await page.waitForSelector("[data-node=finance][aria-label*=completed]");
      assert.match(await page.getAttribute("[data-node=legal]", "aria-label"), /waits for an answer/);
      assert.match(await page.getAttribute("[data-node=answers]", "aria-label"), /1 of 2/);
      await close(page);
    });

    it("has no accessibility issues, light and dark", async () => {
      for (const scheme of ["light", "dark"])
        for (const hash of ["#/runs", "#/runs/desk/graph?node=reviewed", "#/runs/desk/timeline", "#/runs/desk/events?event=40", "#/runs?start=approval"]) {
          const page = await open(desk.url, hash, { scheme });
          await page.waitForSelector(hash.includes("desk") ? ".cause:has-text('Completed')" : "tbody tr");
          await page.waitForTimeout(300);
          assert.deepEqual(await axe(page), [], `${hash} ${scheme}`);
          await close(page);
        }
    });

    it("fits screens of 360 and 1,920 pixels", async () => {
      for (const width of [360, 1920])
        for (const hash of ["#/runs", "#/runs/desk/graph", "#/runs/desk/timeline", "#/runs/desk/events"]) {
          const page = await open(desk.url, hash, { width });
          await page.waitForSelector(hash.includes("desk") ? ".cause" : "tbody tr");
          const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(wider <= 0, `${hash} is ${wider} px wider than ${width} px`);
          await close(page);
        }
    });

    it("is operated by the keyboard alone", async () => {
      const page = await open(desk.url, "#/runs");
      await page.waitForSelector("tbody tr");
      await page.keyboard.press("?");
      await page.waitForSelector("dialog[open] >> text=Go to runs");
      await page.keyboard.press("Escape");
      await page.waitForSelector("dialog", { state: "detached" });
      await page.keyboard.press("Tab");
      assert.match(await page.evaluate(() => document.activeElement.textContent), /Skip/);
      await page.focus("tr:has-text('desk') td.mono a");
      await page.keyboard.press("Enter");
      await page.waitForSelector("[data-node=start]");
      await page.focus("[data-node=start]");
      await page.keyboard.press("Enter");
      await page.keyboard.press("ArrowDown");
      await page.waitForFunction(() => document.activeElement.getAttribute("data-node") === "read");
      await page.evaluate(() => document.activeElement.blur());
      await page.keyboard.press("2");
      await page.waitForSelector(".timeline canvas");
      await page.keyboard.press("ArrowDown");
      assert.match(await text(page, ".timeline [role=status]"), /main|branch/);
      await page.keyboard.press("Home");
      assert.match(await text(page, ".position"), /(event 1|step 0|step 1) of/);
      await page.keyboard.press("End");
      await page.keyboard.press("g");
      await page.keyboard.press("r");
      await page.waitForSelector("h1:has-text('Runs')");
      await close(page);
    });
  });

  describe("of a map, a failure and a fork of 1,000", () => {
    let service;
    before(async () => {
      service = await studio(["examples/research.json", await file("failing.json", FAILING), await file("fork.json", fork(1000))]);
      const sources = ["dictionary", "museum", "newspaper", "library", "weaver"];
      await service.post("/runs?wait=20", { workflow: "research", runId: "research", input: { question: "What is a pirn?", sources } });
      await service.post("/runs?wait=20", { workflow: "failing", runId: "failing" });
      await service.post("/runs?wait=60", { workflow: "fork-1000", runId: "wide" });
    });
    after(() => service.stop());

    it("shows the items of a map as a stack with counts, and each of them", async () => {
      const page = await open(service.url, "#/runs/research");
      await page.waitForSelector("[data-node=look-up]");
      assert.match(await page.getAttribute("[data-node=look-up]", "aria-label"), /5 items: 3 ✓ {2}1 ✕ {2}1 ⊘/);
      await page.dispatchEvent("[data-node=look-up]", "click");
      await page.waitForSelector(".details [role=option]");
      assert.equal(await page.locator(".details [role=option]").count(), 5);
      await page.click(".details [role=option] >> nth=2");
      await page.waitForSelector("text=source, 2");
      assert.match(await page.getAttribute("[data-node=read]", "aria-label"), /failed/);
      await close(page);
    });

    it("states the cause of a failure, shows each attempt, and shows HTML as text", async () => {
      const page = await open(service.url, "#/runs/failing?node=unstable");
      await page.waitForSelector(".cause:has-text('Failed')");
      assert.match(await text(page, ".cause"), /^Failed at unstable after 3 attempts: SCRIPT_ERROR, no <b id=injected>bold<\/b>/);
      await page.locator(".details .entries .entry").first().waitFor();
      assert.equal(await page.locator(".details .entries .entry").count(), 3);
      for (const pane of ["timeline", "events?event=20"]) {
        await page.goto(`${service.url}#/runs/failing/${pane}`);
        await page.waitForTimeout(200);
        assert.equal(await page.locator("#injected").count(), 0);
      }
      await close(page);
    });

    it("asks again for what a busy service has not answered", async () => {
      const page = await open(service.url, "#/runs");
      let refused = 0;
      await page.route(/failing\/(drawings|steps)/, (route) => (refused++ < 4 ? route.fulfill({ status: 503, body: "" }) : route.continue()));
      await page.goto(`${service.url}#/runs/failing/graph`);
      await page.waitForSelector("[data-node=unstable]");
      assert.ok(refused > 4, `${refused} requests`);
      await close(page);
    });

    it("follows a link at the moment when the address receives the cursor", async () => {
      const page = await open(service.url, "#/runs/failing/events");
      await page.waitForSelector(".cause:has-text('Failed')");
      for (const pane of ["timeline", "graph", "events", "graph"]) {
        await page.keyboard.press("ArrowLeft");
        await page.evaluate((hash) => {
          // While the page is busy, the link arrives, and the time to write the cursor comes. The browser changes the address at once,
          // and tells the page about it after the timer.
          const { port1, port2 } = new MessageChannel();
          port1.onmessage = () => (location.hash = hash);
          port2.postMessage(0);
          const end = performance.now() + 300;
          while (performance.now() < end);
        }, `#/runs/failing/${pane}`);
        await page.waitForSelector(`.tabs [aria-current=page]:text-is("${pane[0].toUpperCase()}${pane.slice(1)}")`);
        await page.waitForFunction((pane) => location.hash.includes(`/${pane}?step=`), pane);
      }
      await close(page);
    });

    it("draws only the rows in view of a fork of 1,000", async () => {
      const page = await open(service.url, "#/runs/wide/events");
      await page.waitForSelector(".cause:has-text('Completed')", { timeout: 30_000 });
      assert.ok((await page.locator(".list .row").count()) < 80);
      await page.goto(`${service.url}#/runs/wide/timeline`);
      await page.waitForSelector("canvas[aria-label*='1001 threads']");
      await page.goto(`${service.url}#/runs/wide/graph`);
      await page.waitForSelector("[data-node=start]");
      assert.ok((await page.locator("[data-node]").count()) < 200);
      await close(page);
    });
  });

  it("marks a collapse of the cache and a message of a person in the timeline and at the request", async () => {
    const far = await provider();
    const service = await studio([await file("two-calls.json", twoCalls(far.url))]);
    const first = far.called();
    await service.post("/runs", { workflow: "two-calls", runId: "calls" });
    await first;
    await service.post("/runs/calls/messages", { message: "Only the heavy ones." });
    const release = setInterval(far.release, 20);
    const page = await open(service.url, "#/runs/calls/timeline");
    await page.waitForSelector(".strip .t-ok");
    const box = await page.locator(".timeline-box").boundingBox();
    // Below the bars of the only row, after the names of the threads.
    const found = new Set();
    for (let x = 191; x < box.width; x += 3) {
      await page.mouse.move(box.x + x, box.y + 26 + 32);
      for (const tip of await page.locator(".tip").allInnerTexts()) found.add(tip);
    }
    const tips = [...found].join("\n");
    assert.match(tips, /message of a person, added: Only the heavy ones\./);
    assert.match(tips, /cache collapsed: the provider did not have the request's start, 0 of [\d,]+ expected tokens were read from it, .* USD more/);
    await page.goto(`${service.url}#/runs/calls/request`);
    await page.waitForSelector(".request-line >> nth=1");
    assert.doesNotMatch(await page.locator(".request-line >> nth=0").innerText(), /collapsed/);
    assert.match(await page.locator(".request-line >> nth=1").innerText(), /cache collapsed/);
    await page.click(".request-line >> nth=1");
    await page.waitForSelector(".prefix:has-text('Cache collapsed: the provider did not have the request')");
    if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, "request.png") });
    assert.deepEqual(await axe(page), []);
    await page.goto(`${service.url}#/runs/calls/timeline`);
    await page.waitForSelector("canvas");
    if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, "timeline.png") });
    await close(page);
    clearInterval(release);
    far.close();
    await service.stop();
  });

  describe("of the orders of a race", () => {
    let race;
    before(async () => {
      race = await studio([await file("race.json", RACE)], { store: false });
    });
    after(() => race.stop());

    const explored = async (options) => {
      const page = await open(race.url, "#/workflows/race", options);
      await page.click("a:has-text('Explore orders')");
      await page.click("button:has-text('Explore orders')");
      await page.waitForSelector("[role=status]:has-text('3 outcomes in 6 orders. Every order was tried.')");
      return page;
    };

    it("lists outcomes and orders, opens an order as a run by keyboard, and goes back", async () => {
      const page = await explored();
      assert.deepEqual(
        await page.locator(".card .mono").allInnerTexts(),
        ['["a","b"]', '["a","c"]', '["b","c"]'],
      );
      await page.focus("[role=listbox]");
      for (let row = 0; row < 7; row += 1) await page.keyboard.press("ArrowDown");
      assert.match(await text(page, "[role=option][aria-selected=true]"), /c\/wait-c wait/);
      assert.deepEqual(await page.locator(".order li").allInnerTexts(), ["b/ask-b model", "c/wait-c wait"]);
      await page.keyboard.press("Enter");
      await page.waitForSelector("[data-node=join]");
      assert.match(page.url(), /#\/runs\/order%3A/);
      assert.match(await page.getAttribute("[data-node=join]", "aria-label"), /2 of 3, threshold 2, completed/);
      assert.match(await page.getAttribute("[data-node=ask-a]", "aria-label"), /cancelled/);
      // The cursor moves by the choices of the order.
      assert.match(await text(page, ".position"), /^step 2 of/);
      await page.click("[aria-label='One step back']");
      assert.match(await text(page, ".position"), /^step 1 of/);
      assert.match(await page.getAttribute("[data-node=ask-b]", "aria-label"), /completed/);
      assert.doesNotMatch(await page.getAttribute("[data-node=wait-c]", "aria-label"), /completed/);
      await page.click("text=Timeline");
      await page.waitForSelector("canvas");
      await page.click("text=State");
      await page.waitForSelector("text=Node outputs");
      assert.equal(await page.getByRole("button", { name: /fork|pin|emit|pause|cancel|what if/i }).count(), 0, "an order cannot be changed");
      assert.equal(await page.locator("#injected").count(), 0, "texts of models are texts");
      await page.click("text=Back to the orders");
      await page.waitForSelector("[role=option][aria-selected=true]:has-text('c/wait-c wait')");
      // The focus moves after the page has been painted.
      await page.waitForFunction(() => document.activeElement.getAttribute("role") === "listbox");
      assert.deepEqual((await race.get("/runs")).runs, []);
      await close(page);
    });

    it("says that an order is gone after the page was loaded again", async () => {
      const page = await explored();
      await page.click(".card button >> nth=0");
      await page.waitForSelector("[data-node=join]");
      await page.reload();
      await page.waitForSelector(".problem:has-text('Explore the orders of the workflow again.')");
      await close(page);
    });

    it("names the profile that is not offline", async () => {
      const page = await open(race.url, "#/workflows/far/orders");
      await page.click("button:has-text('Explore orders')");
      await page.waitForSelector(".problem:has-text('NOT_OFFLINE')");
      assert.match(await text(page, ".problem"), /the profile `far` of the provider `openai`/);
      await close(page);
    });

    it("has no accessibility issues and fits every width, light and dark", async () => {
      for (const scheme of ["light", "dark"])
        for (const width of [360, 1920]) {
          const page = await explored({ scheme, width });
          await page.focus("[role=listbox]");
          for (let row = 0; row < 3; row += 1) await page.keyboard.press("ArrowDown");
          await page.waitForSelector(".order button");
          const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(wider <= 0, `${wider} px wider than ${width} px`);
          assert.deepEqual(await axe(page), [], `orders ${scheme} ${width}`);
          await page.click(".order button");
          await page.waitForSelector("[data-node=join]");
          assert.deepEqual(await axe(page), [], `an order ${scheme} ${width}`);
          await close(page);
        }
    });
  });

  it("asks for the token that the service requires", async () => {
    const tokens = join(folder, "tokens");
    await writeFile(tokens, "secret-token\n");
    const service = await studio([APPROVAL], { args: ["--token-file", tokens], headers: { Authorization: "Bearer secret-token" } });
    await service.post("/runs", { workflow: "approval", runId: "order", input: { supplier: "Mill", amount: 1 } });
    const page = await open(service.url, "#/runs");
    await page.fill("input[type=password]", "wrong");
    await page.click("dialog button.primary");
    await page.waitForSelector("input[type=password]");
    await page.fill("input[type=password]", "secret-token");
    await page.click("dialog button.primary");
    await page.waitForSelector("tbody tr:has-text('order')");
    await page.goto(`${service.url}#/runs/order`);
    await page.waitForSelector("text=Waits for 2 answers");
    await close(page);
    await service.stop();
  });

  it("offers no change in the mode read", async () => {
    const service = await studio([APPROVAL], { args: ["--studio", "read"] });
    await service.post("/runs", { workflow: "approval", runId: "order", input: { supplier: "Mill", amount: 1 } });
    const page = await open(service.url, "#/runs");
    await page.waitForSelector("text=Read only");
    await page.waitForSelector("tbody tr");
    assert.equal(await page.locator("text=Start a run").count(), 0);
    assert.equal(await page.locator("input[type=checkbox]").count(), 0);
    const refused = await page.evaluate(async () => {
      const answer = await fetch("../v1/runs/order/cancel", { method: "POST", headers: { "Content-Type": "application/json", "X-Pirn-Studio": "1" }, body: "{}" });
      return (await answer.json()).code;
    });
    assert.equal(refused, "STUDIO_READ_ONLY");
    await close(page);
    await service.stop();
  });
});
