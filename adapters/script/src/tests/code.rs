//! CODE: visible names, results, and failures.

use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;
use crate::{CodeJob, CodeOutcome, HostFunctions, StopFlag};

fn job(code: &str) -> CodeJob {
    let mut scope = scope(&json!({"n": 2, "o": {"a": 1}}), &json!({"x": 1}));
    scope.output = Arc::new(json!("last"));
    CodeJob::new(code, &scope)
}

fn run(code: &str) -> Result<Value, ScriptFault> {
    job(code).run_inline().result
}

#[test]
fn the_return_value_is_the_output() {
    assert_eq!(run("return n * 21"), Ok(json!(42)));
    assert_eq!(
        run("const { a } = o; let n = a + 1; return { n, input, output }"),
        Ok(json!({"n": 2, "input": {"x": 1}, "output": "last"}))
    );
    assert_eq!(run("n + 1"), Ok(json!(null)));
    assert_eq!(
        run("return await Promise.all([1, Promise.resolve(2), (async () => 3)()])"),
        Ok(json!([1, 2, 3]))
    );
    assert_eq!(
        run("for await (const x of [1, 2]) { if (x == 2) return x } // the end"),
        Ok(json!(2))
    );
    assert_eq!(run("o.a = 5; return variables.o.a + o.a"), Ok(json!(10)));
    assert_eq!(run("function f() { return 1 }\nreturn f()"), Ok(json!(1)));
    assert_eq!(
        run("const e = new Error('x'); e.name = 'Mine'; return String(e)"),
        Ok(json!("Mine: x"))
    );
}

#[test]
fn a_thrown_value_becomes_the_error_of_the_script() {
    assert_error(run("throw new Error('no')"), RunErrorCode::ScriptError, "no");
    assert_error(
        run("await Promise.reject(new TypeError('no'))"),
        RunErrorCode::ScriptError,
        "TypeError: no",
    );
    assert_error(run("n = 3"), RunErrorCode::ScriptError, "cannot be assigned");
    assert_error(run("variables.n = 3"), RunErrorCode::ScriptError, "VARIABLE node");
    assert_error(run("return ("), RunErrorCode::ScriptError, "SyntaxError");
    let fault = run("let a = 1;\n\nnull.x").unwrap_err();
    assert_eq!(fault.details.unwrap()["line"], json!(3));
}

#[test]
fn a_thrown_null_or_undefined_is_an_error_of_the_script() {
    for (code, expected) in [
        ("throw null", "it threw null"),
        ("throw undefined", "it threw undefined"),
        ("throw 'null'", "null"),
        ("const x = o.none ?? null; throw x", "it threw null"),
        ("await Promise.reject(null)", "it threw null"),
        ("return Promise.reject()", "it threw undefined"),
        ("return new Promise((_, no) => no(null))", "it threw null"),
        ("[1].map(() => { throw null })", "it threw null"),
        ("return { toJSON() { throw null } }", "it threw null"),
        ("(function* () { yield 1 })().throw(null)", "it threw null"),
        // A third of the memory is in use.
        ("const all = new Array(1e6).fill(1); throw null", "it threw null"),
    ] {
        let fault = run(code).unwrap_err();
        assert_eq!(
            (fault.code, &*fault.message),
            (RunErrorCode::ScriptError, expected),
            "{code}"
        );
    }
}

#[test]
fn memory_exhausted_in_small_steps_is_reported_as_the_limit() {
    // QuickJS throws null here, because the rest of the memory does not suffice for an error.
    for code in [
        "const all = []; for (;;) all.push({})",
        "let last = null; for (;;) last = { last }",
        "const last = (n) => { let last = null; for (;;) last = { last } }; last()",
        "const last = async () => { let last = null; for (;;) last = { last } }; return last()",
        // The script could throw null, but its variables use the memory when the error reaches its start.
        "let last = null; try { for (;;) last = { last } } catch (error) { throw error }",
        "let last = null; if (n > 5) throw null; for (;;) last = { last }",
    ] {
        let mut small = job(code);
        small.limits.memory = 4 << 20;
        assert_error(
            small.run_inline().result,
            RunErrorCode::ScriptLimitExceeded,
            "memory limit",
        );
    }
}

#[test]
fn a_promise_that_never_settles_is_an_error() {
    assert_error(
        run("await new Promise(() => {})"),
        RunErrorCode::ScriptError,
        "will never settle",
    );
}

#[test]
fn a_script_that_never_ends_is_stopped() {
    for code in [
        "for (;;) {}",
        "for (;;) await 0",
        "for (;;) try { await 0; for (;;) {} } catch {}",
        "(async () => { for (;;) await 0 })(); await new Promise(() => {})",
    ] {
        let mut job = job(code);
        job.limits.time = Duration::from_millis(50);
        assert_error(job.run_inline().result, RunErrorCode::ScriptLimitExceeded, "time limit");
    }
}

#[test]
fn a_stopped_script_ends_promptly() {
    let mut endless = job("started(); for (;;) {}");
    let (started, has_started) = channel();
    endless.functions = Arc::new(HostFunctions::default().with("started", move |_| {
        started
            .send(())
            .map_err(|error| error.to_string())
            .map(|()| Value::Null)
    }));
    endless.limits.time = Duration::from_hours(1);
    let stop = endless.stop.clone();
    let running = std::thread::spawn(move || endless.run_inline().result);
    has_started.recv().unwrap();
    stop.stop();
    assert_error(running.join().unwrap(), RunErrorCode::Cancelled, "stopped");

    let mut never_begun = job("return 1");
    never_begun.stop = StopFlag::default();
    never_begun.stop.stop();
    assert_error(never_begun.run_inline().result, RunErrorCode::Cancelled, "stopped");
}

