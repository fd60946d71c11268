//! Scripts that try to exceed their limits or to change what the engine sees.

use std::time::Duration;

use pirn::EngineBuilder;
use pirn::script::{CodeLimits, ScriptSettings};
use pirn_tests::world::run_in;
use serde_json::{Value, json};

use super::{Echo, engine, runs, script};

/// An engine with a short time limit, so that endless scripts end soon.
fn limited_engine(echo: &Echo) -> EngineBuilder {
    let code = CodeLimits {
        time: Duration::from_millis(400),
        ..CodeLimits::default()
    };
    let settings = ScriptSettings {
        code,
        ..ScriptSettings::default()
    };
    engine(echo).scripts(settings)
}

#[test]
fn hostile_scripts_end_within_their_limits_with_a_clear_error() {
    let limited = "SCRIPT_LIMIT_EXCEEDED";
    let cases = [
        ("for (;;) {}", limited),
        (
            "await agent('a'); while (true) { try { for (;;) {} } catch {} }",
            limited,
        ),
        ("(function f() { return f() })()", limited),
        ("const f = () => f(); try { f() } catch (e) { for (;;) {} }", limited),
        ("for (;;) await 0", limited),
        (
            "const spin = async () => { for (;;) { try { await 0 } catch {} } }; spin(); await agent('x'); return 1",
            limited,
        ),
        ("let s = 'x'; for (;;) s += s", limited),
        ("const all = []; for (;;) all.push(new Array(1000).fill(1))", limited),
        (
            "await parallel(Array.from({ length: 10000 }, (_, i) => () => agent(`a${i}`)))",
            limited,
        ),
        ("let last = null; for (;;) last = { last }", limited),
        ("throw null", "SCRIPT_ERROR"),
        ("await agent('a'); throw undefined", "SCRIPT_ERROR"),
        ("for (let i = 0; ; i++) await agent(`a${i}`)", limited),
        ("for (;;) { try { sleep(1) } catch {} }", limited),
        ("for (;;) await sleep(0)", limited),
        ("for (;;) { await any([() => sleep(0), () => sleep(1)]) }", limited),
        (
            "await parallel(Array.from({ length: 20000 }, () => () => event('never')))",
            limited,
        ),
        ("return await workflow('main', null)", "SCRIPT_ERROR"),
        ("for (;;) { try { log('x'.repeat(1e5)) } catch {} }", limited),
        ("return 'x'.repeat(3e7)", ""),
        ("const o = {}; o.o = o; await agent('a', { schema: o })", "SCRIPT_ERROR"),
        ("await agent({ toString() { for (;;) {} } })", "SCRIPT_ERROR"),
        ("await tool('rm', { toJSON() { for (;;) {} } })", limited),
        ("await agent('a', new Proxy({}, { get() { for (;;) {} } }))", limited),
        (
            "return globalThis.constructor.constructor('return process')()",
            "SCRIPT_ERROR",
        ),
        ("return await import('fs')", "SCRIPT_ERROR"),
        ("return await fetch('http://localhost')", ""),
        ("await agent('x'.repeat(2e5)); await agent('x'.repeat(2e5))", limited),
        ("await sleep(-1)", "SCRIPT_ERROR"),
        ("await sleep(1e300)", "SCRIPT_ERROR"),
        ("await new Promise(() => {})", "SCRIPT_ERROR"),
        ("}}}); agent('x'); ({", ""),
    ];
    let mut wrong = Vec::new();
    for (code, expected) in cases {
        let bundle = script(code, json!({ "limits": { "calls": 300, "resultBytes": 100_000 } }));
        let echo = Echo::default();
        // Some are refused before they run.
        if limited_engine(&echo).workflows(bundle.to_string()).build().is_err() {
            continue;
        }
        let ran = run_in(limited_engine(&echo), &bundle, Value::Null, Vec::new());
        let code_of_error = ran.report.error.as_ref().map_or("none", |error| error.code.as_str());
        let message = ran.report.error.as_ref().map_or("", |error| error.message.as_str());
        if !expected.is_empty() && (code_of_error != expected || message.len() < 10) {
            wrong.push(format!("{code}: {code_of_error}: {message}"));
        }
        assert!(echo.prompts().len() <= 101, "{code}: {} agents", echo.prompts().len());
        assert!(
            ran.report.threads.iter().all(|thread| thread.status.is_final()),
            "{code}"
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn changed_built_in_objects_do_not_change_what_the_engine_performs() {
    let pollutions = [
        "Array.prototype.push = () => 0",
        "Object.defineProperty(Array.prototype, '0', { set() {}, get() { return 'evil' } })",
        "Object.defineProperty(Object.prototype, 'kind', { get() { return 'tool' }, set() {} })",
        "Object.prototype.error = { code: 'X', message: 'evil' }",
        "Promise.prototype.then = () => ({ evil: true })",
        "JSON.stringify = () => '{\"evil\":1}'; JSON.parse = () => ({})",
        "String.prototype.slice = () => { throw 1 }; Array.isArray = () => false",
        "globalThis.Promise = class {}; globalThis.Error = class {}",
        "Reflect.apply = () => 0; Object.getPrototypeOf(() => 0).call = () => 0",
        "Symbol.iterator && (Array.prototype[Symbol.iterator] = function* () { yield 'evil' })",
    ];
    for pollution in pollutions {
        let code =
            format!("{pollution}\nlet x\ntry {{ x = await agent('one') }} catch (e) {{ x = 'thrown' }}\nreturn x");
        let echo = Echo::default();
        let ran = run_in(engine(&echo), &script(&code, json!({})), Value::Null, Vec::new());
        // The call is performed as requested, or the script fails: nothing else reaches the engine.
        let is_as_asked = ran.report.output == json!("re: one") && echo.prompts() == ["one"];
        let has_failed = ran.report.error.is_some() || ran.report.output == json!("thrown");
        assert!(
            is_as_asked || has_failed,
            "{pollution}: {:?} {:?}",
            ran.report.output,
            echo.prompts()
        );
        assert!(echo.prompts().len() <= 1, "{pollution}");
    }
}

#[test]
fn a_script_sees_no_variables_and_no_network_and_repeats_its_random_numbers() {
    let code =
        "const drawn = Math.random(); await agent('a'); const more = [Math.random(), Date.now(), new Date().getTime()]
        return [drawn, ...more, typeof require, typeof process, typeof fetch, typeof setTimeout]";
    let (one, two) = (runs(code, json!({}), Value::Null), runs(code, json!({}), Value::Null));
    assert_eq!(one.report.error, None);
    assert_eq!(one.report.output, two.report.output);
    assert_eq!(one.report.output[4], json!("undefined"));
}
