// The graph of a run: the drawing of each workflow that took part, with what happened up to the cursor.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { DrawingEdge, DrawingNode } from "../../types";
import { duration, plural } from "../../ui/text/format";
import { useKeys } from "../../ui/keys";
import { look } from "../../ui/status";
import { useSize, useWheel } from "../../ui/surface";
import { widthOf } from "../../ui/text/text-width";
import { joinShort } from "../model/digest";
import { statusAt, type Thread, workflowName } from "../model/model";
import { Details } from "./node-details";
import { forkOf, joinOf, type NodeState, nodeState, rootOf, threshold, transitions } from "../model/node-state";
import type { OpenRun } from "../model/open";
import "./graph.css";
import { layOut, type Layout, type Link, rootCounts, type Sheet, TITLE } from "./sheets";

interface View {
  x: number;
  y: number;
  k: number;
}

const MIN = 0.08;
const MAX = 3;
const MANY = 400;

export function Graph({ run }: { run: OpenRun }) {
  const version = run.version.value;
  const drawings = run.drawings.value;
  const threads = run.threads.value;
  const layout = useMemo(() => (drawings ? layOut(run.model, drawings) : undefined), [version, drawings, threads]);
  const taken = useMemo(() => transitions(run.model), [version]);
  if (!layout || layout.sheets.length === 0)
    return <p class="empty">{drawings === undefined ? "Loading the drawing…" : "The service has no drawing of the run's workflow."}</p>;
  return (
    <div class="graph">
      <Canvas run={run} layout={layout} taken={taken} />
      <Details run={run} />
    </div>
  );
}

