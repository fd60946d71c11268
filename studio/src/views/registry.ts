// The views of the page. A view is a component that reads its arguments from `route`; the navigation shows those with a label.

import type { ComponentType } from "preact";
import { Run } from "../run/view";
import { Compare } from "./compare";
import { Engine } from "./engine";
import { Questions } from "./questions";
import { Runs } from "./runs";
import { Session, Sessions } from "./sessions";
import { Workflow, Workflows } from "./workflows";
import "./views.css";

export interface View {
  /** Shows `#/name`, and `#/name/ARGUMENT` unless there is `item`. */
  component: ComponentType;
  /** Shows `#/name/ARGUMENT`. */
  item?: ComponentType;
  /** Text in the navigation. */
  label?: string;
  /** Key after `g`. */
  key?: string;
}

export const views: { [name: string]: View } = {
  runs: { component: Runs, item: Run, label: "Runs", key: "r" },
  compare: { component: Compare, label: "Compare", key: "c" },
  questions: { component: Questions, label: "Questions", key: "q" },
  workflows: { component: Workflows, item: Workflow, label: "Workflows", key: "w" },
  sessions: { component: Sessions, item: Session, label: "Sessions", key: "s" },
  engine: { component: Engine, label: "Engine", key: "e" },
};
