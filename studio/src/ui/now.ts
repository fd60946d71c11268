// The present time in components that show a duration that grows.

import { useEffect, useState } from "preact/hooks";

/** The time, renewed each second while `active`. */
export function useNow(active: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [active]);
  return now;
}

/** A value once it has not changed for some milliseconds: what takes long to draw follows a moving cursor when it rests. */
export function useSettled<T>(value: T, ms = 80): T {
  const [settled, settle] = useState(value);
  useEffect(() => {
    if (value === settled) return;
    const timer = setTimeout(() => settle(() => value), ms);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
