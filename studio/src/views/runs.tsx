// The list of runs: live, filtered by the address, in pages of 100.

import { signal } from "../reactive";
import { useEffect, useMemo, useState } from "preact/hooks";
import { canChange, get, type Problem, post, query, tokenVersion } from "../api";
import { go, href, route, setQuery } from "../router";
import type { RunItem, RunList, WorkflowItem } from "../types";
import { onChanges } from "../ui/changes";
import { Dialog } from "../ui/keys";
import { count, duration, iso, money, plural, time, tokens } from "../ui/text/format";
import { useNow } from "../ui/now";
import { ProblemBox, toProblem } from "../ui/resource";
import { Status } from "../ui/status";
import { lazy } from "../lazy";

const PAGE = 100;
const STATUSES = ["RUNNING", "WAITING", "PAUSED", "QUEUED", "UNFINISHED", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"];
const PERIODS: { [name: string]: { label: string; ms: number } } = {
  hour: { label: "last hour", ms: 3_600_000 },
  day: { label: "last day", ms: 86_400_000 },
  week: { label: "last week", ms: 604_800_000 },
};
const ACTIVE = new Set(["RUNNING", "WAITING", "PAUSED", "QUEUED"]);

const StartForm = lazy("StartForm");

class RunsPage {
  readonly runs = signal<RunItem[] | undefined>(undefined);
  readonly next = signal<string | undefined>(undefined);
  readonly problem = signal<Problem | undefined>(undefined);
  #controller = new AbortController();
  #stop = onChanges((changed) => this.#change(changed));
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly filters: { [name: string]: string | number | undefined }) {
    void this.load();
  }

  close() {
    this.#stop();
    clearTimeout(this.#timer);
    this.#controller.abort();
  }

  async load() {
    try {
      const list = await get<RunList>(query("/runs", { ...this.filters, limit: PAGE }), this.#controller.signal);
      this.runs.value = list.runs;
      this.next.value = list.next ?? undefined;
      this.problem.value = undefined;
    } catch (error) {
      if (!this.#controller.signal.aborted) this.problem.value = toProblem(error);
    }
  }

  /** Applies changes of runs. The service decides whether a new run, or one with another status, matches the filters. */
  #change(changed: RunItem[]) {
    const items = new Map(this.runs.value?.map((item) => [item.runId, item]));
    const isKnown = ({ runId, status }: RunItem) => items.has(runId) && (!this.filters.status || items.get(runId)!.status === status);
    const isComplete = changed.length > 0 && changed.every(isKnown);
    for (const item of changed) if (items.has(item.runId)) items.set(item.runId, { ...items.get(item.runId), ...item });
    if (this.runs.value) this.runs.value = [...items.values()];
    if (isComplete) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.load();
    }, 500);
  }
}

function filtersOf(search: URLSearchParams): { [name: string]: string | number | undefined } {
  const period = PERIODS[search.get("period") ?? ""];
  return {
    status: search.get("status") ?? undefined,
    workflow: search.get("workflow") ?? undefined,
    session: search.get("session") ?? undefined,
    text: search.get("text") ?? undefined,
    after: search.get("after") ?? undefined,
    startedAfter: search.get("startedAfter") ?? (period ? Date.now() - period.ms : undefined),
    startedBefore: search.get("startedBefore") ?? undefined,
  };
}

