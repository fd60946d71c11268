// Two texts with their differences: by lines, and side by side at the first differing byte.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { byteLength, excerpt, firstDifference, lineDiff } from "../../data/diff";
import { count, plural } from "./format";

const SIGNS = { same: " ", removed: "−", added: "+" };
const NAMES = { same: "", removed: "removed: ", added: "added: " };

export function TextDiff({ left, right, label }: { left: string; right: string; label: string }) {
  const found = useMemo(() => excerpt(lineDiff(left, right)), [left, right]);
  if (left === right) return <p class="dim">{label}: equal</p>;
  return (
    <div class="diff" role="region" aria-label={label} tabIndex={0}>
      {found.map((line, at) =>
        typeof line === "number" ? (
          <div key={at} class="line dim">
            … {plural(line, "equal line")}
          </div>
        ) : (
          <div key={at} class={`line ${line.kind}`}>
            <span aria-hidden="true">{line.left}</span>
            <span aria-hidden="true">{line.right}</span>
            <span aria-hidden="true">{SIGNS[line.kind]}</span>
            <span class="text">
              <span class="sr">{NAMES[line.kind]}</span>
              {line.text}
            </span>
          </div>
        ),
      )}
    </div>
  );
}

/** Characters shown before the first difference; the rest opens on demand. */
const BEFORE = 600;
const AFTER = 4_000;

/** Two texts side by side, scrolled to the first differing byte. */
export function ByteDiff({ left, right, leftName, rightName }: { left: string; right: string; leftName: string; rightName: string }) {
  const [isWhole, setWhole] = useState(false);
  const difference = useMemo(() => firstDifference(left, right), [left, right]);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    for (const mark of box.current?.querySelectorAll("mark") ?? []) {
      const pre = mark.parentElement!;
      pre.scrollTop = mark.offsetTop - pre.offsetTop - pre.clientHeight / 3;
    }
  }, [difference, isWhole]);
  if (!difference) return <p class="dim">Both requests are equal: {count(byteLength(left))} bytes.</p>;
  const { index, byte } = difference;
  const from = isWhole ? 0 : Math.max(0, index - BEFORE);
  const column = (name: string, text: string) => (
    <section class="byte-column" aria-label={name}>
      <h4>
        {name} <span class="dim">{plural(byteLength(text), "byte")}</span>
      </h4>
      <pre tabIndex={0}>
        {from > 0 && <span class="dim">{`… ${plural(from, "equal character")}\n`}</span>}
        <span class="shared">{text.slice(from, index)}</span>
        <mark title={`First difference: byte ${count(byte)}`}>{text.slice(index, index + 1) || "∎"}</mark>
        {isWhole ? text.slice(index + 1) : text.slice(index + 1, index + AFTER)}
        {!isWhole && text.length > index + AFTER && <span class="dim">{`\n… ${plural(text.length - index - AFTER, "more character")}`}</span>}
      </pre>
    </section>
  );
  return (
    <>
      <p>
        The requests share their first <strong>{plural(byte, "byte")}</strong> of {count(byteLength(left))} and {count(byteLength(right))}. The first
        difference is marked.{" "}
        <button class="link" onClick={() => setWhole(!isWhole)}>
          {isWhole ? "Show the surroundings" : "Show everything"}
        </button>
      </p>
      <div class="byte-diff" ref={box}>
        {column(leftName, left)}
        {column(rightName, right)}
      </div>
    </>
  );
}