function Canvas({ run, layout, taken }: { run: OpenRun; layout: Layout; taken: Map<string, number> }) {
  const box = useRef<SVGSVGElement>(null);
  const size = useSize(box);
  const [view, setView] = useState<View | undefined>(undefined);
  const drag = useRef<{ x: number; y: number; from: View; moved: boolean } | undefined>(undefined);
  const { cursor, model } = run;
  const sequence = cursor.position.value;
  const selected = cursor.node.value;
  const workflow = cursor.workflowShown();

  const fit = (all: boolean): View => {
    const whole = Math.min(1, (size.width - 40) / layout.width, (size.height - 40) / layout.height);
    const own = layout.sheets[0]!.drawing;
    const first = own.nodes[0]!;
    // Small text cannot be read: a large drawing starts at its first node, and "Fit" shows all of it.
    const k = all || whole > 0.6 ? Math.max(MIN, whole) : Math.max(0.6, Math.min(1, (size.width - 40) / own.width));
    const isNarrow = layout.width * k < size.width;
    return {
      k,
      x: all || isNarrow ? Math.max(20, (size.width - layout.width * k) / 2) : Math.min(20, size.width / 2 - (first.x + first.width / 2) * k),
      y: Math.max(20, (size.height - layout.height * k) / 2),
    };
  };
  const shown = view ?? fit(false);
  const zoom = (factor: number, x = size.width / 2, y = size.height / 2) => {
    const k = Math.min(MAX, Math.max(MIN, shown.k * factor));
    setView({ k, x: x - ((x - shown.x) * k) / shown.k, y: y - ((y - shown.y) * k) / shown.k });
  };

  // The selected node comes into view when another pane or the keyboard selects it.
  useEffect(() => {
    const sheet = layout.sheets.find((one) => one.workflow === workflow);
    const node = sheet?.drawing.nodes.find((one) => one.id === selected);
    if (!sheet || !node) return;
    const x = shown.x + (sheet.x + node.x + node.width / 2) * shown.k;
    const y = shown.y + (sheet.y + TITLE + node.y + node.height / 2) * shown.k;
    if (x < 30 || y < 30 || x > size.width - 30 || y > size.height - 30)
      setView({ k: shown.k, x: shown.x + size.width / 2 - x, y: shown.y + size.height / 2 - y });
  }, [selected, workflow]);

  useKeys(
    [
      { key: "+", does: "Zoom in", action: () => zoom(1.25) },
      { key: "-", does: "Zoom out", action: () => zoom(0.8) },
      { key: "0", does: "Fit the graph", action: () => setView(fit(true)) },
    ],
    [shown.k, shown.x, shown.y, size.width, size.height, layout],
  );

  useWheel(box, (event, x, y) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 200), x, y);
    else setView({ ...shown, x: shown.x - (event.shiftKey ? event.deltaY : event.deltaX), y: shown.y - (event.shiftKey ? 0 : event.deltaY) });
  });

  const down = (event: PointerEvent) => {
    if (event.button === 0) drag.current = { x: event.clientX, y: event.clientY, from: shown, moved: false };
  };
  const move = (event: PointerEvent) => {
    const at = drag.current;
    if (!at) return;
    const dx = event.clientX - at.x;
    const dy = event.clientY - at.y;
    if (!at.moved && Math.hypot(dx, dy) < 4) return;
    if (!at.moved) box.current!.setPointerCapture(event.pointerId);
    at.moved = true;
    setView({ ...at.from, x: at.from.x + dx, y: at.from.y + dy });
  };
  const up = () => {
    const moved = drag.current?.moved;
    drag.current = undefined;
    // The click after a drag selects nothing.
    if (moved) addEventListener("click", (event) => event.stopPropagation(), { capture: true, once: true });
  };

  const key = (event: KeyboardEvent) => {
    const direction = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as { [key: string]: [number, number] })[event.key];
    if (!direction || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const next = neighbour(layout, workflow, selected, direction);
    if (!next) return;
    cursor.select(next.node.id, undefined, next.sheet.workflow);
    requestAnimationFrame(() => box.current?.querySelector<SVGElement>("[tabindex='0']")?.focus());
  };

  const culled = layout.sheets.reduce((sum, sheet) => sum + sheet.drawing.nodes.length, 0) > MANY;
  const visible = culled
    ? { left: -shown.x / shown.k - 100, top: -shown.y / shown.k - 100, right: (size.width - shown.x) / shown.k + 100, bottom: (size.height - shown.y) / shown.k + 100 }
    : undefined;
  const focusable = layout.sheets.some((sheet) => sheet.workflow === workflow && sheet.drawing.nodes.some((node) => node.id === selected));
  return (
    <div class="canvas">
      <svg
        ref={box}
        role="group"
        aria-label={`Graph of ${model.workflow}; arrow keys select nodes`}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={up}
        onKeyDown={key}
      >
        <defs>
          <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="2" height="6" class="hatch" />
          </pattern>
          {["arrow", "arrow-taken", "arrow-bad"].map((id) => (
            <marker key={id} id={id} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path d="M0 0.5 8 4 0 7.5z" class={id} />
            </marker>
          ))}
        </defs>
        <g transform={`translate(${shown.x} ${shown.y}) scale(${shown.k})`}>
          {layout.sheets.map((sheet) => (
            <rect key={sheet.workflow} class="sheet" x={sheet.x - 10} y={sheet.y} width={sheet.drawing.width + 20} height={sheet.drawing.height + TITLE + 8} rx={8} />
          ))}
          {layout.links.map((link) => (link.start <= sequence ? <Connection key={`${link.from.workflow}/${link.node.id}/${link.to.workflow}`} link={link} sequence={sequence} /> : null))}
          {layout.sheets.map((sheet, i) => (
            <SheetDrawing key={sheet.workflow} run={run} sheet={sheet} sequence={sequence} taken={taken} isFirst={i === 0} focusFirst={!focusable && i === 0} visible={visible} selected={sheet.workflow === workflow ? selected : undefined} />
          ))}
        </g>
      </svg>
      <div class="zoom">
        <button class="icon" aria-label="Zoom in" title="Zoom in (+)" onClick={() => zoom(1.25)}>+</button>
        <button class="icon" aria-label="Zoom out" title="Zoom out (-)" onClick={() => zoom(0.8)}>−</button>
        <button title="Fit the graph (0)" onClick={() => setView(fit(true))}>Fit</button>
      </div>
    </div>
  );
}

