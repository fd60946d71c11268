//! Scripts made of built-ins, extreme arguments and nesting, determined by their seed.

/// A sequence of numbers that look random (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-1",
    "1e5",
    "1e7",
    "2**31",
    "2**32-1",
    "2**53-1",
    "1e308",
    "NaN",
    "Infinity",
    "-Infinity",
    "0.1",
    "1e5.toFixed(20)",
    "10n**1000n",
    "2n**200000n",
    "-(2n**64n)",
];

const TEXTS: &[&str] = &[
    "''",
    "'a'.repeat(1e6)",
    "'9'.repeat(1e7)",
    "' '.repeat(1e6)",
    "('a'+'\\u0301\\u0316'.repeat(1e5))",
    "'\\u{1f600}'.repeat(1e5)",
    "'a|'.repeat(1e5)",
    "'['.repeat(1e5)",
    "'('.repeat(2e4)",
    "'\\ud800'",
    "'\\0'.repeat(1e6)",
    "input.secret",
    "String(output)",
    "'a'.repeat(999)+'b'",
    "'%41'.repeat(1e5)",
    "'{\"a\":'.repeat(1e4)",
];

const LISTS: &[&str] = &[
    "[]",
    "[1,2,3]",
    "Array(1e5).fill(0)",
    "Array(2**32-1)",
    "{length:2**53-1}",
    "Array(1e5).fill('9'.repeat(1e6))",
    "Array.from({length:1e5},(_, i)=>i)",
    "[[[[[]]]]]",
    "(a=>{a.push(a);return a})([])",
    "(()=>{let a=[1,2];for(let i=0;i<40;i++)a=[a,a];return a})()",
    "(()=>{let a=1;for(let i=0;i<1e5;i++)a=[a];return a})()",
    "new Uint8Array(5e6)",
    "new Float64Array(1e5)",
    "new Uint8Array(new ArrayBuffer(1e6, {maxByteLength: 2e6}))",
    "Object.assign([], {length: 1e6})",
    "[input, output, variables]",
];

const OBJECTS: &[&str] = &[
    "({ get a() { return input.secret } })",
    "({ toJSON() { return [input, output] } })",
    "({ toString() { for(;;){} } })",
    "({ valueOf() { return 2**53 } })",
    "({ then(done) { done(input) } })",
    "Object.create(null)",
    "new Map([[input, 1]])",
    "({[Symbol.isConcatSpreadable]: true, length: 2**53-1})",
    "({[Symbol.iterator]: function*(){ for(;;) yield 1 }})",
    "(()=>{let p={};for(let i=0;i<1e5;i++)p={__proto__:p};return p})()",
    "Symbol('x')",
    "(() => 1)",
    "/(a+)+$/",
    "/(?=(a+))\\1b/",
    "RegExp('a?'.repeat(5000)+'a'.repeat(5000))",
    "Promise.resolve(input)",
    "new Error(input.secret)",
    "({ get length() { return 2**32 } })",
    "Object.defineProperty({}, 'a', { get() { throw { get message() { return input.secret } } } })",
    "globalThis",
    "variables",
    "nodes",
    "$pirn_at",
    "console",
    "(function(){ return arguments })(1, 2)",
    "new Date(8.64e15)",
    "new Set([1, 2])",
    "new WeakMap()",
    "(async () => input.secret)()",
    "(function*(){ yield input.secret })()",
];

const METHODS: &[&str] = &[
    "at",
    "codePointAt",
    "concat",
    "endsWith",
    "includes",
    "indexOf",
    "isWellFormed",
    "lastIndexOf",
    "localeCompare",
    "match",
    "matchAll",
    "normalize",
    "padEnd",
    "padStart",
    "repeat",
    "replace",
    "replaceAll",
    "search",
    "slice",
    "split",
    "startsWith",
    "substring",
    "toLocaleLowerCase",
    "toLowerCase",
    "toUpperCase",
    "toWellFormed",
    "trim",
    "copyWithin",
    "entries",
    "every",
    "fill",
    "filter",
    "find",
    "findLast",
    "flat",
    "flatMap",
    "forEach",
    "join",
    "keys",
    "map",
    "pop",
    "push",
    "reduce",
    "reduceRight",
    "reverse",
    "shift",
    "some",
    "sort",
    "splice",
    "toLocaleString",
    "toReversed",
    "toSorted",
    "toSpliced",
    "toString",
    "unshift",
    "values",
    "with",
    "set",
    "subarray",
    "exec",
    "test",
    "compile",
    "toFixed",
    "toPrecision",
    "bind",
    "call",
    "apply",
    "valueOf",
    "hasOwnProperty",
    "drop",
    "take",
    "toArray",
    "then",
    "catch",
    "next",
    "union",
    "groupBy",
];

