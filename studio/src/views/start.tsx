// The form that starts a run: input by the workflow's schema, otherwise JSON; session, run id and conversation on demand.

import { useEffect, useState } from "preact/hooks";
import { useId } from "../ui/id";
import { get, post } from "../api";
import type { Schema } from "../data/schema";
import type { JsonObject, WorkflowItem } from "../types";
import { useResource } from "../ui/resource";
import { JsonForm } from "../ui/forms/schema-form";

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
      {workflow && (
        <JsonForm
          key={workflow.id}
          schema={schemaOf(workflow, props.session)}
          submit="Start"
          onSubmit={async (value) => props.onStarted((await post<{ runId: string }>("/runs", { ...(value as JsonObject), workflow: workflow.id })).runId)}
        />
      )}
    </div>
  );
}

/** Schema of the request that starts a run. References of the input's schema lead to its own definitions. */
function schemaOf({ inputSchema }: WorkflowItem, session: string | undefined): Schema {
  return {
    ...(inputSchema && { $defs: inputSchema.$defs, definitions: inputSchema.definitions, required: ["input"] }),
    type: "object",
    properties: {
      input: { title: "Input", ...inputSchema },
      session: { type: "string", title: "Session", default: session, description: "The run continues its conversation and variables." },
      runId: { type: "string", title: "Run id", description: "Letters, digits, hyphens, dots and underscores. Empty: the service chooses one." },
      conversation: { type: "array", title: "Conversation", items: { type: "object" }, description: "Messages with which the run starts." },
    },
  };
}
