// Workflows: the list, and of one workflow the drawing, warnings, input schema, recent runs with their statistics, and the start form.

import { useState } from "preact/hooks";
import { canChange, query } from "../api";
import { statisticsOf } from "../data/statistics";
import { go, href, route } from "../router";
import type { RunList, WorkflowItem } from "../types";
import { count, duration, money, percent, plural } from "../ui/text/format";
import { JsonTree } from "../ui/text/json";
import { Dialog } from "../ui/keys";
import { Facts, Panel } from "../ui/panel";
import { useChanges } from "../ui/changes";
import { Loaded, useResource } from "../ui/resource";
import { Orders } from "./orders";
import { RunTable } from "./run-table";
import { StartForm } from "./start";

export function Workflows() {
  const resource = useResource<{ workflows: WorkflowItem[] }>("/workflows");
  return (
    <div class="view">
      <h1>Workflows</h1>
      <Loaded resource={resource}>
        {({ workflows }) => (
          <ul class="cards links">
            {workflows.map((workflow) => (
              <li key={workflow.id} class="card">
                <h2>
                  <a href={href(["workflows", workflow.id])}>{workflow.id}</a>
                </h2>
                {workflow.name && workflow.name !== workflow.id && <p>{workflow.name}</p>}
                {typeof workflow.description === "string" && <p class="dim">{workflow.description}</p>}
                <p class="dim">
                  {plural(workflow.nodes?.length ?? 0, "node")}
                  {workflow.inputSchema ? ", input by a schema" : ""}
                </p>
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </div>
  );
}

const RECENT = 100;

export function Workflow() {
  const [id = "", part] = route.value.args;
  return part === "orders" ? <Orders id={id} /> : <Overview id={id} />;
}

function Overview({ id }: { id: string }) {
  const path = `/workflows/${encodeURIComponent(id)}`;
  const workflow = useResource<WorkflowItem>(path);
  const drawing = useResource<string>(`${path}/drawing?format=svg`);
  const runs = useResource<RunList>(query("/runs", { workflow: id, limit: RECENT }));
  useChanges(runs, 1000, (run) => run.workflowId === id);
  const [isStarting, setStarting] = useState(false);
  return (
    <div class="view">
      <div class="view-title">
        <h1>
          <a class="quiet" href={href(["workflows"])}>
            Workflows
          </a>{" "}
          / {id}
        </h1>
        {canChange() && (
          <div class="actions">
            <a class="button" href={href(["workflows", id, "orders"])}>
              Explore orders
            </a>
            <button class="primary" onClick={() => setStarting(true)}>
              Start a run
            </button>
          </div>
        )}
      </div>
      <Loaded resource={workflow}>{(found) => <About workflow={found} />}</Loaded>
      <Panel title="Drawing" class="drawing">
        <Loaded resource={drawing}>
          {/* An image executes no scripts. Its text is in the list of nodes. */}
          {(svg) => <img src={`data:image/svg+xml,${encodeURIComponent(svg)}`} alt={`Drawing of ${id}: ${nodesOf(workflow.data.value)}`} />}
        </Loaded>
      </Panel>
      <Panel title="Recent runs">
        <Loaded resource={runs}>
          {({ runs: recent, next }) => (
            <>
              <Figures runs={recent} />
              <RunTable runs={recent.slice(0, 20)} label={`Recent runs of ${id}`} />
              {(recent.length > 20 || next) && <a href={href(["runs"], { workflow: id })}>All runs of this workflow</a>}
            </>
          )}
        </Loaded>
      </Panel>
      {isStarting && canChange() && (
        <Dialog label={`Start ${id}`} wide onClose={() => setStarting(false)}>
          <StartForm workflow={id} isFixed onStarted={(run) => go(href(["runs", run]))} />
        </Dialog>
      )}
    </div>
  );
}

const nodesOf = (workflow: WorkflowItem | undefined): string => (workflow?.nodes ?? []).map((node) => `${node.nodeId} (${node.type})`).join(", ");

interface Warning {
  code: string;
  message: string;
  line?: number;
  pointer?: string;
  file?: string;
  help?: string;
}

function About({ workflow }: { workflow: WorkflowItem }) {
  const warnings = (workflow.warnings ?? []) as Warning[];
  return (
    <>
      {workflow.name && workflow.name !== workflow.id && <p>{workflow.name}</p>}
      {typeof workflow.description === "string" && <p class="dim">{workflow.description}</p>}
      {warnings.length > 0 && (
        <Panel title={plural(warnings.length, "warning")}>
          {warnings.map((warning, at) => (
            <p key={at}>
              <span aria-hidden="true">⚠ </span>
              <code>{warning.code}</code> {warning.message}{warning.help && ` (${warning.help})`}{" "}
              <span class="dim mono">
                {[warning.file, warning.line].filter(Boolean).join(":")} {warning.pointer}
              </span>
            </p>
          ))}
        </Panel>
      )}
      {workflow.inputSchema && (
        <Panel title="Input schema">
          <JsonTree value={workflow.inputSchema} />
        </Panel>
      )}
    </>
  );
}

function Figures({ runs }: { runs: RunList["runs"] }) {
  const found = statisticsOf(runs);
  return (
    <Facts
      of={[
        [`Success rate of the last ${count(found.ended)}`, found.ended ? percent(found.completed, found.ended) : "–"],
        ["Median duration", duration(found.p50)],
        ["95th percentile", duration(found.p95)],
        ["Tokens", count(found.tokens)],
        ["Cost", money(found.cost)],
        ["Active", count(runs.length - found.ended)],
      ]}
    />
  );
}
