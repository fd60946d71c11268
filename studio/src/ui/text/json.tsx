// A JSON value as a tree of lines that open and close. Strings are text nodes, never HTML.

import { useState } from "preact/hooks";
import { isExact } from "../../data/json";
import { brief, plural } from "./format";

const FIRST = 100;

export function JsonTree({ value, name, open = true, depth = 0 }: { value: unknown; name?: string; open?: boolean; depth?: number }) {
  const [isOpen, setOpen] = useState(open && depth < 3);
  const [shown, setShown] = useState(FIRST);
  const label = name === undefined ? null : <span class="json-key">{name}: </span>;
  if (value === null || typeof value !== "object" || isExact(value)) {
    return (
      <div class="json-line">
        {label}
        <span class={`json-${value === null ? "null" : isExact(value) ? "number" : typeof value}`}>{typeof value === "string" ? value : String(value)}</span>
      </div>
    );
  }
  const entries = Array.isArray(value) ? value.map((item, i) => [String(i), item] as const) : Object.entries(value);
  if (entries.length === 0) return <div class="json-line">{label}{Array.isArray(value) ? "[]" : "{}"}</div>;
  return (
    <div class="json-node">
      <button class="json-toggle" aria-label={name === undefined && isOpen && !Array.isArray(value) ? "Value" : undefined} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span class="twist" aria-hidden="true">{isOpen ? "▾" : "▸"}</span>
        {label}
        <span class="dim">{isOpen ? (Array.isArray(value) ? plural(entries.length, "item") : "") : brief(value as never, 80)}</span>
      </button>
      {isOpen && (
        <div class="json-children">
          {entries.slice(0, shown).map(([key, item]) => (
            <JsonTree key={key} name={key} value={item} depth={depth + 1} open={open} />
          ))}
          {entries.length > shown && (
            <button class="link" onClick={() => setShown(shown + 1000)}>
              {plural(entries.length - shown, "more item")}
            </button>
          )}
        </div>
      )}
    </div>
  );
}