/** The nearest node in a direction; the first one if none is selected. */
function neighbour(layout: Layout, workflow: string, selected: string | undefined, [dx, dy]: [number, number]) {
  const all = layout.sheets.flatMap((sheet) =>
    sheet.drawing.nodes.filter(isNode).map((node) => ({ sheet, node, x: sheet.x + node.x + node.width / 2, y: sheet.y + node.y + node.height / 2 })),
  );
  const from = all.find((one) => one.sheet.workflow === workflow && one.node.id === selected);
  if (!from) return all[0];
  let best: (typeof all)[number] | undefined;
  let least = Infinity;
  for (const one of all) {
    const along = (one.x - from.x) * dx + (one.y - from.y) * dy;
    if (one === from || along < 4) continue;
    const distance = along + 2.5 * Math.abs((one.x - from.x) * dy + (one.y - from.y) * dx);
    if (distance < least) [best, least] = [one, distance];
  }
  return best;
}

const isNode = (node: DrawingNode): boolean => node.type !== "TRIGGER" && node.type !== "WORKFLOW";

interface SheetProps {
  run: OpenRun;
  sheet: Sheet;
  sequence: number;
  taken: Map<string, number>;
  isFirst: boolean;
  focusFirst: boolean;
  visible?: { left: number; top: number; right: number; bottom: number };
  selected?: string;
}

function SheetDrawing({ run, sheet, sequence, taken, isFirst, focusFirst, visible, selected }: SheetProps) {
  const { model, cursor } = run;
  const { drawing } = sheet;
  const chosen = model.threads.get(cursor.thread.value ?? "");
  const root = chosen && sheet.roots.length > 1 && chosen.workflow === sheet.workflow ? rootOf(model, chosen).id : undefined;
  const counts = rootCounts(sheet, sequence);
  const total = Object.values(counts).reduce((a, b) => a + b, 0);
  const workflow = workflowName(sheet.workflow);
  const title = root !== undefined ? `${workflow}, ${chosen?.name ?? root}` : workflow;
  const inView = ({ x, y, width, height }: Area) =>
    !visible || (sheet.x + x + width > visible.left && sheet.x + x < visible.right && sheet.y + TITLE + y + height > visible.top && sheet.y + TITLE + y < visible.bottom);
  return (
    <g transform={`translate(${sheet.x} ${sheet.y})`}>
      <text class="sheet-title" x={4} y={22}>
        {title}
        {(total > 1 || !isFirst) && <tspan class="sheet-count" dx={10}>{total > 1 ? `${total} runs: ${countText(counts)}` : countText(counts)}</tspan>}
      </text>
      <g transform={`translate(0 ${TITLE})`}>
        {drawing.lanes.map((lane) =>
          inView(lane) ? <Lane key={`${lane.fork}/${lane.pathId}`} run={run} sheet={sheet} lane={lane} sequence={sequence} root={root} /> : null,
        )}
        {drawing.edges.map((edge, i) => {
          const [from, to] = [edge.points[0]!, edge.points.at(-1)!];
          const [x, y] = [Math.min(from[0], to[0]), Math.min(from[1], to[1])];
          if (!inView({ x, y, width: Math.abs(from[0] - to[0]), height: Math.abs(from[1] - to[1]) })) return null;
          const first = taken.get(`${sheet.workflow}\n${edge.from}\n${edge.to}`);
          return <Edge key={i} edge={edge} taken={first !== undefined && first <= sequence} />;
        })}
        {drawing.nodes.map((node, i) =>
          inView(node) ? (
            <Box key={node.id} run={run} workflow={sheet.workflow} node={node} sequence={sequence} root={root} selected={node.id === selected} focusable={node.id === selected || (focusFirst && i === 0)} />
          ) : null,
        )}
      </g>
    </g>
  );
}

