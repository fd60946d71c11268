//! Every limit ends a snippet within a bounded time, and the evaluator remains usable.

use std::time::{Duration, Instant};

use super::*;

/// Much longer than any of these takes, and finite.
const BOUND: Duration = Duration::from_secs(20);

#[allow(clippy::disallowed_methods)] // the promise is about real time
fn assert_limited(expression: &str) {
    let mut evaluator = JsEvaluator::new(ExpressionLimits {
        time: Duration::from_millis(50),
        ..Default::default()
    });
    let scope = scope(&json!({"v": 20}), &json!(null));
    let begin = Instant::now();
    let result = value_in(&mut evaluator, expression, &scope);
    let took = begin.elapsed();
    assert!(took < BOUND, "{expression} took {took:?}");
    let fault = result.expect_err(expression);
    assert_eq!(fault.code, RunErrorCode::ScriptLimitExceeded, "{expression}: {fault}");
    assert_eq!(
        value_in(&mut evaluator, "v * 2 + 2", &scope),
        Ok(json!(42)),
        "after {expression}"
    );
}

#[test]
fn an_endless_expression_is_stopped() {
    for expression in [
        "(() => { for (;;) {} })()",
        "(() => { for (;;) { try { for (;;) {} } catch {} finally { continue } } })()",
        "(function* () { for (;;) yield 1 })().every(x => true)",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "[1].sort.call([3, 2, 1], () => { for (;;) {} })",
        "({ toJSON() { for (;;) {} } })",
        "({ get a() { for (;;) {} } })",
        "(() => { throw { get message() { for (;;) {} } } })()",
        "Array(2 ** 32 - 1).indexOf(1)",
        "Array.prototype.includes.call({length: 2 ** 53 - 1}, 1)",
        "Array(2 ** 32 - 2).values().drop(2 ** 32 - 2).next()",
    ] {
        assert_limited(expression);
    }
}

#[test]
fn an_expression_over_the_memory_limit_is_stopped() {
    for expression in [
        "'x'.repeat(2 ** 29).length",
        "'x'.padEnd(2 ** 29).length",
        "Array(1e9).fill(0).length",
        "(() => { const all = []; for (;;) all.push('x'.repeat(1e6) + all.length) })()",
        "(() => { let s = 'x'; for (;;) s += s })()",
        "new Uint8Array(1e9).length",
        "(() => { let a = [1, 2]; for (let i = 0; i < 40; i++) a = [a, a]; return a })()",
        "Array(2 ** 32 - 1)",
        "(() => { let last = null; for (;;) last = { last } })()",
    ] {
        assert_limited(expression);
    }
}

#[test]
fn an_expression_that_throws_null_is_an_error_of_the_expression() {
    let mut evaluator = JsEvaluator::new(ExpressionLimits::default());
    let scope = scope(&json!({}), &json!(null));
    for (expression, expected) in [
        ("(() => { throw null })()", "it threw null"),
        ("(() => { throw undefined })()", "it threw undefined"),
        ("({ toJSON() { throw null } })", "it threw null"),
    ] {
        let fault = value_in(&mut evaluator, expression, &scope).expect_err(expression);
        assert_eq!(
            (fault.code, &*fault.message),
            (RunErrorCode::ScriptError, expected),
            "{expression}"
        );
    }
}

#[test]
fn a_deeply_recursive_expression_is_stopped() {
    for expression in [
        "(function f() { return f() + 1 })()",
        "(function f(n) { return [n].map(f) })(1)",
    ] {
        assert_limited(expression);
    }
}

#[test]
fn a_huge_list_is_refused_by_built_ins_that_traverse_it() {
    for expression in [
        "join()",
        "reverse()",
        "flat()",
        "flatMap(x => x)",
        "slice(1)",
        "splice(1, 5)",
        "copyWithin(1, 0)",
        "sort()",
        "shift()",
        "unshift()",
        "concat([])",
        "toString()",
        "toLocaleString()",
    ] {
        assert_error(
            value(&format!("Array(2 ** 32 - 1).{expression}")),
            RunErrorCode::ScriptError,
            "too long",
        );
    }
    assert_error(
        value("[].concat(Array(2 ** 32 - 1))"),
        RunErrorCode::ScriptError,
        "too long",
    );
    assert_error(
        value("[[Array(2 ** 32 - 1)]].flat(2)"),
        RunErrorCode::ScriptError,
        "too long",
    );
    assert_error(
        value("[].slice.call({length: 2 ** 53 - 1})"),
        RunErrorCode::ScriptError,
        "too long",
    );
    assert_error(
        value("[].slice.call({get length() { return 2 ** 53 - 1 }})"),
        RunErrorCode::ScriptError,
        "a list",
    );
    assert_error(
        value("String.raw({raw: {length: 2 ** 32}})"),
        RunErrorCode::ScriptError,
        "too long",
    );
    assert_error(
        value("'a'.repeat(1e7).lastIndexOf('a'.repeat(5e6) + 'b')"),
        RunErrorCode::ScriptError,
        "too long",
    );
}

