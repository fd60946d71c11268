// The panes of a run, in the order of their tabs.

import type { ComponentType } from "preact";
import { Events } from "./events";
import { Graph } from "./graph";
import type { OpenRun } from "./open";
import { Timeline } from "./timeline";

export interface Pane {
  name: string;
  label: string;
  component: ComponentType<{ run: OpenRun }>;
}

export const panes: Pane[] = [
  { name: "graph", label: "Graph", component: Graph },
  { name: "timeline", label: "Timeline", component: Timeline },
  { name: "events", label: "Events", component: Events },
];
