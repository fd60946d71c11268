// Differences of two texts: by line, and the first byte at which they differ.

export type DiffKind = "same" | "removed" | "added";

export interface DiffLine {
  kind: DiffKind;
  /** Line number in the first text, from 1; absent if the line was added. */
  left?: number;
  /** Line number in the second text, from 1; absent if the line was removed. */
  right?: number;
  text: string;
}

/** Largest table of line pairs that is searched for the longest common part. */
const MAX_PAIRS = 4_000_000;

/**
 * Returns the lines of two texts in order, each marked as equal, removed or added, with as many equal lines as possible. If more than
 * about 2,000 lines of each text lie between the first and the last difference, they are removed and added as a whole.
 */
export function lineDiff(left: string, right: string): DiffLine[] {
  const [a, b] = [left.split("\n"), right.split("\n")];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let [endA, endB] = [a.length, b.length];
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) [endA, endB] = [endA - 1, endB - 1];
  const width = endB - start + 1;
  const isSearched = (endA - start) * width <= MAX_PAIRS;
  // Length of the longest common part of the rests of both texts, from the end.
  const common = new Uint32Array(isSearched ? (endA - start + 1) * width : 0);
  const at = (i: number, j: number) => (i - start) * width + j - start;
  for (let i = endA - 1; isSearched && i >= start; i -= 1) {
    for (let j = endB - 1; j >= start; j -= 1) {
      common[at(i, j)] = a[i] === b[j] ? common[at(i + 1, j + 1)]! + 1 : Math.max(common[at(i + 1, j)]!, common[at(i, j + 1)]!);
    }
  }
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const isInside = i < endA && j < endB && i >= start;
    const isSame = i < start || i >= endA && j >= endB || (isInside && isSearched && a[i] === b[j]);
    if (isSame) lines.push({ kind: "same", left: i + 1, right: j + 1, text: a[i]! });
    const isRemoved = !isSame && i < endA && (j >= endB || !isSearched || common[at(i + 1, j)]! >= common[at(i, j + 1)]!);
    if (isRemoved) lines.push({ kind: "removed", left: i + 1, text: a[i]! });
    if (!isSame && !isRemoved) lines.push({ kind: "added", right: j + 1, text: b[j]! });
    if (isSame || isRemoved) i += 1;
    if (!isRemoved) j += 1;
  }
  return lines;
}

/** Returns the changed lines with `context` equal lines around each, and the number of equal lines omitted before a line. */
export function excerpt(lines: DiffLine[], context = 3): (DiffLine | number)[] {
  const found: (DiffLine | number)[] = [];
  let omitted = 0;
  lines.forEach((line, at) => {
    if (lines.slice(Math.max(0, at - context), at + context + 1).every((near) => near.kind === "same")) omitted += 1;
    else {
      if (omitted > 0) found.push(omitted);
      found.push(line);
      omitted = 0;
    }
  });
  return omitted > 0 ? [...found, omitted] : found;
}

export interface FirstDifference {
  /** Number of equal bytes (UTF-8) at the start. */
  byte: number;
  /** Index in the strings, in UTF-16 units, at a character boundary. */
  index: number;
}

/** Returns the first difference of two texts; null if they are equal. */
export function firstDifference(left: string, right: string): FirstDifference | null {
  if (left === right) return null;
  const end = Math.min(left.length, right.length);
  let index = 0;
  while (index < end && left.charCodeAt(index) === right.charCodeAt(index)) index += 1;
  // A position between the two halves of a surrogate pair is no character boundary.
  if (index > 0 && isHighSurrogate(left.charCodeAt(index - 1))) index -= 1;
  return { byte: byteLength(left.slice(0, index)) + sharedBytes(left, right, index), index };
}

const isHighSurrogate = (unit: number) => unit >= 0xd800 && unit <= 0xdbff;

/** Equal leading bytes of the two characters at `index`. */
function sharedBytes(left: string, right: string, index: number): number {
  const encode = (text: string) => {
    const point = text.codePointAt(index);
    return point === undefined ? new Uint8Array() : new TextEncoder().encode(String.fromCodePoint(point));
  };
  const [a, b] = [encode(left), encode(right)];
  let equal = 0;
  while (equal < a.length && equal < b.length && a[equal] === b[equal]) equal += 1;
  return equal;
}

/** Length of a text in UTF-8. */
export function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}
