// Signals: values that their readers follow. The interface is that of `@preact/signals-core`, whose code is four times as large; the page
// has a limit of 60,000 bytes.
//
// A read inside a computed signal or an effect subscribes it. A write marks what depends on it, and runs the effects afterwards, but only
// those for which a value that they have read is another one now.

interface Reader {
  /** Called when a source may have changed. */
  mark(): void;
  /** What was read in the last run, with the values. */
  sources: Map<Source, unknown>;
}

interface Source {
  readers: Set<Reader>;
  peek(): unknown;
}

let reader: Reader | undefined;
let depth = 0;
const waiting = new Set<() => void>();

/** Runs a function and subscribes a reader to what it reads. */
function track<T>(by: Reader, run: () => T): T {
  const before = reader;
  release(by);
  reader = by;
  try {
    return run();
  } finally {
    reader = before;
  }
}

function release(by: Reader) {
  for (const source of by.sources.keys()) source.readers.delete(by);
  by.sources.clear();
}

/** True if a value that was read in the last run has changed since. */
function isStale(by: Reader): boolean {
  for (const [source, value] of [...by.sources]) if (source.peek() !== value) return true;
  return false;
}

/** Delays effects until the end of a function. */
export function batch<T>(run: () => T): T {
  depth++;
  try {
    const result = run();
    if (depth === 1)
      for (const effect of waiting) {
        waiting.delete(effect);
        effect();
      }
    return result;
  } finally {
    depth--;
  }
}

abstract class Readable<T> implements Source {
  readers = new Set<Reader>();

  get value(): T {
    const value = this.peek();
    if (reader) {
      this.readers.add(reader);
      reader.sources.set(this, value);
    }
    return value;
  }

  abstract peek(): T;
}

export class Signal<T> extends Readable<T> {
  #now: T;

  constructor(value: T) {
    super();
    this.#now = value;
  }

  peek(): T {
    return this.#now;
  }

  override get value(): T {
    return super.value;
  }

  override set value(value: T) {
    if (value === this.#now) return;
    this.#now = value;
    batch(() => {
      for (const one of [...this.readers]) one.mark();
    });
  }
}

class Computed<T> extends Readable<T> implements Reader {
  sources = new Map<Source, unknown>();
  #last: T | undefined;
  #state = 0; // 0: never run, 1: a source may have changed, 2: current

  constructor(private readonly compute: () => T) {
    super();
  }

  mark() {
    if (this.#state !== 2) return;
    this.#state = 1;
    for (const one of [...this.readers]) one.mark();
  }

  peek(): T {
    if (this.#state === 0 || (this.#state === 1 && isStale(this))) this.#last = track(this, this.compute);
    this.#state = 2;
    return this.#last as T;
  }
}

export const signal = <T>(value: T): Signal<T> => new Signal(value);
export const computed = <T>(compute: () => T): { readonly value: T; peek(): T } => new Computed(compute);

/** Runs a function now and whenever something that it has read changes. Returns a function that ends this. */
export function effect(run: () => void): () => void {
  let isEnded = false;
  const own: Reader = { sources: new Map(), mark: () => waiting.add(again) };
  const start = () => track(own, () => batch(run));
  const again = () => {
    if (!isEnded && isStale(own)) start();
  };
  start();
  return () => {
    isEnded = true;
    release(own);
  };
}
