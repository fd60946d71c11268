//! A snippet can access only its names, and no state of it remains.

use super::*;

#[test]
fn forbidden_globals_are_undefined() {
    for expression in [
        "typeof eval",
        "typeof Function",
        "typeof require",
        "typeof process",
        "typeof fetch",
        "typeof setTimeout",
        "typeof performance",
        "typeof Atomics",
        "typeof SharedArrayBuffer",
        "typeof WeakRef",
        "typeof std",
        "typeof os",
        "typeof Proxy",
        "typeof queueMicrotask",
        "typeof FinalizationRegistry",
        "typeof gc",
    ] {
        assert_eq!(value(expression), Ok(json!("undefined")), "{expression}");
    }
}

#[test]
fn strings_are_never_compiled_to_code() {
    for expression in [
        "eval('1')",
        "(0, eval)('1')",
        "new Function('return 1')()",
        "(() => {}).constructor('return 1')()",
        "(async () => {}).constructor('return 1')()",
        "(function* () {}).constructor('yield 1')()",
        "(async function* () {}).constructor('yield 1')()",
        "Object.getPrototypeOf(Object.getPrototypeOf(async () => {})).constructor('return 1')()",
        "[].constructor.constructor('return 1')()",
        "Object.getPrototypeOf((() => {}).constructor).constructor('return 1')()",
        "Reflect.construct((() => {}).constructor, ['return 1'])()",
        "Math.max.constructor('return 1')()",
    ] {
        let fault = value(expression).unwrap_err();
        let is_unknown = fault.code == RunErrorCode::UnknownName && fault.message.contains("Function");
        assert!(
            is_unknown || fault.code == RunErrorCode::ScriptError,
            "{expression}: {fault}"
        );
    }
}

#[test]
fn clocks_and_random_numbers_are_refused() {
    for expression in [
        "Date.now()",
        "new Date()",
        "Date()",
        "Math.random()",
        "(new Date(0)).constructor.now()",
    ] {
        assert_error(
            value(expression),
            RunErrorCode::ScriptError,
            "so that a run can be repeated",
        );
    }
    assert_eq!(
        value("new Date('2020-01-02T03:04:05Z').getTime() + Date.UTC(1970, 0)"),
        Ok(json!(1_577_934_245_000_i64))
    );
}

#[test]
fn no_change_to_globals_survives_an_evaluation() {
    let mut evaluator = patient();
    let scope = scope(&json!({"v": {"a": 1}}), &json!(null));
    for pollution in [
        "Object.prototype.polluted = 1",
        "({}).__proto__.polluted = 1",
        "[].constructor.prototype.polluted = 1",
        "globalThis.polluted = 1",
        "polluted = 1",
        "Object.defineProperty(Object.prototype, 'polluted', {value: 1})",
        "Object.setPrototypeOf(Object.prototype, {polluted: 1})",
        "Array.prototype.map = () => 'polluted'",
        "Math.max = () => 'polluted'",
        "JSON.stringify = () => 'polluted'",
        "delete Math.max",
        "String.prototype.polluted = 1",
        "Object.getPrototypeOf([].values()).next = () => ({done: true})",
        "Object.getPrototypeOf(function* () {}).polluted = 1",
        "Object.getPrototypeOf(''.matchAll(/a/g)).next = 1",
        "Error.prepareStackTrace = () => 'polluted'",
        "Error.stackTraceLimit = 0",
        "RegExp.prototype.exec = () => 'polluted'",
        "Object.getPrototypeOf(Int8Array).prototype.polluted = 1",
        "console.log = 1",
        "variables.v = 2",
        "delete variables.v",
        "Object.setPrototypeOf(variables, {polluted: 1})",
        "v = 2",
        "input = 2",
        "(function () { this.polluted = 1 })()",
        "undefined = 1",
        "Object.assign(globalThis, {polluted: 1})",
        "Reflect.defineProperty(globalThis, 'polluted', {value: 1}) && polluted",
        "Symbol.prototype.polluted = 1",
        "v.a = 2",
        "(v.a = 3, v.b = 4)",
    ] {
        let _ = value_in(&mut evaluator, pollution, &scope);
        let check = "[typeof polluted, ({}).polluted, [].polluted, Math.max(1, 2), JSON.stringify([1].map(x => x)), \
                     v.a, v.b, variables.v.a, typeof Error.prepareStackTrace, [...'ab'].length, /a/.exec('a').length, \
                     (() => { try { null.x } catch (e) { return typeof e.stack } })()]";
        let clean = json!([
            "undefined",
            null,
            null,
            2,
            "[1]",
            1,
            null,
            1,
            "undefined",
            2,
            1,
            "string"
        ]);
        assert_eq!(value_in(&mut evaluator, check, &scope), Ok(clean), "after {pollution}");
    }
}

