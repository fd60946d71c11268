// The open questions of a run at the cursor, as forms. After an answer, the lane continues in the pane that shows it.

import { query } from "../api";
import type { Interaction, JsonObject } from "../types";
import { QuestionCard } from "../ui/forms/question";
import { useResource } from "../ui/resource";
import type { Question } from "./model/model";
import type { OpenRun } from "./model/open";

/** All open questions, or those for which `of` is true. */
export function OpenQuestions({ run, of }: { run: OpenRun; of?: (question: Question) => boolean }) {
  const open = run.model.questionsAt(run.cursor.position.value).filter((question) => question.end === undefined && (of?.(question) ?? true));
  const resource = useResource<{ interactions: Interaction[] }>(open.length > 0 ? query(run.path("/interactions"), {}) : undefined);
  const known = new Map((resource.data.value?.interactions ?? []).map((one) => [one.id, one]));
  // An order answers its questions itself.
  if (open.length === 0 || run.isOrder) return null;
  return (
    <section aria-label="Open questions" class="cards">
      {open.map((question) => (
        <QuestionCard
          key={question.id}
          question={{
            id: question.id,
            nodeId: question.node,
            question: question.question,
            schema: question.schema,
            choices: question.choices as JsonObject[] | undefined,
            tool: question.tool as Interaction["tool"],
            askedAt: question.startAt,
            timeoutMs: question.timeoutMs,
            assignee: question.assignee,
            ...known.get(question.id),
            runId: run.id,
            workflowId: run.model.workflow,
          }}
          onAnswered={() => void run.refresh()}
        />
      ))}
    </section>
  );
}