const countText = (counts: { [status: string]: number }): string =>
  Object.entries(counts)
    .map(([status, n]) => `${n} ${look(status).symbol}`)
    .join("  ");

function Edge({ edge, taken }: { edge: DrawingEdge; taken: boolean }) {
  const label = edge.label;
  return (
    <g class={`edge ${edge.kind} ${taken ? "taken" : ""}`}>
      <path d={`M${edge.points.join("L")}`} marker-end={`url(#${taken ? (edge.kind === "error" ? "arrow-bad" : "arrow-taken") : "arrow"})`} />
      {label && (label.lines ?? [{ text: label.text, x: label.x, y: label.y + label.height - 4 }]).map((line, i) => <Text key={i} line={line} />)}
      {label?.text && <title>{label.text}</title>}
    </g>
  );
}

interface Area {
  x: number;
  y: number;
  width: number;
  height: number;
}

const Rect = ({ of, name, by = 0 }: { of: Area; name?: string; by?: number }) => <rect class={name} x={of.x + by} y={of.y + by} width={of.width} height={of.height} rx={6} />;

function Text({ line, className }: { line: { text: string; x: number; y: number; width?: number; bold?: boolean }; className?: string }) {
  return (
    <text x={line.x} y={line.y} textLength={line.width} lengthAdjust={line.width === undefined ? undefined : "spacingAndGlyphs"} class={`${line.bold ? "bold" : ""} ${className ?? ""}`}>
      {line.text}
    </text>
  );
}

function Lane({ run, sheet, lane, sequence, root }: { run: OpenRun; sheet: Sheet; lane: Sheet["drawing"]["lanes"][number]; sequence: number; root?: string }) {
  const { model } = run;
  const forks = model.forks.filter(
    (fork) => fork.node === lane.fork && fork.start <= sequence && model.threads.get(fork.thread)?.workflow === sheet.workflow && (root === undefined || rootOf(model, model.threads.get(fork.thread)!).id === root),
  );
  const fork = forks.at(-1);
  const branch = fork?.branches.find((thread) => thread.path === lane.pathId && thread.start <= sequence);
  const status = branch ? statusAt(branch, sequence) : undefined;
  const { tone, symbol, word } = look(status);
  const ended = branch && status !== "RUNNING";
  const text = lane.lines?.[0] ?? { text: lane.label, x: lane.x + 8, y: lane.y + 15 };
  const state = !branch ? "" : status === "CANCELLED" ? `${symbol} ${word} +${duration(branch.endAt! - model.startAt)}` : ended ? `${symbol} ${duration(branch.endAt! - branch.startAt)}` : `${symbol} ${word}`;
  return (
    <g class={`lane ${tone} ${status === "CANCELLED" ? "cancelled" : ""}`}>
      <Rect of={lane} />
      {status === "CANCELLED" && <Rect of={lane} name="stripes" />}
      <Text line={text} className="lane-label" />
      {state && (
        <text class="lane-state" x={lane.x + lane.width - 8} y={lane.y + lane.height - 7} text-anchor="end">
          {state}
        </text>
      )}
    </g>
  );
}