/// Snippets that try to retain their input: under a getter that runs while the result is converted, on objects shared by all
/// snippets of a realm, and in caches by name.
const WRITERS: &[&str] = &[
    "({ get a() { return input.secret } })",
    "({ toJSON() { return [input, variables.own, output] } })",
    "new Error(input.secret)",
    "(() => { throw { get message() { return input.secret } } })()",
    "(() => { throw { toString() { return input.secret }, get name() { return variables.own } } })()",
    "(() => { const e = new Error('x'); Object.defineProperty(e, 'message', { get: () => input.secret }); throw e })()",
    "({ get [Symbol.toStringTag]() { return input.secret } })",
    "[{ get a() { return output } }, { get b() { return variables.own } }]",
    "$pirn_at.kept = input.secret",
    "Object.assign($pirn_at, { kept: input.secret })",
    "Object.setPrototypeOf($pirn_at, { kept: input.secret })",
    "(function () { 'use strict'; Object.getOwnPropertyDescriptor(arguments, 'callee').get.kept = input.secret })()",
    "Object.getOwnPropertyDescriptor(Function.prototype, 'caller')?.get?.constructor.kept ?? (Function.kept = input.secret)",
    "(f => { f.raw.kept = input.secret })((s => s)`x`)",
    "console.kept = input.secret",
    "console.log.kept = input.secret",
    "variables.kept = input.secret",
    "Reflect.setPrototypeOf(nodes, { kept: input.secret })",
    "(/kept/g).lastIndex = 3, /(.*)/.exec(input.secret)",
    "(async () => { await 0; return input.secret })()",
    "({ then(done) { done(input.secret) } })",
    "Symbol.for(input.secret).description",
    "({}).constructor.kept = input.secret",
    "Object.getPrototypeOf(async function* () {}).prototype.kept = input.secret",
    "[...'a'].values().map(x => x).__proto__.kept = input.secret",
    "Object.defineProperty(globalThis, 'kept', { value: input.secret })",
    "(function () { this.kept = input.secret }).call(this)",
    "(function () { return this.kept = input.secret })()",
];

/// Snippets that look for data retained by another.
const READERS: &[&str] = &[
    "[input, 0]",
    "[output, variables.own, typeof own]",
    "[typeof kept, globalThis.kept, ({}).kept, (() => 1).kept]",
    "[$pirn_at.kept, console.kept, console.log.kept, variables.kept, nodes.kept]",
    "(function () { 'use strict'; return [Object.getOwnPropertyDescriptor(arguments, 'callee').get.kept] })()",
    "[(s => s)`x`.raw.kept, /kept/g.lastIndex, RegExp.$1, RegExp.input, RegExp.lastMatch]",
    "Object.getOwnPropertyNames($pirn_at).concat(Object.keys(variables), Object.keys(nodes))",
    "Object.getOwnPropertyNames(globalThis)",
    "[Object.getPrototypeOf(async function* () {}).prototype.kept, [...'a'].values().map(x => x).kept]",
];

