// A list that draws only the rows in view: 100,000 rows scroll like 100. All rows have the same height.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useId } from "./id";

export interface ListProps {
  /** Name for screen readers. */
  label: string;
  count: number;
  /** Height of a row in pixels. */
  rowHeight: number;
  row: (index: number) => ComponentChildren;
  class?: string;
  rowClass?: (index: number) => string;
  /** The selected row; the list scrolls to it when it changes. */
  selected?: number;
  /** With it, the list is a listbox: click, arrows, Page, Home and End select a row. Rows must contain no other controls then. */
  onSelect?: (index: number) => void;
  /** Enter or a double click on a row. */
  onOpen?: (index: number) => void;
  /** Keeps the last row in view while rows are appended and the list is at its end. */
  follow?: boolean;
}

const EXTRA = 4;

export function List(props: ListProps) {
  const { count, rowHeight, selected = -1, onSelect } = props;
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  const [view, setView] = useState({ top: 0, height: 600 });
  const atEnd = useRef(true);

  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => {
      atEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 2;
      setView((old) =>
        old.top === element.scrollTop && old.height === element.clientHeight ? old : { top: element.scrollTop, height: element.clientHeight },
      );
    };
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const resized = new ResizeObserver(measure);
    resized.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      resized.disconnect();
    };
  }, []);

  useEffect(() => {
    const element = box.current!;
    if (props.follow && atEnd.current && selected < 0) element.scrollTop = element.scrollHeight;
  }, [count, props.follow]);

  // Before the frame is drawn, with the new rows: otherwise each step of a scrub would draw twice.
  useLayoutEffect(() => {
    const element = box.current!;
    if (selected < 0) return;
    const top = selected * rowHeight;
    if (top >= element.scrollTop && top + rowHeight <= element.scrollTop + view.height) return;
    element.scrollTop = Math.max(0, top - view.height / 2 + rowHeight);
    setView({ top: element.scrollTop, height: view.height });
  }, [selected, rowHeight]);

  const key = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const from = selected < 0 ? -1 : selected;
    const to = { ArrowDown: from + 1, ArrowUp: from - 1, PageDown: from + page, PageUp: from - page, Home: 0, End: count - 1 }[event.key];
    if (to !== undefined && onSelect) {
      event.preventDefault();
      event.stopPropagation();
      if (count > 0) onSelect(Math.min(count - 1, Math.max(0, to)));
    } else if (event.key === "Enter" && selected >= 0 && props.onOpen) {
      event.preventDefault();
      props.onOpen(selected);
    }
  };

  const first = Math.max(0, Math.floor(view.top / rowHeight) - EXTRA);
  const last = Math.min(count, Math.ceil((view.top + view.height) / rowHeight) + EXTRA);
  // Rows have no keys: while scrolling, the elements stay and their texts change.
  const rows = [];
  for (let i = first; i < last; i++) {
    rows.push(
      <div
        id={`${id}-${i}`}
        role={onSelect ? "option" : "listitem"}
        aria-selected={onSelect ? i === selected : undefined}
        aria-setsize={count}
        aria-posinset={i + 1}
        class={`row ${i === selected ? "selected" : ""} ${props.rowClass?.(i) ?? ""}`}
        style={{ height: `${rowHeight}px`, transform: `translateY(${i * rowHeight}px)` }}
        onClick={onSelect && (() => onSelect(i))}
        onDblClick={props.onOpen && (() => props.onOpen!(i))}
      >
        {props.row(i)}
      </div>,
    );
  }
  return (
    <div
      ref={box}
      class={`list ${props.class ?? ""}`}
      role={count === 0 ? undefined : onSelect ? "listbox" : "list"}
      aria-label={count === 0 ? undefined : props.label}
      aria-activedescendant={onSelect && selected >= first && selected < last ? `${id}-${selected}` : undefined}
      tabIndex={0}
      onKeyDown={key}
    >
      <div class="rows" role="presentation" style={{ height: `${count * rowHeight}px` }}>
        {rows}
      </div>
    </div>
  );
}
