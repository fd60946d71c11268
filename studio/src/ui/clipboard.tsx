// Buttons that copy a text or save it as a file.

import { useState } from "preact/hooks";
import { toProblem } from "./resource";

/** Copies the text; its label reports the result for two seconds. */
export function CopyButton({ label, text }: { label: string; text: () => string | Promise<string> }) {
  const [state, setState] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(await text());
      setState("Copied");
    } catch (error) {
      setState(`Not copied: ${toProblem(error).message}`);
    }
    setTimeout(() => setState(""), 2000);
  };
  return (
    <button onClick={() => void copy()}>
      <span aria-live="polite">{state || label}</span>
    </button>
  );
}

export function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the address after the click has returned.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
