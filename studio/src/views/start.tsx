// The form that starts a run: input by the workflow's schema, otherwise JSON; conversation, session, run id.

import { useEffect, useId, useState } from "preact/hooks";
import { get, post, Problem } from "../api";
import { parseJson, type Schema } from "../data/schema";
import type { Json, WorkflowItem } from "../types";
import { useResource } from "../ui/resource";
import { JsonForm } from "../ui/schema-form";

export function StartForm(props: { workflow?: string; session?: string; onStarted: (runId: string) => void; isFixed?: boolean }) {
  const list = useResource<{ workflows: WorkflowItem[] }>("/workflows");
  const workflows = list.data.value?.workflows ?? [];
  const [picked, pick] = useState<string | undefined>(props.workflow);
  const id = picked ?? workflows[0]?.id;
  // The list may omit the schema, so that the workflow itself is read.
  const [workflow, setWorkflow] = useState<WorkflowItem>();
  useEffect(() => {
    if (!id) return;
    const controller = new AbortController();
    setWorkflow(undefined);
    get<WorkflowItem>(`/workflows/${encodeURIComponent(id)}`, controller.signal).then(setWorkflow, () => {
      if (!controller.signal.aborted) setWorkflow({ id });
    });
    return () => controller.abort();
  }, [id]);
  const field = useId();
  return (
    <div class="start">
      {!props.isFixed && (
        <div class="field">
          <label for={field}>Workflow</label>
          <select id={field} value={id} onChange={(event) => pick(event.currentTarget.value)}>
            {workflows.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name && one.name !== one.id ? `${one.id}: ${one.name}` : one.id}
              </option>
            ))}
          </select>
        </div>
      )}
      {workflow && <InputForm key={workflow.id} workflow={workflow} session={props.session} onStarted={props.onStarted} />}
    </div>
  );
}

function InputForm({ workflow, session: given = "", onStarted }: { workflow: WorkflowItem; session?: string; onStarted: (runId: string) => void }) {
  const [runId, setRunId] = useState("");
  const [session, setSession] = useState(given);
  const [conversation, setConversation] = useState("");
  const id = useId();
  const start = async (input: Json | undefined) => {
    const parsed = conversation.trim() ? parseJson(conversation) : undefined;
    if (parsed && "error" in parsed) throw new Problem("INVALID_JSON", 0, `Conversation: ${parsed.error}`);
    const run = await post<{ runId: string }>("/runs", {
      workflow: workflow.id,
      input,
      session: session.trim() || undefined,
      runId: runId.trim() || undefined,
      conversation: parsed?.value,
    });
    onStarted(run.runId);
  };
  return (
    <JsonForm schema={(workflow.inputSchema as Schema | undefined) ?? true} label="Input" submit="Start" onSubmit={start}>
      <details open={given !== ""}>
        <summary>Session, run id, conversation</summary>
        <div class="field">
          <label for={`${id}-session`}>Session</label>
          <input id={`${id}-session`} value={session} onInput={(event) => setSession(event.currentTarget.value)} />
          <p class="hint">The run continues the conversation and the variables of the session.</p>
        </div>
        <div class="field">
          <label for={`${id}-run`}>Run id</label>
          <input id={`${id}-run`} value={runId} onInput={(event) => setRunId(event.currentTarget.value)} />
          <p class="hint">Letters, digits, hyphens, dots and underscores. Empty: the service chooses one.</p>
        </div>
        <div class="field">
          <label for={`${id}-conversation`}>Conversation (JSON list of messages)</label>
          <textarea id={`${id}-conversation`} class="mono" rows={3} spellcheck={false} value={conversation} onInput={(event) => setConversation(event.currentTarget.value)} />
        </div>
      </details>
    </JsonForm>
  );
}
