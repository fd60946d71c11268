// The tree of orders of an exploration as rows of a list.

import type { Json } from "../types";

export interface OrderEnd {
  /** Choices of the order, for the API. */
  replay: string;
  /** Index of the outcome, if the order was run to its end. */
  outcome?: number;
  /** Index of the node with an equal state, if the order was abandoned there. */
  sameAs?: number;
}

export interface OrderNode {
  parent?: number;
  thread?: string;
  node?: string;
  kind?: string;
  /** JSON of the answer. */
  answer?: string;
  options?: number;
  end?: OrderEnd;
}

export interface OrderOutcome {
  order: string[];
  replay: string;
  status: string;
  output: Json;
  error?: { code: string; message: string };
}

export interface OrderTree {
  nodes: OrderNode[];
  outcomes: OrderOutcome[];
  schedules: number;
  complete: boolean;
  stopped?: "SCHEDULES" | "STOPPED" | "BYTES";
}

/** Events that follow each other without an alternative, after a choice. */
export interface OrderRow {
  depth: number;
  /** The last node of the row. */
  node: number;
  events: string[];
  end?: OrderEnd;
  /** Number of orders that start with the events up to this row. */
  orders: number;
}

/** Text of an event, as `pirn explore` prints it. */
export function eventText({ thread, node, kind, answer }: OrderNode): string {
  const place = [thread, node].filter(Boolean).join("/");
  return [place, kind === "start" && place ? "" : kind, answer].filter(Boolean).join(" ");
}

/** The rows in depth-first order, and the index of the row of each node. */
export function rowsOf(nodes: OrderNode[]): { rows: OrderRow[]; rowOf: number[] } {
  const children: number[][] = nodes.map(() => []);
  nodes.forEach(({ parent }, at) => parent !== undefined && children[parent]!.push(at));
  const orders = nodes.map(({ end }) => (end ? 1 : 0) as number);
  // A node is listed after its parent.
  for (let at = nodes.length - 1; at > 0; at--) orders[nodes[at]!.parent!]! += orders[at]!;
  const rows: OrderRow[] = [];
  const rowOf: number[] = [];
  const open: [number, number][] = [[0, 0]];
  while (open.length > 0) {
    const [first, depth] = open.pop()!;
    const events: string[] = [];
    let node = first;
    for (;;) {
      rowOf[node] = rows.length;
      if (node > 0) events.push(eventText(nodes[node]!));
      if (children[node]!.length !== 1 || nodes[node]!.end) break;
      node = children[node]![0]!;
    }
    rows.push({ depth, node, events, end: nodes[node]!.end, orders: orders[node]! });
    for (const child of children[node]!.toReversed()) open.push([child, depth + 1]);
  }
  return { rows, rowOf };
}

/** The events from the start of the run to a node. */
export function eventsTo(nodes: OrderNode[], node: number): string[] {
  const events: string[] = [];
  for (let at: number | undefined = node; at; at = nodes[at]!.parent) events.unshift(eventText(nodes[at]!));
  return events;
}

/** A, B, ..., Z, AA, AB, ... */
export function letterOf(outcome: number): string {
  const rest = Math.floor(outcome / 26);
  return (rest > 0 ? letterOf(rest - 1) : "") + String.fromCharCode(65 + (outcome % 26));
}
