// Changes of all runs: one stream for the whole page, which the views read while they are shown.

import { parse } from "../data/json";
import { useEffect } from "preact/hooks";
import { isExport, stream } from "../api";
import type { RunItem } from "../types";
import type { Resource } from "./resource";

type Listener = (changed: RunItem[]) => void;

/** Milliseconds between two requests of a service without the stream. */
const POLL = 3000;
const listeners = new Set<Listener>();
let controller: AbortController | undefined;

/** Calls the listener with each run that has changed; with an empty list if any run may have. Returns a function that ends this. */
export function onChanges(listener: Listener): () => void {
  listeners.add(listener);
  if (!controller && !isExport) follow((controller = new AbortController()).signal);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    controller?.abort();
    controller = undefined;
  };
}

function follow(signal: AbortSignal) {
  const tell = (changed: RunItem[]) => listeners.forEach((listener) => listener(changed));
  void stream("/status", {
    signal,
    onEvents: (events) => {
      const changed = events.filter((sent) => sent.event === "run").map((sent) => parse(sent.data) as RunItem);
      if (changed.length > 0 || events.some((sent) => sent.event === "reset")) tell(changed);
    },
    onEnd: () => {
      const poll = setInterval(() => tell([]), POLL);
      signal.addEventListener("abort", () => clearInterval(poll));
    },
  });
}

/** Loads a resource again after changes of runs that concern it, at most once in `ms` milliseconds. */
export function useChanges<T>(resource: Resource<T>, ms = 300, concerns: (run: RunItem) => boolean = () => true): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onChanges((changed) => {
      if (changed.length > 0 && !changed.some(concerns)) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        void resource.reload();
      }, ms);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [resource]);
}
