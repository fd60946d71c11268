// Hash routes: `#/runs/ID/graph?step=3` is the view `runs` with the arguments `ID`, `graph` and the query `step=3`.

import { decoded } from "./data/uri";
import { computed, signal } from "./reactive";

export interface Route {
  view: string;
  args: string[];
  query: URLSearchParams;
}

function parse(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", ...args] = path.split("/").filter(Boolean).map(decoded);
  return { view: view || "runs", args, query: new URLSearchParams(search) };
}

export const route = signal<Route>(parse(location.hash));
/** The part of the route that selects a view, without its query: stable while filters or the cursor change. */
export const routePath = computed(() => [route.value.view, ...route.value.args].join("/"));

/** The address that `route` describes. */
let known = location.hash;

addEventListener("hashchange", () => (route.value = parse((known = location.hash))));

/** The address of a view, for links: `href(["runs", id, "graph"], {step: 3})`. */
export function href(path: (string | number)[], query: { [name: string]: string | number | undefined | null } = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== "") search.set(name, String(value));
  const text = search.toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}

export function go(to: string) {
  location.hash = to;
}

/**
 * Changes parameters of the address without a new entry in the history; `undefined` removes one. Returns false, without a change, while the
 * `hashchange` event of a navigation is pending: the parameters belong to the previous view, and writing them would undo the navigation.
 */
export function setQuery(change: { [name: string]: string | number | undefined | null }): boolean {
  if (location.hash !== known) return false;
  const query = new URLSearchParams(route.value.query);
  for (const [name, value] of Object.entries(change)) {
    if (value === undefined || value === null || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const { view, args } = route.value;
  const to = href([view, ...args], Object.fromEntries(query));
  if (to !== known) {
    history.replaceState(null, "", to);
    known = location.hash;
    route.value = { view, args, query };
  }
  return true;
}
