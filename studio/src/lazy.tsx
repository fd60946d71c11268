// Views and forms that are loaded when they are first needed: they are in a second script, which a first page does not load. The file
// of an exported run does not contain it.

import type { ComponentType } from "preact";
import { isExport, Problem } from "./api";
import { signal } from "./reactive";
import { ProblemBox, toProblem } from "./ui/resource";

type More = typeof import("./more");

/** Address of the script with its version; build.mjs defines it. */
declare const MORE: string;

const more = signal<More | undefined>(undefined);
const problem = signal<Problem | undefined>(undefined);
let isLoading = false;

async function load() {
  isLoading = true;
  try {
    if (isExport) throw new Problem("NOT_EXPORTED", 404, "This file does not contain the view.", "Open the run in the Studio of a service.");
    more.value = (await import(MORE)) as More;
  } catch (error) {
    const known = toProblem(error);
    problem.value = known.status ? known : new Problem("NOT_LOADED", 0, `A part of the page cannot be loaded: ${known.message}`, "Reload the page.");
    isLoading = false;
  }
}

/** A component of `more.ts`, which is loaded when the component is first shown. */
export function lazy<Name extends keyof More>(name: Name): ComponentType<Parameters<More[Name]> extends [infer Props] ? Props : object> {
  return ((props: object) => {
    const Loaded = more.value?.[name] as ComponentType<object> | undefined;
    if (Loaded) return <Loaded {...props} />;
    if (problem.value) return <ProblemBox problem={problem.value} />;
    if (!isLoading) void load();
    return <p class="dim loading">Loading…</p>;
  }) as never;
}
