// What the graph and the timeline share as surfaces that scroll and zoom.

import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Size of an element, also after it has changed. */
export function useSize(box: RefObject<Element | null>): { width: number; height: number } {
  const [size, setSize] = useState({ width: 800, height: 500 });
  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => setSize({ width: element.clientWidth || 800, height: element.clientHeight || 500 });
    measure();
    const resized = new ResizeObserver(measure);
    resized.observe(element);
    return () => resized.disconnect();
  }, []);
  return size;
}

/** Preact registers wheel listeners as passive; these may prevent that the page scrolls or zooms. `x` and `y` are in the element. */
export function useWheel(box: RefObject<Element | null>, wheel: (event: WheelEvent, x: number, y: number) => void) {
  const now = useRef(wheel);
  now.current = wheel;
  useEffect(() => {
    const element = box.current!;
    const listen = (event: Event) => {
      const area = element.getBoundingClientRect();
      const { clientX, clientY } = event as WheelEvent;
      now.current(event as WheelEvent, clientX - area.left, clientY - area.top);
    };
    element.addEventListener("wheel", listen, { passive: false });
    return () => element.removeEventListener("wheel", listen);
  }, []);
}
