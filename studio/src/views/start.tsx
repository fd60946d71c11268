// The form that starts a run: input by the workflow's schema, otherwise JSON; conversation, session, run id.

import { useEffect, useState } from "preact/hooks";
import { get, type Problem, post } from "../api";
import type { Json, JsonObject, WorkflowItem } from "../types";
import { initial, JsonField, ValueForm } from "../ui/form";
import { ProblemBox, toProblem, useResource } from "../ui/resource";

export function StartForm(props: { workflow?: string; session?: string; onStarted: (runId: string) => void }) {
  const list = useResource<{ workflows: WorkflowItem[] }>("/workflows");
  const workflows = list.data.value?.workflows ?? [];
  const [picked, pick] = useState<string | undefined>(props.workflow);
  const id = picked ?? workflows[0]?.id;
  const [schema, setSchema] = useState<JsonObject | undefined>(undefined);
  const [input, setInput] = useState<Json | undefined>(undefined);
  const [asJson, setAsJson] = useState(false);
  const [more, setMore] = useState<{ session?: string; runId?: string; conversation?: Json }>({ session: props.session });
  const [invalid, setInvalid] = useState<string | undefined>(undefined);
  const [problem, setProblem] = useState<Problem | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!id) return;
    const controller = new AbortController();
    get<WorkflowItem>(`/workflows/${encodeURIComponent(id)}`, controller.signal).then(
      (workflow) => {
        setSchema(workflow.inputSchema);
        setInput(initial(workflow.inputSchema));
      },
      () => undefined,
    );
    return () => controller.abort();
  }, [id]);
  const start = async (event: Event) => {
    event.preventDefault();
    if (!id || invalid) return;
    setBusy(true);
    try {
      const run = await post<{ runId: string }>("/runs", {
        workflow: id,
        input,
        session: more.session || undefined,
        runId: more.runId || undefined,
        conversation: more.conversation,
      });
      props.onStarted(run.runId);
    } catch (error) {
      setProblem(toProblem(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="start" onSubmit={(event) => void start(event)}>
      <label class="field">
        Workflow
        <select value={id} onChange={(e) => pick(e.currentTarget.value)}>
          {workflows.map((one) => (
            <option key={one.id} value={one.id}>
              {one.name && one.name !== one.id ? `${one.id}: ${one.name}` : one.id}
            </option>
          ))}
        </select>
      </label>
      {schema && (
        <label class="field check">
          <input type="checkbox" checked={asJson} onChange={(e) => setAsJson(e.currentTarget.checked)} /> Input as JSON
        </label>
      )}
      {schema && !asJson ? (
        <ValueForm key={id} label="Input" schema={schema} value={input} onChange={setInput} onInvalid={setInvalid} />
      ) : (
        <JsonField key={`${id} ${asJson}`} label="Input (JSON)" value={input} onChange={setInput} onInvalid={setInvalid} />
      )}
      <details>
        <summary>Session, run id, conversation</summary>
        <label class="field">
          Session
          <input value={more.session ?? ""} onInput={(e) => setMore({ ...more, session: e.currentTarget.value })} />
        </label>
        <label class="field">
          Run id
          <input value={more.runId ?? ""} pattern="[A-Za-z0-9_.-]{1,128}" onInput={(e) => setMore({ ...more, runId: e.currentTarget.value })} />
          <span class="hint">Letters, digits, hyphens, dots and underscores. Empty: the service chooses one.</span>
        </label>
        <JsonField label="Conversation (JSON list of messages)" value={more.conversation} onChange={(conversation) => setMore({ ...more, conversation })} onInvalid={setInvalid} rows={4} />
      </details>
      {problem && <ProblemBox problem={problem} />}
      <div class="actions">
        <button class="primary" disabled={busy || !id || invalid !== undefined}>
          Start
        </button>
      </div>
    </form>
  );
}
