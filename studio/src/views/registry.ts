// The views of the page. A view is a component that reads its arguments from `route`; the navigation shows those with a label.

import type { ComponentType } from "preact";
import { Run } from "../run/view";
import { lazy } from "../lazy";
import { Runs } from "./runs";
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
  compare: { component: lazy("Compare"), label: "Compare", key: "c" },
  questions: { component: lazy("Questions"), label: "Questions", key: "q" },
  workflows: { component: lazy("Workflows"), item: lazy("Workflow"), label: "Workflows", key: "w" },
  sessions: { component: lazy("Sessions"), item: lazy("Session"), label: "Sessions", key: "s" },
  engine: { component: lazy("Engine"), label: "Engine", key: "e" },
};
