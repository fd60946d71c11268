// Positions of the drawings of all workflows that took part in a run: the run's own first, a called or triggered one to the right of the
// node that started it.

import type { Drawing, DrawingNode } from "../../types";
import { widthOf } from "../../ui/text/text-width";
import { type RunModel, statusAt, type Thread } from "../model/model";
import { rootOf } from "../model/node-state";

export interface Sheet {
  workflow: string;
  drawing: Drawing;
  x: number;
  y: number;
  /** Threads that execute the workflow, branches excluded, in the order of their start. */
  roots: Thread[];
}

/** A call or a firing that started a sheet's workflow at a node of another sheet. */
export interface Link {
  from: Sheet;
  node: DrawingNode;
  to: Sheet;
  dashed: boolean;
  /** Lines of text: the event and the trigger that it fired. */
  label: string[];
  start: number;
  threads: Thread[];
}

export interface Layout {
  sheets: Sheet[];
  links: Link[];
  width: number;
  height: number;
}

const GAP = 130;
export const TITLE = 34;
const MARGIN = 24;

export function layOut(model: RunModel, drawings: { [workflow: string]: Drawing }): Layout {
  const sheets = new Map<string, Sheet>();
  const links = new Map<string, Link>();
  const columns: { depth: number; nextY: number }[] = [];
  const depths = new Map<string, number>();
  const firings = new Map(model.firings.map((firing) => [firing.child, firing]));
  for (const thread of model.threadList) {
    if (rootOf(model, thread) !== thread) continue;
    const drawing = drawings[thread.workflow];
    if (!drawing) continue;
    const parent = thread.parent === undefined ? undefined : model.threads.get(thread.parent);
    const from = parent && sheets.get(parent.workflow);
    const firing = firings.get(thread.id);
    const nodeId = firing ? firing.atNode : thread.startedBy;
    const node = from?.drawing.nodes.find((one) => one.id === nodeId);
    let sheet = sheets.get(thread.workflow);
    if (!sheet) {
      const depth = from ? depths.get(from.workflow)! + 1 : 0;
      const column = (columns[depth] ??= { depth, nextY: 0 });
      const wanted = from && node ? from.y + node.y - 40 : 0;
      const y = Math.max(column.nextY, wanted);
      column.nextY = y + drawing.height + TITLE + MARGIN * 2;
      sheet = { workflow: thread.workflow, drawing, x: 0, y, roots: [] };
      sheets.set(thread.workflow, sheet);
      depths.set(thread.workflow, depth);
    }
    sheet.roots.push(thread);
    if (!from || !node || from === sheet) continue;
    const key = `${from.workflow}/${node.id}/${thread.workflow}`;
    const link = links.get(key);
    if (link) link.threads.push(thread);
    else {
      const label = firing ? [firing.event?.type ?? "trigger", firing.trigger] : [];
      links.set(key, { from, node, to: sheet, dashed: firing !== undefined, label, start: firing?.start ?? thread.start, threads: [thread] });
    }
  }
  const list = [...sheets.values()];
  let x = 0;
  for (let depth = 0; depth < columns.length; depth++) {
    const inColumn = list.filter((sheet) => depths.get(sheet.workflow) === depth);
    for (const sheet of inColumn) sheet.x = x;
    const labels = [...links.values()].filter((link) => depths.get(link.to.workflow) === depth + 1).flatMap((link) => link.label.map(widthOf));
    x += Math.max(0, ...inColumn.map((sheet) => sheet.drawing.width)) + Math.max(GAP, ...labels.map((width) => width + 50));
  }
  return {
    sheets: list,
    links: [...links.values()],
    width: Math.max(1, ...list.map((sheet) => sheet.x + sheet.drawing.width)),
    height: Math.max(1, ...list.map((sheet) => sheet.y + sheet.drawing.height + TITLE)),
  };
}

/** How many threads of a workflow have each status at a sequence. */
export function rootCounts(sheet: Sheet, sequence: number): { [status: string]: number } {
  const counts: { [status: string]: number } = {};
  for (const root of sheet.roots) {
    if (root.start > sequence) continue;
    const status = statusAt(root, sequence);
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}
