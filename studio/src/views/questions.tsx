// Questions: all open questions and consents of all runs.

import { useState } from "preact/hooks";
import { canChange } from "../api";
import { plural } from "../ui/format";
import { usePolling } from "../ui/polling";
import { QuestionCard } from "../ui/question";
import { Loaded, useResource } from "../ui/resource";
import type { Interaction } from "../types";

export function Questions() {
  const resource = useResource<{ interactions: Interaction[] }>("/interactions");
  usePolling(resource, 2000);
  const [notice, setNotice] = useState("");
  const answered = (question: Interaction) => {
    setNotice(`The answer to “${question.question}” was sent.`);
    void resource.reload();
  };
  return (
    <div class="view questions">
      <h1>Questions</h1>
      <p role="status" class="notice">
        {notice}
      </p>
      <Loaded resource={resource}>
        {({ interactions }) =>
          interactions.length === 0 ? (
            <p class="empty">No run waits for a person.</p>
          ) : (
            <>
              <p class="dim">
                {plural(interactions.length, "open question")}.{!canChange() && " This page is read-only: answer with `pirn runs answer` or the API."}
              </p>
              <div class="cards">
                {interactions.map((question) => (
                  <QuestionCard key={question.id} question={question} showRun onAnswered={() => answered(question)} />
                ))}
              </div>
            </>
          )
        }
      </Loaded>
    </div>
  );
}