const FUNCTIONS: &[&str] = &[
    "Array",
    "Array.from",
    "Array.of",
    "Array.isArray",
    "BigInt",
    "BigInt.asUintN",
    "Boolean",
    "Date.UTC",
    "Date.parse",
    "Float64Array.from",
    "JSON.parse",
    "JSON.stringify",
    "Map.groupBy",
    "Math.hypot",
    "Math.max",
    "Math.min",
    "Math.pow",
    "Number",
    "Number.isInteger",
    "Object",
    "Object.assign",
    "Object.create",
    "Object.defineProperties",
    "Object.entries",
    "Object.freeze",
    "Object.fromEntries",
    "Object.getOwnPropertyDescriptors",
    "Object.groupBy",
    "Object.keys",
    "Object.setPrototypeOf",
    "Object.values",
    "Promise.all",
    "Promise.race",
    "Reflect.apply",
    "Reflect.construct",
    "Reflect.ownKeys",
    "RegExp",
    "String",
    "String.fromCharCode",
    "String.raw",
    "Symbol.for",
    "decodeURIComponent",
    "encodeURIComponent",
    "escape",
    "isNaN",
    "parseFloat",
    "parseInt",
    "unescape",
    "new Array",
    "new Float64Array",
    "new Map",
    "new Set",
    "new Uint8Array",
    "new BigInt64Array",
    "new DataView",
    "new ArrayBuffer",
    "new RegExp",
    "new Date",
    "new Error",
    "new AggregateError",
    "Iterator.from",
    "structuredClone",
    "eval",
    "Function",
    "(()=>{}).constructor",
];

const OPERATORS: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "**",
    "<",
    ">=",
    "==",
    "===",
    "&&",
    "||",
    "??",
    ",",
    "in",
    "instanceof",
    "<<",
    ">>>",
];

/// An expression that is nested no deeper than `depth`.
pub(crate) fn expression(dice: &mut Dice, depth: usize) -> String {
    if depth == 0 {
        let words = [NUMBERS, TEXTS, LISTS, OBJECTS][dice.below(4)];
        return dice.one_of(words).to_owned();
    }
    let inner = |dice: &mut Dice| expression(dice, depth - 1);
    match dice.below(16) {
        0..=4 => {
            let (of, method) = (inner(dice), dice.one_of(METHODS));
            let arguments = arguments(dice, depth - 1);
            format!("({of}).{method}({arguments})")
        }
        5..=7 => {
            let function = dice.one_of(FUNCTIONS);
            format!("{function}({})", arguments(dice, depth - 1))
        }
        8 => format!("({}) {} ({})", inner(dice), dice.one_of(OPERATORS), inner(dice)),
        9 => {
            let (of, method) = (inner(dice), dice.one_of(METHODS));
            format!("(x => Array(1e5).fill(0).every(x.{method}.bind(x)))({of})")
        }
        10 => format!(
            "(() => {{ try {{ return {} }} catch (e) {{ return {} }} }})()",
            inner(dice),
            inner(dice)
        ),
        11 => format!(
            "(() => {{ let x; for (let i = 0; i < 1e5; i++) x = {}; return x }})()",
            inner(dice)
        ),
        12 => format!("[{}].map(() => {})", inner(dice), inner(dice)),
        13 => format!("({{ get a() {{ return {} }}, b: {} }})", inner(dice), inner(dice)),
        14 => format!(
            "Reflect.apply({}, {}, {})",
            dice.one_of(FUNCTIONS),
            inner(dice),
            inner(dice)
        ),
        _ => format!("`${{{}}}`", inner(dice)),
    }
}

fn arguments(dice: &mut Dice, depth: usize) -> String {
    let count = dice.below(3);
    let all: Vec<String> = (0..count).map(|_| expression(dice, depth)).collect();
    all.join(", ")
}

/// The body of CODE around an expression.
pub(crate) fn code(dice: &mut Dice, expression: &str) -> String {
    match dice.below(5) {
        0 => format!("return await ({expression})"),
        1 => format!("globalThis.kept = {expression}; return [kept, typeof other]"),
        2 => format!("Object.prototype.kept = () => {expression}; return ({{}}).kept()"),
        3 => format!("console.log({expression}); throw {expression}"),
        _ => format!("return {expression}"),
    }
}
