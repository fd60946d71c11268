// Facts in texts, and which of them a summary retains: the rules of `pirn context judge`.

export type FactKind = "number" | "date" | "id" | "name" | "negation";

export interface Fact {
  kind: FactKind;
  /** Normalized word. */
  text: string;
}

export interface FoundFact extends Fact {
  /** Position of the word in the text, in UTF-16 units. */
  from: number;
  to: number;
}

interface Word {
  text: string;
  from: number;
  beginsSentence: boolean;
}

const NEGATING = new Set(
  "cannot kein keine keinem keinen keiner keines never nicht nie niemals no none not ohne pas without".split(" "),
);
const NEGATING_SIGNS = "不没無无未";
const SMALL = new Set("a an any be been das de der die ein eine the to yet".split(" "));
const ALPHABETIC = /\p{Alphabetic}/u;
const NUMERIC = /\p{N}/u;
const UPPER = /\p{Uppercase}/u;
const LOWER = /\p{Lowercase}/u;
// Characters of scripts without capitals and spaces; letters and digits of all others, with some characters between two of them; ends
// of a sentence.
const SIGN = "[\\u2e80-\\u9fff\\uac00-\\ud7af\\uf900-\\ufaff\\u{20000}-\\u{3ffff}]";
const LETTER = `(?!${SIGN})[\\p{Alphabetic}\\p{N}]`;
const TOKEN = new RegExp(`(${SIGN})|(${LETTER}(?:[-_.,:/@'’]?${LETTER})*)|[.!?:;\\n。！？"“([{]`, "gu");

function wordsOf(text: string): Word[] {
  const found: Word[] = [];
  let beginsSentence = true;
  let afterNegation = -1;
  for (const { 0: token, 1: sign, 2: letters, index } of text.matchAll(TOKEN)) {
    if (sign) {
      const negates = NEGATING_SIGNS.includes(sign);
      // A character is a word if it negates, or follows one that negates it.
      if (!negates && afterNegation !== index) continue;
      afterNegation = negates ? index + sign.length : -1;
    } else if (!letters) {
      beginsSentence = true;
      continue;
    }
    found.push({ text: token, from: index, beginsSentence });
    beginsSentence = false;
  }
  return found;
}

// Three groups of digits with equal separators, with an optional time after `T`; or a time.
const DATE = /^\d{1,4}([-/.])\d{1,4}\1\d{1,4}([Tt]\d.*)?$|^\d{1,4}(:\d{1,4}){1,2}$/s;

function kindOf(word: Word): FactKind | null {
  const { text } = word;
  const hasDigits = NUMERIC.test(text);
  if (DATE.test(text)) return "date";
  if (hasDigits && /^[\p{N}.,]+$/u.test(text) && !ALPHABETIC.test(text)) return "number";
  if (hasDigits || /[@_]/.test(text)) return "id";
  const [first, second] = Array.from(text);
  const isCapital = first !== undefined && UPPER.test(first) && second !== undefined && ALPHABETIC.test(second);
  return isCapital && !negates(word) && (!LOWER.test(text) || !word.beginsSentence) ? "name" : null;
}

function normalNumber(text: string): string {
  const last = Math.max(text.lastIndexOf("."), text.lastIndexOf(","));
  if (last < 0) return text;
  const [whole, fraction] = [text.slice(0, last), text.slice(last + 1)];
  const isThousands =
    whole.includes(text[last]!) || (text[last] === "," && fraction.length === 3 && !whole.includes("."));
  if (isThousands) return text.replace(/[.,]/g, "");
  const digits = fraction.replace(/0+$/, "");
  return whole.replace(/[.,]/g, "") + (digits ? `.${digits}` : "");
}

function normal(word: Word): string {
  const small = word.text.toLowerCase().replaceAll("’", "'");
  return kindOf(word) === "number" ? normalNumber(small) : small.replace(/'s$/, "");
}

function negates(word: Word): boolean {
  const small = word.text.toLowerCase().replaceAll("’", "'");
  return NEGATING.has(small) || small.endsWith("n't") || NEGATING_SIGNS.includes(Array.from(word.text)[0]!);
}

/** The word to which each negation refers: the next content word of the sentence. */
function negated(words: Word[]): FoundFact[] {
  const found: FoundFact[] = [];
  words.forEach((word, at) => {
    if (!negates(word)) return;
    for (const next of words.slice(at + 1, at + 50)) {
      if (next.beginsSentence) return;
      if (SMALL.has(next.text.toLowerCase())) continue;
      found.push({ kind: "negation", text: normal(next), from: next.from, to: next.from + next.text.length });
      return;
    }
  });
  return found;
}

/** Returns the facts of a text in the order of their positions. A word may be two facts. */
export function factsOf(text: string): FoundFact[] {
  const words = wordsOf(text);
  const plain = words.flatMap((word) => {
    const kind = kindOf(word);
    return kind ? [{ kind, text: normal(word), from: word.from, to: word.from + word.text.length }] : [];
  });
  return [...plain, ...negated(words)].sort((a, b) => a.from - b.from);
}

/** Decides for every fact whether a summary contains it. */
export class SummaryWords {
  private readonly words: Set<string>;
  private readonly negations: Set<string>;

  constructor(summary: string) {
    const words = wordsOf(summary);
    this.words = new Set(words.map(normal));
    this.negations = new Set(negated(words).map((fact) => fact.text));
  }

  has(fact: Fact): boolean {
    return (fact.kind === "negation" ? this.negations : this.words).has(fact.text);
  }
}

export interface Judgement {
  /** Number of different facts in the originals. */
  total: number;
  kept: number;
  lost: Fact[];
  /** For every original the facts that the summary lost, with their positions. */
  lostIn: FoundFact[][];
}

/** Compares texts with their summary. */
export function judge(originals: string[], summary: string): Judgement {
  const words = new SummaryWords(summary);
  const all = new Map<string, { fact: Fact; kept: boolean }>();
  const lostIn = originals.map((text) =>
    factsOf(text).filter(({ kind, text: word }) => {
      const key = `${kind} ${word}`;
      const known = all.get(key) ?? { fact: { kind, text: word }, kept: words.has({ kind, text: word }) };
      all.set(key, known);
      return !known.kept;
    }),
  );
  const lost = [...all.values()].filter(({ kept }) => !kept).map(({ fact }) => fact);
  return { total: all.size, kept: all.size - lost.length, lost, lostIn };
}

export interface Statement {
  text: string;
  /** Facts of the statement that the summary lost; empty if it lost none. */
  lost: FoundFact[];
}

/** Splits a text into statements (sentences and lines) with the lost facts of each; positions are relative to the statement. */
export function statements(text: string, lost: FoundFact[]): Statement[] {
  const found: Statement[] = [];
  const pieces = text.match(/[^\n]*?(?:[.!?。！？]+["')\]]*(?=\s|$)\s*|\n|$)/gu) ?? [];
  let at = 0;
  for (const piece of pieces) {
    if (!piece) continue;
    const end = at + piece.length;
    const inside = lost.filter((fact) => fact.from >= at && fact.from < end);
    found.push({ text: piece, lost: inside.map((fact) => ({ ...fact, from: fact.from - at, to: fact.to - at })) });
    at = end;
  }
  return found;
}
