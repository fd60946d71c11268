// Loads a resource again at intervals, while the page is visible.

import { useEffect } from "preact/hooks";
import { isExport } from "../api";
import type { Resource } from "./resource";

export function usePolling<T>(resource: Resource<T>, ms: number): void {
  useEffect(() => {
    if (isExport) return;
    const timer = setInterval(() => {
      if (!document.hidden) void resource.reload();
    }, ms);
    return () => clearInterval(timer);
  }, [resource, ms]);
}