#[test]
fn an_expression_never_sees_the_scope_of_another() {
    let secret = "canary-7f3a";
    let rich = ScopeValues {
        output: Arc::new(json!(secret)),
        ..scope(&json!({ "own": secret, "kept": secret }), &json!({ "secret": secret }))
    };
    let poor = scope(&json!({}), &json!("mine"));
    let mut evaluator = patient();
    for writer in WRITERS {
        for reader in READERS {
            let _ = value_in(&mut evaluator, writer, &rich);
            let _ = evaluator.truth_of(writer, &rich);
            let seen = value_in(&mut evaluator, reader, &poor);
            assert!(
                !format!("{seen:?}").contains(secret),
                "{reader} after {writer}: {seen:?}"
            );
        }
    }
}

#[test]
fn getters_in_a_result_read_the_scope_of_their_own_evaluation() {
    let mut evaluator = patient();
    let with = |secret: &str| scope(&json!({}), &json!({ "secret": secret }));
    let getter = "({ get a() { return input.secret } })";
    for secret in ["one", "two"] {
        assert_eq!(
            value_in(&mut evaluator, getter, &with(secret)),
            Ok(json!({ "a": secret }))
        );
        let thrown = "(() => { throw { toJSON: () => input.secret } })()";
        assert_error(
            value_in(&mut evaluator, thrown, &with(secret)),
            RunErrorCode::ScriptError,
            secret,
        );
    }
}

#[test]
fn memory_used_by_an_expression_is_available_to_the_next() {
    let mut evaluator = patient();
    let nothing = scope(&json!({}), &json!(null));
    // A list that contains itself stays allocated until garbage collection.
    let fill = "(() => { const list = ['x'.repeat(5e7)]; list.push(list) })()";
    assert_eq!(value_in(&mut evaluator, fill, &nothing), Ok(json!(null)));
    let needs = "'y'.repeat(3e7).length";
    assert_eq!(value_in(&mut evaluator, needs, &nothing), Ok(json!(30_000_000)));
}

#[test]
fn an_expression_cannot_close_the_wrapper_around_it() {
    let mut evaluator = patient();
    let nothing = scope(&json!({}), &json!(null));
    for escape in [
        "1); } }); } }); let leaked = 1; (function () { with ({}) { return (function () { a: { return (1",
        "1); break a; } }); globalThis.leaked = 1; (function () { a: { return (1",
        "1\n);}});}})({}); let leaked = 1; (function(a,b){with(a){return (function () { { return (1",
        "1 /*",
        "1 //",
        "`",
        "1 <!-- ",
        "1\n--> x",
    ] {
        let _ = value_in(&mut evaluator, escape, &nothing);
        let found = value_in(&mut evaluator, "typeof leaked + typeof a", &nothing);
        assert_eq!(found, Ok(json!("undefinedundefined")), "after {escape}");
    }
}

#[test]
fn pending_promises_of_an_expression_never_run() {
    let mut evaluator = patient();
    let scope = scope(&json!({"v": 1}), &json!(null));
    let started = value_in(
        &mut evaluator,
        "(Promise.resolve().then(() => { for (;;) {} }), v + 1)",
        &scope,
    );
    assert_eq!(started, Ok(json!(2)));
    assert_eq!(value_in(&mut evaluator, "v + 2", &scope), Ok(json!(3)));
}

#[test]
fn the_order_of_evaluations_changes_nothing() {
    let scope = scope(&json!({"list": [3, 1, 2], "o": {"a": {"b": 1}}}), &json!([1]));
    let expressions = [
        "list.sort()",
        "list[0]+0",
        "o.a.b += 1",
        "delete o.a",
        "o",
        "input.push(2)",
        "input.length+0",
        "list.length=0",
    ];
    let mut forward = patient();
    let mut backward = patient();
    let one: Vec<_> = expressions
        .iter()
        .map(|text| value_in(&mut forward, text, &scope))
        .collect();
    let mut other: Vec<_> = expressions
        .iter()
        .rev()
        .map(|text| value_in(&mut backward, text, &scope))
        .collect();
    other.reverse();
    assert_eq!(one, other);
}

#[test]
fn modules_cannot_be_loaded() {
    for expression in ["import('fs')", "require('fs')"] {
        assert!(value(expression).is_err(), "{expression}");
    }
}
