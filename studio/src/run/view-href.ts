// Addresses of the panes of a run.

import { href, route } from "../router";

/** The address of a pane at the present cursor. */
export function paneHref(id: string, pane: string, more: { [name: string]: string } = {}): string {
  const query = new URLSearchParams(route.value.query);
  const kept: { [name: string]: string } = { ...more };
  for (const name of ["step", "event", "node", "thread"]) if (query.get(name)) kept[name] = query.get(name)!;
  return href(["runs", id, pane], kept);
}
