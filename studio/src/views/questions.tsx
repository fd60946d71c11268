// Questions: all open questions and consents of all runs, or of one: `#/questions?run=ID`.

import { useState } from "preact/hooks";
import { canChange } from "../api";
import { href, route } from "../router";
import { plural } from "../ui/text/format";
import { useChanges } from "../ui/changes";
import { QuestionCard } from "../ui/forms/question";
import { Loaded, useResource } from "../ui/resource";
import type { Interaction } from "../types";

export function Questions() {
  const resource = useResource<{ interactions: Interaction[]; more?: boolean }>("/interactions?limit=1000");
  useChanges(resource);
  const [notice, setNotice] = useState("");
  const run = route.value.query.get("run");
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
        {({ interactions, more }) => {
          const shown = interactions.filter((question) => !run || question.runId === run);
          return (
            <>
              {shown.length === 0 && <p class="empty">No run waits for a person.</p>}
              <p class="dim">
                {plural(shown.length, "open question")}
                {more && " and more"}
                {run && (
                  <>
                    {" "}
                    of {run}: <a href={href(["questions"])}>all questions</a>
                  </>
                )}
                .{!canChange() && " This page is read-only: answer with `pirn runs answer` or the API."}
              </p>
              <div class="cards">
                {shown.map((question) => (
                  <QuestionCard key={question.id} question={question} showRun onAnswered={() => answered(question)} />
                ))}
              </div>
            </>
          );
        }}
      </Loaded>
    </div>
  );
}