#[test]
fn arguments_that_make_a_built_in_slow_are_refused_with_the_reason() {
    for (expression, part) in [
        (
            "[].concat({length: 2 ** 53 - 1, [Symbol.isConcatSpreadable]: true})",
            "only lists",
        ),
        ("JSON.stringify({}, Array(2 ** 32 - 1))", "too long"),
        ("JSON.stringify({}, Array(20000).fill('a'))", "names to write"),
        ("('a' + '\\u0301\\u0316'.repeat(1e6)).normalize('NFC')", "marks"),
        ("'a'.repeat(1e7).indexOf('a'.repeat(999) + 'b')", "too long"),
        ("/(?=(a+))\\1b/.test('a'.repeat(1e6))", "back references"),
        ("'a'.repeat(1e6).replace(/(?<x>a+)\\k<x>b/, '')", "back references"),
        ("RegExp('a|'.repeat(1e6)).test('b')", "pattern"),
        ("'b'.match('a|'.repeat(1e6))", "pattern"),
        ("/a/.compile('a|'.repeat(1e6))", "pattern"),
        (
            "(() => { let p = {}; for (let i = 0; i < 1e6; i++) p = Object.create(p); return p.x })()",
            "the prototype chain",
        ),
        (
            "(() => { let p = {}; for (let i = 0; i < 1e6; i++) { const q = {}; q.__proto__ = p; p = q } return p.x })()",
            "the prototype chain",
        ),
        (
            "Math.max.apply(null, Array(60000).fill('9'.repeat(9999)))",
            "for numbers",
        ),
        ("new Float64Array(Array(1e5).fill('9'.repeat(9999)))", "for numbers"),
        ("Array(1e5).fill('a'.repeat(1e6)).sort()", "to sort"),
        ("Array(1e5).fill('a'.repeat(1e6)).toSorted()", "to sort"),
        (
            "(a => Array(1e5).fill(a + 'a').includes(a + 'b'))('a'.repeat(1e6))",
            "to search for",
        ),
        ("Array(1e5).fill('9'.repeat(1e7)).map(Number)", "for a number"),
        (
            "Math.max.apply(null, Array(60000).fill('9'.repeat(1e7)))",
            "for a number",
        ),
        ("new Float64Array(Array(1e5).fill('9'.repeat(1e7)))", "for a number"),
        ("new Float64Array(1).set(['9'.repeat(1e7)])", "for a number"),
        ("Float64Array.from(Array(10).fill('9'.repeat(1e7)))", "for a number"),
        ("BigInt('9'.repeat(1e6))", "for a number"),
        ("(2n ** 1000000n).toString().length", "digits"),
    ] {
        assert_error(value(expression), RunErrorCode::ScriptError, part);
    }
}

#[test]
fn a_loop_that_only_calls_built_ins_is_stopped() {
    for expression in [
        "(s => Array(1e5).fill(0).every(s.toLowerCase.bind(s)))('A'.repeat(1e6))",
        "(u => Array(1e5).fill(0).every(u.reverse.bind(u)))(new Uint8Array(1e6))",
        "(s => Array(1e5).fill(0).every(JSON.parse.bind(JSON, s)))('[' + '1,'.repeat(1e5) + '1]')",
        "(s => Array(1e5).fill(0).every(s.trim.bind(s)))('a' + ' '.repeat(1e6))",
        // A few slow steps.
        "(s => { for (;;) new Error(s) })('a'.repeat(1e5))",
    ] {
        assert_limited(expression);
    }
}