export function Runs() {
  const search = route.value.query;
  const token = tokenVersion.value;
  const key = ["status", "workflow", "session", "text", "after", "period", "startedAfter", "startedBefore"].map((name) => search.get(name) ?? "").join("\n");
  const page = useMemo(() => new RunsPage(filtersOf(search)), [key, token]);
  useEffect(() => () => page.close(), [page]);
  const [selection, choose] = useState<ReadonlySet<string>>(new Set());
  const [starting, setStarting] = useState(search.has("start"));
  const runs = page.runs.value;
  /** The selected runs of the table: the buttons must not change a run that a filter hides. */
  const chosen = new Set(runs?.map((run) => run.runId).filter((id) => selection.has(id)));
  const problem = page.problem.value;
  const now = useNow(runs?.some((run) => ACTIVE.has(run.status)) ?? false);
  const isFiltered = key.replaceAll("\n", "") !== "";
  return (
    <div class="view">
      <div class="view-title">
        <h1>Runs</h1>
        {canChange() && (
          <button class="primary" onClick={() => setStarting(true)}>
            Start a run
          </button>
        )}
      </div>
      <Filters search={search} />
      {problem && <ProblemBox problem={problem} />}
      {chosen.size > 0 && <Selected page={page} chosen={chosen} clear={() => choose(new Set())} />}
      {runs === undefined && !problem && <p class="dim loading">Loading…</p>}
      {runs?.length === 0 && (
        <p class="empty">
          {isFiltered ? "No run matches the filters." : "There are no runs yet."}{" "}
          {isFiltered ? <a href={href(["runs"])}>Show all runs</a> : canChange() && <button class="link" onClick={() => setStarting(true)}>Start one</button>}
        </p>
      )}
      {runs !== undefined && runs.length > 0 && (
        <div class="table-box" tabIndex={0} role="region" aria-label="Table of runs">
          <table class="runs">
            <thead>
              <tr>
                {canChange() && (
                  <th class="check">
                    <input
                      type="checkbox"
                      aria-label="Select all runs of the page"
                      checked={runs.every((run) => chosen.has(run.runId))}
                      onChange={(e) => choose(e.currentTarget.checked ? new Set(runs.map((run) => run.runId)) : new Set())}
                    />
                  </th>
                )}
                <th>Run</th>
                <th>Workflow</th>
                <th>Session</th>
                <th>Status</th>
                <th class="number">Started</th>
                <th class="number">Duration</th>
                <th class="number">Tokens</th>
                <th class="number">Cost</th>
                <th class="number">Questions</th>
              </tr>
            </thead>
            <tbody>
              {runs.map((run) => (
                <Row key={run.runId} run={run} now={now} chosen={chosen} choose={choose} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      <nav class="pages" aria-label="Pages">
        {search.get("after") && <a href={href(["runs"], { ...Object.fromEntries(search), after: undefined })}>First page</a>}
        {page.next.value && <a href={href(["runs"], { ...Object.fromEntries(search), after: page.next.value })}>Next page</a>}
      </nav>
      {starting && canChange() && <StartDialog workflow={search.get("start") || search.get("workflow") || undefined} session={search.get("session") ?? undefined} onClose={() => (setStarting(false), setQuery({ start: undefined }))} />}
    </div>
  );
}

function Row({ run, now, chosen, choose }: { run: RunItem; now: number; chosen: ReadonlySet<string>; choose: (to: ReadonlySet<string>) => void }) {
  const ms = run.durationMs ?? (ACTIVE.has(run.status) ? now - run.startedAt : run.updatedAt - run.startedAt);
  const toggle = (on: boolean) => {
    const to = new Set(chosen);
    if (on) to.add(run.runId);
    else to.delete(run.runId);
    choose(to);
  };
  return (
    <tr class={chosen.has(run.runId) ? "selected" : undefined}>
      {canChange() && (
        <td class="check">
          <input type="checkbox" aria-label={`Select ${run.runId}`} checked={chosen.has(run.runId)} onChange={(e) => toggle(e.currentTarget.checked)} />
        </td>
      )}
      <td class="mono"><a href={href(["runs", run.runId])}>{run.runId}</a></td>
      <td><a class="quiet" href={href(["workflows", run.workflowId])}>{run.workflowId}</a></td>
      <td>{run.session ? <a class="quiet" href={href(["sessions", run.session])}>{run.session}</a> : <span class="dim">–</span>}</td>
      <td><Status status={run.status} /></td>
      <td class="number" title={iso(run.startedAt)}>{time(run.startedAt)}</td>
      <td class="number">{duration(Math.max(0, ms))}</td>
      <td class="number">{tokens(run.tokens)}</td>
      <td class="number">{money(run.cost)}</td>
      <td class="number">{run.openQuestions ? <a href={href(["questions"], { run: run.runId })}>{count(run.openQuestions)}</a> : <span class="dim">–</span>}</td>
    </tr>
  );
}

function Filters({ search }: { search: URLSearchParams }) {
  const [workflows, setWorkflows] = useState<string[]>([]);
  useEffect(() => {
    get<{ workflows: WorkflowItem[] }>("/workflows").then(
      (answer) => setWorkflows(answer.workflows.map((one) => one.id)),
      () => undefined,
    );
  }, [tokenVersion.value]);
  const set = (name: string) => (e: { currentTarget: HTMLInputElement | HTMLSelectElement }) => setQuery({ [name]: e.currentTarget.value, after: undefined });
  const workflow = search.get("workflow") ?? "";
  return (
    <div class="filters">
      <label>
        Text
        <input type="search" placeholder="run, workflow or session" value={search.get("text") ?? ""} onInput={set("text")} />
      </label>
      <label>
        Status
        <select value={search.get("status") ?? ""} onChange={set("status")}>
          <option value="">any</option>
          {STATUSES.map((status) => <option value={status}>{status.toLowerCase()}</option>)}
        </select>
      </label>
      <label>
        Workflow
        <select value={workflow} onChange={set("workflow")}>
          <option value="">any</option>
          {(workflow && !workflows.includes(workflow) ? [workflow, ...workflows] : workflows).map((id) => <option value={id}>{id}</option>)}
        </select>
      </label>
      <label>
        Session
        <input value={search.get("session") ?? ""} onChange={set("session")} />
      </label>
      <label>
        Started
        <select value={search.get("period") ?? ""} onChange={set("period")}>
          <option value="">any time</option>
          {Object.entries(PERIODS).map(([name, period]) => <option value={name}>{period.label}</option>)}
        </select>
      </label>
    </div>
  );
}

function Selected({ page, chosen, clear }: { page: RunsPage; chosen: ReadonlySet<string>; clear: () => void }) {
  const [problems, setProblems] = useState<[string, Problem][]>([]);
  const [busy, setBusy] = useState(false);
  const all = async (action: string, body: object) => {
    setBusy(true);
    const failed: [string, Problem][] = [];
    for (const id of chosen) {
      try {
        await post(`/runs/${encodeURIComponent(id)}/${action}`, body);
      } catch (error) {
        failed.push([id, toProblem(error)]);
      }
    }
    setProblems(failed);
    setBusy(false);
    await page.load();
    if (failed.length === 0) clear();
  };
  const two = [...chosen];
  return (
    <div class="selected-bar" role="region" aria-label="Selected runs">
      <strong>{plural(chosen.size, "run")} selected</strong>
      <button disabled={busy} onClick={() => void all("cancel", { reason: "cancelled in the Studio" })}>Cancel</button>
      <button disabled={busy} onClick={() => void all("resume", {})}>Resume</button>
      {two.length === 2 && <a class="button" href={href(["compare", two[0]!, two[1]!])}>Compare</a>}
      <button class="link" onClick={clear}>Clear</button>
      {problems.map(([id, problem]) => <ProblemBox key={id} problem={problem}> <code>{id}</code></ProblemBox>)}
    </div>
  );
}

function StartDialog({ workflow, session, onClose }: { workflow?: string; session?: string; onClose: () => void }) {
  return (
    <Dialog label="Start a run" onClose={onClose} wide>
      <StartForm workflow={workflow} session={session} onStarted={(id) => (onClose(), go(href(["runs", id])))} />
    </Dialog>
  );
}

