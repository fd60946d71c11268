// Every order in which the branches of a workflow can end: the form, the outcomes, and the tree of orders. An order opens as a run.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { canChange, post, showOrder } from "../api";
import { eventsTo, letterOf, type OrderEnd, type OrderOutcome, type OrderRow, type OrderTree, rowsOf } from "../data/orders";
import type { Schema } from "../data/schema";
import { signal } from "../reactive";
import { go, href } from "../router";
import type { Json, JsonObject, WorkflowItem } from "../types";
import { brief, count, plural } from "../ui/text/format";
import { List } from "../ui/list";
import { Panel } from "../ui/panel";
import { Loaded, ProblemBox, toProblem, useResource } from "../ui/resource";
import { JsonForm } from "../ui/forms/schema-form";
import { look, Status } from "../ui/status";

interface Explored {
  workflow: string;
  /** Body of the request, which each order repeats. */
  body: JsonObject;
  tree: OrderTree;
}

/** The last exploration and its selected row: they are still there when the page returns from an order. */
const explored = signal<Explored | undefined>(undefined);
const selected = signal(-1);

export function Orders({ id }: { id: string }) {
  const workflow = useResource<WorkflowItem>(`/workflows/${encodeURIComponent(id)}`);
  const found = explored.value?.workflow === id ? explored.value : undefined;
  return (
    <div class="view">
      <div class="view-title">
        <h1>
          <a class="quiet" href={href(["workflows"])}>
            Workflows
          </a>{" "}
          /{" "}
          <a class="quiet" href={href(["workflows", id])}>
            {id}
          </a>{" "}
          / Orders
        </h1>
      </div>
      <p class="dim">
        Runs the workflow in every order in which its branches can end, and compares the outcomes. No run is started or stored. Models must be offline, and tools that need the outside world are not called.
      </p>
      {canChange() ? (
        <Panel title="Explore">
          <Loaded resource={workflow}>{(one) => <JsonForm key={id} schema={schemaOf(one)} initial={found?.body} submit="Explore orders" onSubmit={(value) => explore(id, (value ?? {}) as JsonObject)} />}</Loaded>
        </Panel>
      ) : (
        <p>The page is read-only. Use <code>pirn explore</code>, or start the service with <code>--studio full</code>.</p>
      )}
      <p role="status" class={found ? undefined : "sr"}>{found && summary(found.tree)}</p>
      {found && <Tree found={found} />}
    </div>
  );
}

/** Schema of the request. References of the input's schema lead to its own definitions. */
function schemaOf({ inputSchema }: WorkflowItem): Schema {
  return {
    ...(inputSchema && { $defs: inputSchema.$defs, definitions: inputSchema.definitions, required: ["input"] }),
    type: "object",
    properties: {
      input: { title: "Input", ...inputSchema },
      timeouts: { type: "boolean", title: "Time limits may expire at any moment", description: "Otherwise only when nothing else can happen." },
      keepTime: { type: "boolean", title: "WAITs end in the order of their lengths" },
      allOrders: { type: "boolean", title: "Run equivalent orders too", description: "Otherwise an order ends where it reaches a known state." },
    },
  };
}

async function explore(workflow: string, body: JsonObject) {
  const tree = await post<OrderTree>(`/workflows/${encodeURIComponent(workflow)}/orders`, body);
  selected.value = -1;
  explored.value = { workflow, body, tree };
}

const STOPPED = {
  SCHEDULES: "The maximum number of orders is reached: other outcomes may be missing.",
  STOPPED: "The time limit is reached: other outcomes may be missing.",
  BYTES: "The maximum size of the answer is reached: other outcomes may be missing.",
};

const summary = ({ outcomes, schedules, stopped }: OrderTree) => `${plural(outcomes.length, "outcome")} in ${plural(schedules, "order")}. ${stopped ? STOPPED[stopped] : "Every order was tried."}`;

/** Shows the run of an order in the view of runs. */
async function show({ workflow, body }: Explored, replay: string) {
  const path = `/workflows/${encodeURIComponent(workflow)}/orders/${encodeURIComponent(replay)}`;
  const { report, ...rest } = await post<{ [part: string]: unknown }>(path, body);
  const lists = ["steps", "threads"].map((name) => [`/${name}`, { [name]: rest[name] }]);
  const others = ["events", "definition", "drawings"].map((name) => [`/${name}`, rest[name]]);
  const id = showOrder(replay, { "": report, "/interactions": { interactions: [] }, ...Object.fromEntries([...lists, ...others]) });
  go(href(["runs", id]));
}

const ROW = 34;
const MAX_ROWS = 16;
/** Deeper rows have this indentation, so that their texts remain visible. */
const MAX_DEPTH = 8;