function Connection({ link, sequence }: { link: Link; sequence: number }) {
  const { from, node, to } = link;
  const x1 = from.x + node.x + node.width;
  const y1 = from.y + TITLE + node.y + node.height / 2;
  const x2 = to.x - 10;
  const y2 = to.y + 17;
  const bend = Math.max(40, (x2 - x1) / 2);
  const n = link.threads.filter((thread) => thread.start <= sequence).length;
  return (
    <g class={`link ${link.dashed ? "dashed" : ""}`}>
      <path d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`} marker-end="url(#arrow-taken)" />
      {[...link.label, n > 1 ? `×${n}` : ""].map((line, i, lines) => (
        <text key={line} x={x2 - 8} y={y2 - 6 - 14 * (lines.length - 1 - i)} text-anchor="end">
          {line}
        </text>
      ))}
      <title>{link.label.join(" ") || `calls ${workflowName(to.workflow)}`}</title>
    </g>
  );
}

interface BoxProps {
  run: OpenRun;
  workflow: string;
  node: DrawingNode;
  sequence: number;
  root?: string;
  selected: boolean;
  focusable: boolean;
}

function Box({ run, workflow, node, sequence, root, selected, focusable }: BoxProps) {
  const { cursor } = run;
  if (!isNode(node))
    return (
      <g class="node outer">
        <Rect of={node} />
        {node.lines.map((line, i) => <Text key={i} line={line} />)}
        <title>{node.title ?? node.id}</title>
      </g>
    );
  const state = nodeState(run.model, workflow, node.id, sequence, root);
  const { tone, symbol, word } = look(state.status);
  const items = itemsOf(run, state, sequence);
  const isStack = items !== undefined || state.isShared;
  const note = noteOf(run, workflow, state, items, sequence);
  const select = () => cursor.select(node.id, root === undefined ? (isStack ? undefined : state.entries.at(-1)?.thread) : cursor.thread.value, workflow);
  // The name starts with the visible text, as speech input needs it.
  const about = [`${node.lines.map((line) => line.text).join(" ")} ${note}`, word].join(", ");
  return (
    <g
      class={`node ${tone} ${state.status === "PENDING" ? "pending" : ""} ${selected ? "selected" : ""}`}
      role="button"
      tabindex={focusable ? 0 : -1}
      aria-pressed={selected}
      aria-label={about}
      data-node={node.id}
      onClick={select}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        select();
      }}
    >
      {isStack && <Rect of={node} name="behind" by={7} />}
      {isStack && <Rect of={node} name="behind" by={3.5} />}
      <Rect of={node} name="box" />
      <g>{node.lines.map((line) => [<Text line={line} />, " "])}</g>
      {state.status !== "PENDING" && (
        <g class="badge" aria-hidden="true">
          <circle cx={node.x} cy={node.y} r={9} />
          <text x={node.x} y={node.y + 4} text-anchor="middle">{symbol}</text>
        </g>
      )}
      {" "}
      {note && (
        <g class="note" aria-hidden="true">
          <rect x={node.x + node.width - widthOf(note) - 10} y={node.y + node.height - 7} width={widthOf(note) + 14} height={17} rx={8.5} />
          <text x={node.x + node.width - widthOf(note) - 3} y={node.y + node.height + 5.5}>{note}</text>
        </g>
      )}
      {node.title && <title aria-hidden="true">{node.title}</title>}
    </g>
  );
}

/** The started items of a MAP. */
function itemsOf(run: OpenRun, state: NodeState, sequence: number): Thread[] | undefined {
  const last = state.entries.at(-1);
  if (last?.type !== "MAP") return undefined;
  return forkOf(run.model, last)?.branches.filter((thread) => thread.start <= sequence) ?? [];
}

function noteOf(run: OpenRun, workflow: string, state: NodeState, items: Thread[] | undefined, sequence: number): string {
  const last = state.entries.at(-1);
  if (!last) return "";
  const parts: string[] = [];
  if (items) {
    const counts: { [status: string]: number } = {};
    for (const item of items) counts[statusAt(item, sequence)] = (counts[statusAt(item, sequence)] ?? 0) + 1;
    parts.push(`${plural(items.length, "item")}: ${countText(counts)}`);
  } else if (last.type === "JOIN" && !state.isShared) {
    const join = joinOf(run.model, last);
    if (join) parts.push(joinShort(join, sequence, threshold(run.definitions.value, join, workflow)));
  } else if (state.isShared && state.counts) parts.push(countText(state.counts));
  else if (state.note) parts.push(state.note);
  else if (state.entries.length > 1) parts.push(`×${state.entries.length}`);
  if (state.retries > 0) parts.push(`↻ ${state.retries}`);
  return parts.join("  ");
}
