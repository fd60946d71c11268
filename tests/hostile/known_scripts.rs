//! Scripts that once blocked in built-in functions for minutes or for ever.

pub(crate) const STUCK: &[&str] = &[
    "[].concat({length: 2 ** 53 - 1, [Symbol.isConcatSpreadable]: true})",
    "JSON.stringify({}, Array(2 ** 32 - 1))",
    "('a' + '\\u0301\\u0316'.repeat(1e6)).normalize('NFC')",
    "'a'.repeat(1e7).indexOf('a'.repeat(999) + 'b')",
    "/(?=(a+))\\1b/.test('a'.repeat(1e6))",
    "RegExp('a|'.repeat(1e6)).test('b')",
    "(() => { let p = {}; for (let i = 0; i < 1e6; i++) p = {__proto__: p}; return p.x })()",
    "Array(1e5).fill('9'.repeat(1e7)).map(Number)",
    "Math.max.apply(null, Array(60000).fill('a'.repeat(1e7)))",
    "(s => Array(1e5).fill(0).every(s.toLowerCase.bind(s)))('A'.repeat(2e7))",
    "new Float64Array(Array(1e5).fill('9'.repeat(1e7)))",
    "(u => Array(1e5).fill(0).every(u.reverse.bind(u)))(new Uint8Array(5e7))",
];

/// Scripts that the interpreter's limits cannot stop, because operators of the language do the work: their thread is abandoned or
/// their process killed.
pub(crate) const BY_OPERATORS: &[&str] = &[
    DEAF,
    "(() => { function F() {} let p = {}; for (let i = 0; i < 1e5; i++) { F.prototype = p; p = new F() } for (;;) p.x })()",
    "(() => { const n = 3n ** 300000n; for (;;) n * n })()",
    "(() => { const a = 'a'.repeat(1e7), b = a + 'b', c = a + 'c'; for (;;) b < c })()",
];

/// A script that does not check its time limit for longer than any test lasts: each look-up walks a million prototypes.
pub(crate) const DEAF: &str =
    "(() => { let p = {}; for (let i = 0; i < 1e6; i++) p = {__proto__: p}; for (;;) p.x })()";
