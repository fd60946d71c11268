// A compression in a conversation: a bracket that opens to the removed messages beside what replaced them. Statements with facts that
// the summary does not contain are marked, by the rules of `pirn context judge`.

import { useMemo, useState } from "preact/hooks";
import { type CompressionItem, type MessageItem, textOf } from "../../data/conversation";
import { type Fact, type FoundFact, judge, type Judgement, type Statement, statements } from "../../data/facts";
import { count, iso, percent, plural, time } from "../../ui/text/format";
import { ProblemBox, toProblem } from "../../ui/resource";
import { Problem } from "../../api";
import { MessageCard } from "./messages";

export function Compression({ item }: { item: CompressionItem }) {
  const [isOpen, setOpen] = useState(false);
  const saved = item.tokensBefore - item.tokensAfter;
  const error = item.error as { code?: string; message?: string } | undefined;
  if (error) return <ProblemBox problem={error.code ? new Problem(error.code, 0, error.message ?? "The compression failed.") : toProblem(error)} />;
  return (
    <section class={`compression ${isOpen ? "open" : ""}`} aria-label="Compression">
      <button class="compression-title" aria-expanded={isOpen} disabled={!item.removed} onClick={() => setOpen(!isOpen)}>
        <span class="twist" aria-hidden="true">{isOpen ? "▾" : "▸"}</span>
        <span>
          {item.changed ? (
            <>
              Compressed from {count(item.messagesBefore)} to {plural(item.messagesAfter, "message")}, from {count(item.tokensBefore)} to {count(item.tokensAfter)} tokens (
              {percent(saved, item.tokensBefore)} saved)
            </>
          ) : (
            "Compression skipped: the result is not smaller"
          )}
          {item.triggerId && <> by the trigger {item.triggerId}</>}
        </span>
        <time class="dim" dateTime={iso(item.at)}>
          {time(item.at)}
        </time>
      </button>
      {isOpen && item.removed && <Opened removed={item.removed} written={item.written ?? []} />}
    </section>
  );
}

const PAGE = 50;

function Opened({ removed, written }: { removed: MessageItem[]; written: MessageItem[] }) {
  const judged = useMemo(() => judge(removed.map(({ message }) => textOf(message)), written.map(({ message }) => textOf(message)).join("\n")), [removed, written]);
  const [isOnlyLost, setOnlyLost] = useState(true);
  const [shown, setShown] = useState(PAGE);
  const listed = removed.map((item, at) => ({ item, lost: judged.lostIn[at]! })).filter(({ lost }) => !isOnlyLost || lost.length > 0);
  return (
    <div class="compression-body">
      <Summary judged={judged} />
      <div class="columns">
        <section aria-label="Removed messages">
          <h2>
            {plural(removed.length, "removed message")}{" "}
            <label class="choice">
              <input type="checkbox" checked={isOnlyLost} onChange={(event) => setOnlyLost(event.currentTarget.checked)} /> only with lost facts
            </label>
          </h2>
          {listed.slice(0, shown).map(({ item, lost }, at) => (
            <MessageCard key={at} item={item} calls={[]} note={lost.length > 0 && <span class="badge lost">{plural(lost.length, "lost fact")}</span>}>
              <div class="text">
                {statements(textOf(item.message), lost).map((statement, index) => (
                  <StatementText key={index} statement={statement} />
                ))}
              </div>
            </MessageCard>
          ))}
          {listed.length > shown && (
            <button class="fold" onClick={() => setShown(shown + PAGE * 2)}>
              {plural(listed.length - shown, "more message")}
            </button>
          )}
        </section>
        <section aria-label="Written by the compression" class="written">
          <h2>{written.length === 1 ? "The summary" : plural(written.length, "written message")}</h2>
          {written.length === 0 && <p class="dim">The compression wrote nothing: the messages were only removed.</p>}
          {written.map((item, at) => (
            <MessageCard key={at} item={item} />
          ))}
        </section>
      </div>
    </div>
  );
}

const KINDS: Fact["kind"][] = ["number", "date", "id", "name", "negation"];

function Summary({ judged }: { judged: Judgement }) {
  const { total, kept, lost } = judged;
  if (total === 0) return <p class="dim">The removed messages contain no numbers, dates, ids, names or negations.</p>;
  const lostOf = (kind: Fact["kind"]) => lost.filter((fact) => fact.kind === kind).length;
  const kinds = KINDS.filter((kind) => lostOf(kind) > 0).map((kind) => plural(lostOf(kind), kind));
  return (
    <p>
      The summary retains {count(kept)} of {plural(total, "fact")} ({percent(kept, total)}).
      {lost.length > 0 && (
        <>
          {" "}
          It lost {kinds.join(", ")}; each is <mark class="lost">marked</mark> in its statement, and the statement has the sign <span class="lost-sign">✗</span>.
        </>
      )}
    </p>
  );
}

function StatementText({ statement: { text, lost } }: { statement: Statement }) {
  if (lost.length === 0) return <>{text}</>;
  return (
    <span class="lost-statement">
      <span class="lost-sign" title={`Not in the summary: ${namesOf(lost)}`}>
        <span aria-hidden="true">✗ </span>
        <span class="sr">Lost {namesOf(lost)}: </span>
      </span>
      {marked(text, lost)}
    </span>
  );
}

const namesOf = (lost: FoundFact[]): string => [...new Set(lost.map((fact) => (fact.kind === "negation" ? `not ${fact.text}` : fact.text)))].join(", ");

/** The text with its lost facts marked. Facts may overlap: a word can be a name and a negation. */
function marked(text: string, lost: FoundFact[]) {
  const parts = [];
  let at = 0;
  for (const fact of lost) {
    if (fact.from < at) continue;
    parts.push(text.slice(at, fact.from), <mark class="lost">{text.slice(fact.from, fact.to)}</mark>);
    at = fact.to;
  }
  return [...parts, text.slice(at)];
}