function Tree({ found }: { found: Explored }) {
  const { tree } = found;
  const { rows, rowOf } = useMemo(() => rowsOf(tree.nodes), [tree]);
  const [problem, setProblem] = useState<unknown>();
  const [isOpening, setOpening] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  // The list has the focus again when the page returns from an order: one frame later, because a change of the view moves the focus to it.
  useEffect(() => {
    if (selected.peek() >= 0) requestAnimationFrame(() => box.current?.querySelector<HTMLElement>("[role=listbox]")?.focus());
  }, []);
  const open = async (end: { replay: string } | undefined) => {
    if (!end || isOpening) return;
    setProblem(undefined);
    setOpening(true);
    try {
      await show(found, end.replay);
    } catch (error) {
      setProblem(error);
      setOpening(false);
    }
  };
  const row = rows[selected.value];
  return (
    <>
      <Panel title="Outcomes">
        <ul class="cards">
          {tree.outcomes.map((outcome, at) => (
            <OutcomeCard key={at} outcome={outcome} at={at} tree={tree} onOpen={() => void open(outcome)} />
          ))}
        </ul>
      </Panel>
      <Panel title="Orders" class="orders">
        <p class="dim">A row continues the nearest row above it that is less indented. A row with an outcome ends an order; Enter opens the run of that order.</p>
        {problem !== undefined && <ProblemBox problem={toProblem(problem)} />}
        <div ref={box} class="tree" style={{ height: `${Math.min(rows.length, MAX_ROWS) * ROW + 2}px` }}>
          <List
            label="Orders"
            count={rows.length}
            rowHeight={ROW}
            selected={selected.value}
            onSelect={(at) => (selected.value = at)}
            onOpen={(at) => void open(rows[at]?.end)}
            row={(at) => <Row row={rows[at]!} at={at} tree={tree} rowOf={rowOf} />}
          />
        </div>
        {row && <Details row={row} tree={tree} rowOf={rowOf} isOpening={isOpening} onOpen={() => void open(row.end)} />}
      </Panel>
    </>
  );
}

function OutcomeCard({ outcome, at, tree, onOpen }: { outcome: OrderOutcome; at: number; tree: OrderTree; onOpen: () => void }) {
  const orders = tree.nodes.filter(({ end }) => end?.outcome === at).length;
  return (
    <li class="card">
      <h3>
        <Letter at={at} /> <Status status={outcome.status} />
      </h3>
      <p class="mono">{resultOf(outcome)}</p>
      <p class="dim">
        {plural(orders, "order")}. The shortest: {outcome.order.join(", ") || "no choice"}
      </p>
      <p>
        <button onClick={onOpen}>
          Show the run<span class="sr"> of outcome {letterOf(at)}</span>
        </button>
      </p>
    </li>
  );
}

const resultOf = ({ status, output, error }: OrderOutcome) => (error ? `${error.code}: ${error.message}` : status === "RUNNING" ? "waits for ever" : brief(output as Json, 300));

const Letter = ({ at }: { at: number }) => <span class="letter">{letterOf(at)}</span>;

function Row({ row, at, tree, rowOf }: { row: OrderRow; at: number; tree: OrderTree; rowOf: number[] }) {
  return (
    <>
      <span class="dim number">{count(at + 1)}</span>
      <span class="events-of" style={{ paddingInlineStart: `${Math.min(row.depth, MAX_DEPTH) * 16}px` }}>
        <span class="sr">level {row.depth}: </span>
        {row.depth > 0 && <span aria-hidden="true" class="dim">└ </span>}
        {row.events.join(" → ") || "start"}
      </span>
      <span class="spring" />
      <End end={row.end} tree={tree} rowOf={rowOf} orders={row.orders} />
    </>
  );
}

function End({ end, tree, rowOf, orders }: { end: OrderEnd | undefined; tree: OrderTree; rowOf: number[]; orders: number }) {
  if (!end) return <span class="dim">{plural(orders, "order")}</span>;
  if (end.outcome === undefined) return <span class="dim">{end.sameAs === undefined ? "known state" : `state of row ${rowOf[end.sameAs]! + 1}`}</span>;
  const { status } = tree.outcomes[end.outcome]!;
  return (
    <span class={`status ${look(status).tone}`}>
      <span class="symbol" aria-hidden="true">{look(status).symbol}</span>
      <span class="sr">{look(status).word}, outcome </span>
      <Letter at={end.outcome} />
    </span>
  );
}

function Details({ row, tree, rowOf, isOpening, onOpen }: { row: OrderRow; tree: OrderTree; rowOf: number[]; isOpening: boolean; onOpen: () => void }) {
  const events = eventsTo(tree.nodes, row.node);
  const { end } = row;
  const outcome = end?.outcome === undefined ? undefined : tree.outcomes[end.outcome]!;
  return (
    <section aria-label="Selected row" class="order">
      <ol>
        {events.map((event, at) => (
          <li key={at}>{event}</li>
        ))}
      </ol>
      {outcome && (
        <p>
          <Letter at={end!.outcome!} /> <Status status={outcome.status} /> <span class="mono">{resultOf(outcome)}</span>
        </p>
      )}
      {end && !outcome && <p>The state equals that of row {end.sameAs === undefined ? "an earlier order" : rowOf[end.sameAs]! + 1}, so the outcomes that follow are equal. The run below takes the first event at each further choice.</p>}
      {!end && <p>Orders that start with these events: {row.orders}.</p>}
      {end && (
        <button class="primary" disabled={isOpening} onClick={onOpen}>
          {isOpening ? "Running…" : "Show the run of this order"}
        </button>
      )}
    </section>
  );
}
