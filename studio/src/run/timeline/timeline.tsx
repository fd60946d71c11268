// The timeline of a run: threads as lanes in their tree, nodes as bars, calls below them; ranges zoom, the ruler scrubs.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { duration } from "../../ui/text/format";
import { useKeys } from "../../ui/keys";
import { useNow } from "../../ui/now";
import { useSize, useWheel } from "../../ui/surface";
import type { OpenRun } from "../model/open";
import { TimeScale } from "./time-scale";
import "./timeline.css";
import { colours, describe, draw, type Frame, type Hit, ROW, RULER, timeOf, treeOrder } from "./timeline-draw";

const LEGEND = [
  ["model", "model call"],
  ["first", "first token"],
  ["tool", "tool call"],
  ["wait", "wait"],
  ["bracket", "compression or trigger"],
  ["join", "join decision"],
  ["tick", "event"],
  ["said", "message of a person"],
  ["collapse", "cache collapsed"],
] as const;

export function Timeline({ run }: { run: OpenRun }) {
  const version = run.version.value;
  const { model, cursor } = run;
  const live = cursor.sequence.value === undefined;
  const clock = useNow(!run.ended.value);
  const end = run.ended.value ? model.lastAt : Math.max(model.lastAt, clock);
  const [fold, setFold] = useState(true);
  const [range, setRange] = useState<[number, number] | undefined>(undefined);
  const threads = run.threads.value;
  const rows = useMemo(() => treeOrder(model), [version, threads]);
  const rowOf = useMemo(() => new Map(rows.map((thread, i) => [thread.id, i])), [rows]);
  const scale = useMemo(() => new TimeScale(model, end, fold), [version, end, fold]);
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const hits = useRef<Hit[]>([]);
  const size = useSize(box);
  const [top, setTop] = useState(0);
  const [hover, setHover] = useState<{ x: number; y: number; hit?: Hit } | undefined>(undefined);
  const [select, setSelect] = useState<[number, number] | undefined>(undefined);
  const drag = useRef<{ x: number; scrub: boolean } | undefined>(undefined);

  const full: [number, number] = [0, scale.length * 1.02];
  const [from, to] = range ?? full;
  const sequence = cursor.position.value;
  const frame: Frame = {
    model,
    rows,
    rowOf,
    scale,
    from,
    to,
    top,
    width: size.width,
    height: size.height,
    gutter: size.width < 600 ? 116 : 190,
    sequence,
    now: live ? end : Math.min(end, model.timeAt(sequence)),
    node: cursor.node.value,
    thread: cursor.thread.value,
    hover: hover?.x,
    select,
  };

  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => setHover(undefined);
    dark.addEventListener("change", redraw);
    return () => dark.removeEventListener("change", redraw);
  }, []);

  useLayoutEffect(() => {
    const element = canvas.current!;
    const ratio = devicePixelRatio || 1;
    if (element.width !== Math.round(size.width * ratio) || element.height !== Math.round(size.height * ratio)) {
      element.width = Math.round(size.width * ratio);
      element.height = Math.round(size.height * ratio);
    }
    const pen = element.getContext("2d")!;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    hits.current = draw(pen, frame, colours(element));
  });

  // The selected thread comes into view.
  useEffect(() => {
    const row = rowOf.get(cursor.thread.value ?? "");
    const element = box.current!;
    if (row === undefined) return;
    const y = row * ROW;
    if (y < element.scrollTop || y + ROW > element.scrollTop + element.clientHeight - RULER) element.scrollTop = Math.max(0, y - element.clientHeight / 2);
  }, [cursor.thread.value]);

  const zoom = (factor: number, x?: number) => {
    const span = Math.min(full[1], Math.max(2, (to - from) * factor));
    const share = x === undefined ? 0.5 : Math.min(1, Math.max(0, (x - frame.gutter) / (size.width - frame.gutter)));
    const middle = x === undefined ? scale.at(model.timeAt(sequence)) : from + (to - from) * share;
    const start = Math.min(full[1] - span, Math.max(0, middle - span * share));
    setRange(span >= full[1] ? undefined : [start, start + span]);
  };
  const pan = (share: number) => {
    if (!range) return;
    const by = Math.min(full[1] - to, Math.max(-from, (to - from) * share));
    setRange([from + by, to + by]);
  };
  useWheel(box, (event, x) => {
    const across = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!event.ctrlKey && !event.metaKey && !across) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 200), x);
    else pan((event.deltaX || event.deltaY) / size.width);
  });

  const place = (event: PointerEvent) => {
    const area = box.current!.getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  };
  const moveTo = (x: number) => {
    const time = timeOf(frame, x);
    cursor.move({ sequence: time >= model.lastAt ? undefined : model.sequenceAt(time) });
  };
  const hitAt = (x: number, y: number) => hits.current.findLast((hit) => x >= hit.x - 1 && x <= hit.x + hit.width + 1 && y >= hit.y && y <= hit.y + hit.height);
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const { x, y } = place(event);
    if (x < frame.gutter) return;
    const scrub = y < RULER;
    drag.current = { x, scrub };
    canvas.current!.setPointerCapture(event.pointerId);
    if (scrub) moveTo(x);
  };
  const move = (event: PointerEvent) => {
    const { x, y } = place(event);
    const at = drag.current;
    setHover({ x, y, hit: hitAt(x, y) });
    if (at?.scrub) moveTo(x);
    else if (at && (select || Math.abs(x - at.x) > 5)) setSelect([at.x, x]);
  };
  const up = (event: PointerEvent) => {
    const { x, y } = place(event);
    const at = drag.current;
    drag.current = undefined;
    if (select) {
      const [a, b] = [Math.min(...select), Math.max(...select)].map((one) => from + ((Math.max(frame.gutter, one) - frame.gutter) / (size.width - frame.gutter)) * (to - from)) as [number, number];
      setSelect(undefined);
      if (b - a > 1) setRange([a, b]);
      return;
    }
    if (at?.scrub || event.type === "pointercancel") return;
    const row = rows[Math.floor((y - RULER + top) / ROW)];
    const hit = hitAt(x, y);
    if (hit) {
      if (hit.event) return cursor.move({ sequence: hit.event.sequence, thread: hit.thread.id });
      const item = hit.call ?? hit.visit!;
      const clicked = model.sequenceAt(timeOf(frame, x));
      cursor.move({ sequence: Math.max(item.start, Math.min(clicked, item.end ?? clicked)), node: hit.visit?.node, thread: hit.thread.id });
    } else if (row && x < frame.gutter) cursor.select(undefined, row.id);
    else if (row) moveTo(x);
  };

  const byThread = (delta: number) => {
    const now = rowOf.get(cursor.thread.value ?? "");
    const next = rows[now === undefined ? 0 : Math.min(rows.length - 1, Math.max(0, now + delta))];
    if (next) cursor.select(undefined, next.id);
  };
  useKeys(
    [
      { key: "ArrowUp", does: "Thread above", action: () => byThread(-1) },
      { key: "ArrowDown", does: "Thread below", action: () => byThread(1) },
      { key: "+", does: "Zoom in at the cursor", action: () => zoom(0.5) },
      { key: "-", does: "Zoom out", action: () => zoom(2) },
      { key: "0", does: "Show the whole run", action: () => setRange(undefined) },
      { key: "f", does: "Fold or show idle time", action: () => setFold(!fold) },
    ],
    [rows, rowOf, from, to, scale, fold, sequence],
  );

  const selected = model.threads.get(cursor.thread.value ?? "");
  return (
    <div class="timeline">
      <div class="timeline-bar">
        <button class="icon" aria-label="Zoom in" title="Zoom in (+)" onClick={() => zoom(0.5)}>+</button>
        <button class="icon" aria-label="Zoom out" title="Zoom out (-)" disabled={!range} onClick={() => zoom(2)}>−</button>
        <button disabled={!range} title="Show the whole run (0)" onClick={() => setRange(undefined)}>All</button>
        <label class="field check">
          <input type="checkbox" checked={fold} onChange={(e) => (setFold(e.currentTarget.checked), setRange(undefined))} /> Fold idle time
        </label>
        <ul class="legend" aria-label="Legend">
          {LEGEND.map(([name, text]) => (
            <li key={name}>
              <span class={`swatch ${name}`} aria-hidden="true" /> {text}
            </li>
          ))}
        </ul>
      </div>
      <div
        ref={box}
        class="timeline-box"
        tabIndex={0}
        role="group"
        aria-label={`Timeline of ${rows.length} threads; up and down select a thread, left and right move the cursor`}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <canvas
          ref={canvas}
          role="img"
          aria-label={selected ? describe(model, selected, sequence) : `${rows.length} threads, ${duration(end - model.startAt)}`}
          style={{ width: `${size.width}px`, height: `${size.height}px` }}
          onPointerDown={down}
          onPointerMove={move}
          onPointerUp={up}
          onPointerCancel={up}
          onPointerLeave={() => setHover(undefined)}
          onDblClick={() => setRange(undefined)}
        />
        <div style={{ height: `${Math.max(0, rows.length * ROW + RULER - size.height)}px` }} />
      </div>
      {hover?.hit && (
        <div class="tip" style={{ left: `${Math.min(hover.x + 12, size.width - 260)}px`, top: `${hover.y + 58}px` }}>
          <strong>{hover.hit.thread.name}</strong> {hover.hit.text}
        </div>
      )}
      <p class="sr" role="status">
        {selected ? describe(model, selected, sequence) : ""}
      </p>
    </div>
  );
}
