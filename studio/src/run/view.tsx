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

/** Keeps the cursor and the address equal: links select a step, and the address of the page is a link to what it shows. */
function bindCursor(run: OpenRun): () => void {
  const { cursor } = run;
  const { query } = route.peek();
  cursor.select(query.get("node") ?? undefined, query.get("thread") ?? undefined);
  let wanted = query.get("step");
  const at = query.get("event");
  if (at !== null) cursor.sequence.value = Number(at);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stop = effect(() => {
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
      if (!setQuery(change)) timer = setTimeout(write, WRITE_AFTER);
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
