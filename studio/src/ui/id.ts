// Ids of elements that name each other.

import { useState } from "preact/hooks";

let ids = 0;

/** An id that stays the same while the component is shown. */
export const useId = (): string => useState(() => `id-${++ids}`)[0];
