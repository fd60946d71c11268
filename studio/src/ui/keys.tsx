// Keyboard shortcuts. A view registers its own while it is shown; the help lists all that are active.

import { signal } from "../reactive";
import { useEffect } from "preact/hooks";

export interface Key {
  /** As `KeyboardEvent.key`, such as `j`, `ArrowLeft`, `?`. A sequence `g r` is two keys. */
  key: string;
  does: string;
  action: () => void;
}

const active = signal<Key[]>([]);
export const helpOpen = signal(false);

/** The shortcuts are active while the component is shown. */
export function useKeys(keys: Key[], dependencies: unknown[] = []) {
  useEffect(() => {
    active.value = [...active.value, ...keys];
    return () => {
      active.value = active.value.filter((key) => !keys.includes(key));
    };
  }, dependencies);
}

let pending = "";
let pendingAt = 0;

/** Keys that a focused field or control uses itself are not shortcuts. */
function isTaken(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  if (/^(range|checkbox|radio)$/.test((target as HTMLInputElement).type)) return /^( |Arrow|Home|End|Page)/.test(event.key);
  if (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return true;
  if (document.querySelector("dialog[open]") && event.key !== "?") return true;
  return (target.tagName === "BUTTON" || target.tagName === "A" || target.tagName === "SUMMARY") && (event.key === "Enter" || event.key === " ");
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || isTaken(event)) return;
  const both = event.timeStamp - pendingAt < 1000 ? `${pending} ${event.key}` : "";
  const found = active.value.findLast((key) => key.key === both) ?? active.value.findLast((key) => key.key === event.key);
  pending = event.key;
  pendingAt = event.timeStamp;
  if (!found) return;
  event.preventDefault();
  pending = "";
  found.action();
});

const NAMES: { [key: string]: string } = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "Space", Escape: "Esc" };
const shown = (key: string) => (key === " " ? ["Space"] : key.split(" ").map((part) => NAMES[part] ?? part));

export function KeyHelp() {
  if (!helpOpen.value) return null;
  const keys = new Map(active.value.map((key) => [key.key, key]));
  return (
    <Dialog label="Keyboard" onClose={() => (helpOpen.value = false)}>
      <dl class="keys">
        {[...keys.values()].map((key) => (
          <div key={key.key}>
            <dt>
              {shown(key.key).map((part) => (
                <kbd>{part}</kbd>
              ))}
            </dt>
            <dd>{key.does}</dd>
          </div>
        ))}
        <div>
          <dt><kbd>Tab</kbd></dt>
          <dd>Next control; lists and drawings use the arrow keys</dd>
        </div>
      </dl>
    </Dialog>
  );
}

/** A modal dialog; Escape and its button close it. */
export function Dialog(props: { label: string; onClose: () => void; wide?: boolean; children: preact.ComponentChildren }) {
  return (
    <dialog
      class={props.wide ? "wide" : undefined}
      aria-label={props.label}
      ref={(element) => {
        if (element && !element.open) element.showModal();
      }}
      onClose={props.onClose}
      onClick={(event) => event.target === event.currentTarget && props.onClose()}
    >
      <div class="dialog">
        <header>
          <h2>{props.label}</h2>
          <button class="icon" aria-label="Close" onClick={props.onClose}>✕</button>
        </header>
        {props.children}
      </div>
    </dialog>
  );
}
