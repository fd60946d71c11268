// The views of the page. A view is a component that reads its arguments from `route`; the navigation shows those with a label.

import type { ComponentType } from "preact";
import { Run } from "../run/view";
import { Runs } from "./runs";

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
};
