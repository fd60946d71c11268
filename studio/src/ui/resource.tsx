// A value of the API in a component: loading, failed or there.

import { type Signal, signal } from "../reactive";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { get, Problem, tokenVersion } from "../api";

export interface Resource<T> {
  data: Signal<T | undefined>;
  problem: Signal<Problem | undefined>;
  loading: Signal<boolean>;
  reload: () => Promise<void>;
}

/** Loads a path once it is defined, and again when it or the token changes. The old value stays until the new one arrives. */
export function useResource<T>(path: string | undefined): Resource<T> {
  const state = useMemo(() => createResource<T>(), []);
  const token = tokenVersion.value;
  useEffect(() => {
    if (path === undefined) return;
    const controller = new AbortController();
    void state.load(path, controller.signal);
    return () => controller.abort();
  }, [path, token]);
  return state;
}

function createResource<T>() {
  const data = signal<T | undefined>(undefined);
  const problem = signal<Problem | undefined>(undefined);
  const loading = signal(false);
  let current: string | undefined;
  const load = async (path: string, abort?: AbortSignal) => {
    current = path;
    loading.value = true;
    try {
      const value = await get<T>(path, abort);
      if (current !== path) return;
      data.value = value;
      problem.value = undefined;
    } catch (error) {
      if (abort?.aborted || current !== path) return;
      problem.value = toProblem(error);
    } finally {
      if (current === path) loading.value = false;
    }
  };
  return { data, problem, loading, load, reload: () => (current === undefined ? Promise.resolve() : load(current)) };
}

export const toProblem = (error: unknown): Problem => (error instanceof Problem ? error : new Problem("PAGE_ERROR", 0, String((error as Error)?.message ?? error)));

export function ProblemBox({ problem, children }: { problem: Problem; children?: ComponentChildren }) {
  return (
    <div class="problem" role="alert">
      <strong>{problem.code}</strong> {problem.message}
      {problem.pointer && (
        <>
          {" "}
          at <code>{problem.pointer}</code>
        </>
      )}
      {problem.fix && <div class="fix">{problem.fix}</div>}
      {children}
    </div>
  );
}

/** Shows the problem of a resource, a notice while it loads, or its value. */
export function Loaded<T>({ resource, children }: { resource: Resource<T>; children: (value: T) => ComponentChildren }) {
  const value = resource.data.value;
  const problem = resource.problem.value;
  return (
    <>
      {problem && <ProblemBox problem={problem} />}
      {value !== undefined ? children(value) : !problem && <p class="dim loading">Loading…</p>}
    </>
  );
}
