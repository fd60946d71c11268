// The panes of a run, in the order of their tabs.

import type { ComponentType } from "preact";
import { Conversation } from "./conversation/conversation";
import { Events } from "./events";
import { Graph } from "./graph/graph";
import type { OpenRun } from "./model/open";
import { Timeline } from "./timeline/timeline";
import "./panes.css";
import { Requests } from "./conversation/request";
import { State } from "./state";

export interface Pane {
  name: string;
  label: string;
  component: ComponentType<{ run: OpenRun }>;
}

export const panes: Pane[] = [
  { name: "graph", label: "Graph", component: Graph },
  { name: "timeline", label: "Timeline", component: Timeline },
  { name: "conversation", label: "Conversation", component: Conversation },
  { name: "request", label: "Requests", component: Requests },
  { name: "state", label: "State", component: State },
  { name: "events", label: "Events", component: Events },
];
