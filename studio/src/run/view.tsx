// A run: the strip with its outcome, the scrubber, and the panes.

import { effect, signal } from "../reactive";
import { useEffect, useMemo } from "preact/hooks";
import { go, route, setQuery } from "../router";
import { ProblemBox } from "../ui/resource";
import { useKeys } from "../ui/keys";
import { OpenRun } from "./model/open";
import { panes } from "./panes";
import { Scrubber } from "./scrubber";
import { Strip } from "./strip";
import { paneHref } from "./view-href";

/** The run that the page shows, for actions outside of the panes. */
export const openRun = signal<OpenRun | undefined>(undefined);

const WRITE_AFTER = 150;
const PARAMETERS = ["step", "event", "node", "thread"];

/** Keeps the cursor and the address equal: links select a step, and the address of the page is a link to what it shows. */
function bindCursor(run: OpenRun): () => void {
  const { cursor } = run;
  let wanted: string | null = null;
  /** The cursor in the address. */
  let known = "";
  let timer: ReturnType<typeof setTimeout> | undefined;
  /** Moves the cursor to what a link names. What it does not name stays, as in the links of the panes. */
  const follow = () => {
    const { view, args, query } = route.value;
    const [step, event, node, thread] = PARAMETERS.map((name) => query.get(name));
    const linked = String([step, event, node, thread]);
    if (view !== "runs" || args[0] !== run.id || linked === known) return;
    known = linked;
    if (node || thread) cursor.select(node ?? undefined, thread ?? undefined);
    if (step) wanted = step;
    else if (event) cursor.sequence.value = Number(event) || undefined;
  };
  const stop = effect(() => {
    follow();
    const steps = run.steps.value;
    if (wanted !== null && steps) {
      const step = Number(wanted);
      wanted = null;
      cursor.toStep(step);
    }
    const sequence = cursor.sequence.value;
    const change = {
      node: cursor.node.value,
      thread: cursor.thread.value,
      step: sequence === undefined ? undefined : cursor.step.value,
      event: sequence === undefined || cursor.step.value !== undefined ? undefined : sequence,
    };
    const write = () => {
      const before = known;
      known = String([change.step, change.event, change.node, change.thread]);
      if (setQuery(change)) return;
      known = before;
      timer = setTimeout(write, WRITE_AFTER);
    };
    clearTimeout(timer);
    if (wanted === null) timer = setTimeout(write, WRITE_AFTER);
  });
  return () => {
    clearTimeout(timer);
    stop();
  };
}

export function Run() {
  const [id = "", pane = panes[0]!.name] = route.value.args;
  const run = useMemo(() => new OpenRun(id), [id]);
  useEffect(() => {
    openRun.value = run;
    const unbind = bindCursor(run);
    return () => {
      unbind();
      run.close();
      openRun.value = undefined;
    };
  }, [run]);
  const { cursor } = run;
  useKeys(
    [
      { key: "ArrowLeft", does: "One step back", action: () => cursor.by(-1) },
      { key: "ArrowRight", does: "One step forward", action: () => cursor.by(1) },
      { key: "Home", does: "To the first step", action: () => cursor.move({ sequence: run.model.events[0]?.sequence }) },
      { key: "End", does: "To the end, and follow the run", action: () => cursor.move({ sequence: undefined }) },
      { key: "Escape", does: "Clear the selection", action: () => cursor.select(undefined) },
      ...panes.map((one, i) => ({
        key: String(i + 1),
        does: `Show ${one.label.toLowerCase()}`,
        action: () => go(paneHref(run.id, one.name)),
      })),
    ],
    [run],
  );
  const current = panes.find((one) => one.name === pane) ?? panes[0]!;
  const problem = run.problem.value;
  const Shown = current.component;
  return (
    <div class="run-view">
      <Strip run={run} />
      {problem && <ProblemBox problem={problem} />}
      <Scrubber run={run} />
      <nav class="tabs" aria-label="Panes">
        {panes.map((one) => (
          <a key={one.name} href={paneHref(run.id, one.name)} aria-current={one === current ? "page" : undefined}>
            {one.label}
          </a>
        ))}
      </nav>
      <section class="pane" aria-label={current.label}>
        <Shown run={run} />
      </section>
    </div>
  );
}