#[test]
fn host_functions_are_called_by_name_and_their_panics_become_errors() {
    let functions = Arc::new(
        HostFunctions::default()
            .with("sum", |arguments| {
                Ok(json!(arguments.iter().filter_map(Value::as_i64).sum::<i64>()))
            })
            .with("fails", |_| Err("it is closed".to_owned()))
            .with("panics", |_| panic!("a bug of the host"))
            .with("n", |_| Ok(json!("shadowed by the variable"))),
    );
    let run = |code: &str| {
        CodeJob {
            functions: functions.clone(),
            ..job(code)
        }
        .run_inline()
        .result
    };
    assert_eq!(run("return sum(1, 2, n) + (await sum(4))"), Ok(json!(9)));
    assert_eq!(
        run("try { fails() } catch (e) { return e.message }"),
        Ok(json!("fails: it is closed"))
    );
    assert_eq!(run("return n"), Ok(json!(2)));
    assert_eq!(
        run("try { sum(() => 1) } catch (e) { return e.message }"),
        Ok(json!("sum: an argument is a function"))
    );
    assert_error(run("panics()"), RunErrorCode::ScriptError, "panics: it panicked");
    assert_eq!(
        run("return typeof sum.constructor('return 1')").unwrap_err().code,
        RunErrorCode::ScriptError
    );
}

#[test]
fn logs_are_retained_up_to_a_limit() {
    let CodeOutcome { result, logs } =
        job("console.log('a', 1, {b: [2]}); console.warn(new Error('x')); return 1").run_inline();
    assert_eq!(result, Ok(json!(1)));
    assert_eq!(
        logs.lines().collect::<Vec<_>>(),
        [("log", r#"a 1 {"b":[2]}"#), ("warn", "Error: x")]
    );
    let logs = job("for (let i = 0; i < 5000; i++) console.log(i); throw 1")
        .run_inline()
        .logs;
    assert_eq!((logs.lines().count(), logs.dropped()), (100, 4900));
}

#[test]
fn random_numbers_are_repeatable_and_require_a_seed() {
    let with_seed = |seed| {
        CodeJob {
            seed,
            ..job("return [Math.random(), Math.random()]")
        }
        .run_inline()
        .result
    };
    let drawn = with_seed(Some(7)).unwrap();
    assert_eq!(with_seed(Some(7)), Ok(drawn.clone()));
    assert_ne!(with_seed(Some(8)), Ok(drawn.clone()));
    assert_ne!(drawn[0], drawn[1]);
    assert!((0.0..1.0).contains(&drawn[0].as_f64().unwrap()));
    assert_error(with_seed(None), RunErrorCode::ScriptError, "seed");
}

#[test]
fn scripts_do_not_see_changes_by_other_scripts() {
    let _ = run("Object.prototype.polluted = 1; globalThis.polluted = 1; Array.prototype.map = null; return 1");
    assert_eq!(
        run("return [typeof polluted, typeof {}.polluted, typeof [].map]"),
        Ok(json!(["undefined", "undefined", "function"]))
    );
}

#[test]
fn the_compression_node_of_the_seed_workflow_runs() {
    let context =
        json!({"messages": [{"role": "user"}], "markMap": {}, "compressionConfig": {"strategy": "keep_recent"}});
    let code = "
          const { messages, markMap, compressionConfig } = compressionContext;
          // \u{6267}\u{884c}\u{538b}\u{7f29}\u{903b}\u{8f91}
          return compressMessages(messages, markMap, compressionConfig);
        ";
    let functions = HostFunctions::default().with("compressMessages", |arguments| Ok(json!({"got": arguments.len()})));
    let job = CodeJob {
        functions: Arc::new(functions),
        ..CodeJob::new(code, &scope(&json!({"compressionContext": context}), &json!(null)))
    };
    assert_eq!(job.run_inline().result, Ok(json!({"got": 3})));
}

#[test]
fn a_prepared_realm_is_fresh_and_has_the_options_of_its_snippet() {
    use crate::quickjs::reserve::RealmReserve;

    let mut reserve = RealmReserve::default();
    let functions = |answer: i32| Arc::new(HostFunctions::default().with("answer", move |_| Ok(json!(answer))));
    let (first, second) = (functions(1), functions(2));
    let spoil = "const before = [typeof seen, [].seen ?? null, answer()];
        globalThis.seen = 1; Array.prototype.seen = 2; console.log('x'); return before";
    for functions in [&first, &first, &second, &second, &first] {
        let mut spoils = job(spoil);
        spoils.functions = Arc::clone(functions);
        let expected = json!([
            "undefined",
            null,
            functions.call("answer", Vec::new()).expect("an answer")
        ]);
        let CodeOutcome { result, logs } = spoils.run_in(&mut reserve);
        assert_eq!((result, logs.lines().count()), (Ok(expected), 1));
        reserve.prepare();
    }
    let mut endless = job("while (true) {}");
    endless.limits.time = Duration::from_millis(20);
    assert_error(
        endless.run_in(&mut reserve).result,
        RunErrorCode::ScriptLimitExceeded,
        "time limit",
    );
    reserve.prepare();
    let large = "return new Array(1e6).fill('x').join('').length";
    assert_eq!(job(large).run_in(&mut reserve).result, Ok(json!(1_000_000)));
    reserve.prepare();
    let mut small = job(large);
    small.limits.memory = 2 << 20;
    assert_error(
        small.run_in(&mut reserve).result,
        RunErrorCode::ScriptLimitExceeded,
        "memory limit",
    );
}
