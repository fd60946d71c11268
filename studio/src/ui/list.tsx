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
  const render = useState<object>()[1];
  /** The part in view, and the selection to which the list has scrolled. */
  const view = useRef({ top: 0, height: 600, selected: -1 }).current;
  const atEnd = useRef(true);

  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => {
      const { scrollTop, clientHeight, scrollHeight } = element;
      atEnd.current = scrollTop + clientHeight >= scrollHeight - 2;
      if (Math.abs(view.top - scrollTop) < 1 && view.height === clientHeight) return;
      Object.assign(view, { top: scrollTop, height: clientHeight });
      render({});
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

  // The rows of the new position are drawn at once: a step of a scrub renders the list once.
  let top = view.top;
  if (selected >= 0 && selected !== view.selected) {
    const at = selected * rowHeight;
    if (at < top || at + rowHeight > top + view.height) top = Math.max(0, Math.min(at - view.height / 2 + rowHeight, count * rowHeight - view.height));
  }
  useLayoutEffect(() => {
    view.selected = selected;
    if (top === view.top) return;
    view.top = top;
    box.current!.scrollTop = top;
  });

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

  const first = Math.max(0, Math.floor(top / rowHeight) - EXTRA);
  const last = Math.min(count, Math.ceil((top + view.height) / rowHeight) + EXTRA);
  // Rows have no keys: while scrolling, the elements stay and their texts change.
  const rows = [];
  for (let i = first; i < last; i++) {
    rows.push(
      <div
        id={i === selected ? id : undefined}
        role={onSelect ? "option" : "listitem"}
        aria-selected={onSelect ? i === selected : undefined}
        aria-setsize={count}
        aria-posinset={i + 1}
        class={`row ${i === selected ? "selected" : ""} ${props.rowClass?.(i) ?? ""}`}
        style={{ height: `${rowHeight}px` }}
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
      aria-activedescendant={onSelect && selected >= first && selected < last ? id : undefined}
      tabIndex={0}
      onKeyDown={key}
    >
      <div class="rows" role="presentation" style={{ height: `${count * rowHeight}px` }}>
        <div role="presentation" style={{ transform: `translateY(${first * rowHeight}px)` }}>
          {rows}
        </div>
      </div>
    </div>
  );
}