#[test]
fn guarded_constructors_behave_like_the_originals() {
    for (expression, expected) in [
        (
            "[Number('5'), Number.MAX_SAFE_INTEGER > 1, new Number(5) instanceof Number, (5).constructor === Number]",
            json!([5, true, true, true]),
        ),
        (
            "[BigInt(5) === 5n, BigInt.asIntN(8, 255n) === -1n]",
            json!([true, true]),
        ),
        (
            "[new RegExp('a+', 'g').flags, RegExp('b').test('abc'), /x/ instanceof RegExp, /x/.constructor === RegExp]",
            json!(["g", true, true, true]),
        ),
        (
            "[[...new Float64Array([1.5, 2])], new Uint8Array(3).length, Uint8Array.from([1, 2]).join(), new Uint8Array(2) instanceof Uint8Array]",
            json!([[1.5, 2], 3, "1,2", true]),
        ),
        (
            "(() => { class Mine extends Float64Array { sum() { return this.reduce((a, b) => a + b) } } return new Mine([1, 2]).sum() })()",
            json!(3),
        ),
        ("'a1b22'.replace(/[0-9]+/g, n => n * 2).split(/b/)", json!(["a2", "44"])),
        (
            "['a-b'.match(/-/).index, [...'aXbX'.matchAll(/X/g)].length, 'abc'.search('c')]",
            json!([1, 2, 2]),
        ),
        (
            "[parseInt('12px'), Number.parseFloat === parseFloat, isNaN('x'), Math.hypot(3, 4), Math.max()  === -Infinity]",
            json!([12, true, true, 5, true]),
        ),
        ("JSON.stringify({a: 1, b: 2}, ['a'])", json!("{\"a\":1}")),
        ("'\\u0061\\u0301'.normalize('NFC').length", json!(1)),
        (
            "(() => { const a = {b: 1}, c = {}; c.__proto__ = a; return [c.b, c.__proto__ === a, Object.keys(c).length] })()",
            json!([1, true, 0]),
        ),
        (
            "[['b', 'a', 10, 9].sort(), ['b', 'a'].toSorted((x, y) => x < y ? 1 : -1), ['a'].includes('a'), [NaN].indexOf(NaN)]",
            json!([[10, 9, "a", "b"], ["b", "a"], true, -1]),
        ),
        ("/(a)\\1/.test('baab')", json!(true)),
    ] {
        assert_eq!(value(expression), Ok(expected), "{expression}");
    }
}

#[test]
fn bounded_built_ins_return_the_standard_results() {
    for (expression, expected) in [
        (
            "[3, 1, 2].sort().reverse().concat([4], 5).join('-')",
            json!("3-2-1-4-5"),
        ),
        ("[1, [2, [3, [4]]]].flat()", json!([1, 2, [3, [4]]])),
        ("[1, [2, [3, [4]]]].flat(Infinity)", json!([1, 2, 3, 4])),
        ("[1, 2].flatMap((x, i) => [x, [i]])", json!([1, [0], 2, [1]])),
        (
            "(a => [a.shift(), a.unshift(9), a.splice(1, 1), a])([1, 2, 3])",
            json!([1, 3, [2], [9, 3]]),
        ),
        ("String([1, [2, 3]])", json!("1,2,3")),
        ("[].slice.call('abc', 1)", json!(["b", "c"])),
        ("(function () { return [].slice.call(arguments, 1) })(1, 2)", json!([2])),
        ("'a,b,c'.split(',', 2)", json!(["a", "b"])),
        ("'a1b2'.split(/[0-9]/)", json!(["a", "b", ""])),
        (
            "'aXbX'.replace('X', '-') + 'aXbX'.replaceAll('X', m => m + m) + 'aXb'.replace(/x/i, '$&$&')",
            json!("a-bXaXXbXXaXXb"),
        ),
        ("'abcabc'.indexOf('c', 3) + 'abcabc'.lastIndexOf('a')", json!(8)),
        ("'abc'.includes('b') && !'abc'.includes('b', 2)", json!(true)),
        ("String.raw`a\\n${1}b`", json!("a\\n1b")),
        ("[1, 2, 3].values().drop(1).toArray()", json!([2, 3])),
        (
            "[...'ab'].entries().map(([i, c]) => i + c).toArray()",
            json!(["0a", "1b"]),
        ),
    ] {
        assert_eq!(value(expression), Ok(expected), "{expression}");
    }
}

#[test]
fn a_result_nested_deeper_than_the_json_parser_allows_is_an_error() {
    let nested =
        |levels: usize| format!("(() => {{ let a = 1; for (let i = 0; i < {levels}; i++) a = [a]; return a }})()");
    assert!(value(&nested(100)).is_ok());
    assert_error(value(&nested(100_000)), RunErrorCode::ScriptError, "levels");
}

#[test]
fn expressions_evicted_from_the_cache_are_compiled_again() {
    let mut evaluator = JsEvaluator::new(ExpressionLimits {
        cached: 8,
        ..Default::default()
    });
    let scope = scope(&json!({"v": 1}), &json!(null));
    for round in 0..3 {
        for n in 0..20 {
            assert_eq!(
                value_in(&mut evaluator, &format!("v + {n}"), &scope),
                Ok(json!(1 + n)),
                "round {round}"
            );
        }
    }
}
