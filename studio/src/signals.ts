// Signals in components: a component that reads a signal while it renders is rendered again when the signal changes.
//
// This is what `@preact/signals` does with private hooks of Preact, in 1 kB less of the page's 60. build.mjs sends every function that
// JSX names through `h` below.

import { effect } from "./reactive";
import { type ComponentType, Fragment, h as create, type VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

type Any = ComponentType<never>;

const tracked = new WeakMap<object, Any>();

function track(component: (props: never) => VNode): Any {
  let found = tracked.get(component);
  if (!found) {
    found = ((props: never) => {
      const again = useState<object>()[1];
      const stop = useRef<(() => void) | undefined>(undefined);
      useEffect(() => () => stop.current?.(), []);
      stop.current?.();
      let output: VNode | undefined;
      let isFirst = true;
      // The first call renders and subscribes to what it reads; the next one is a change.
      stop.current = effect(() => {
        if (isFirst) output = component(props);
        else again({});
        isFirst = false;
      });
      return output!;
    }) as unknown as Any;
    tracked.set(component, found);
  }
  return found;
}

export const h: typeof create = ((type: unknown, ...rest: [never]) =>
  create(typeof type === "function" && type !== Fragment ? track(type as never) : (type as never), ...rest)) as never;
export { Fragment };
