//! Scripts that are cached between their steps: each step has the answer of an evaluation from the start, at the cost of its new results.

use std::sync::Arc;
use std::time::Duration;

use pirn::RunErrorCode;
use pirn::script::{CodeLimits, ScriptPort, ScriptSettings};
use pirn_actors::ports::Scripts;
use pirn_core::thread::{ScriptInstance, TokenFigures};
use pirn_tests::recorded_script::RecordedScript;
use pirn_tests::world::run_in;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Echo, engine, script};

/// A limit that a busy machine does not reach.
fn patient() -> ScriptSettings {
    ScriptSettings {
        code: CodeLimits {
            time: Duration::from_mins(2),
            ..CodeLimits::default()
        },
        ..ScriptSettings::default()
    }
}

/// Statements with host functions. `t(n)` records the order of execution.
fn statements() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => (0..100_u8).prop_map(|n| format!("t(await agent('a{n}'));")),
        2 => (0..100_u8).prop_map(|n| format!("t((await sleep({n})) ?? {n});")),
        1 => (0..100_u8).prop_map(|n| format!("t(await tool('x', {{ n: {n} }}));")),
        1 => (0..100_u8).prop_map(|n| format!("agent('u{n}').then(t, t);")),
        1 => Just("t([Math.random(), Date.now(), budget.spent(), `${budget.remaining()}`, budget.agents.remaining()]);".to_owned()),
        1 => (0..100_u8).prop_map(|n| format!("log('l', {n}, trace.length); phase('p{n}');")),
        1 => (0..100_u8).prop_map(|n| format!("if (trace.length % 3 === {n} % 3) throw new Error('x{n}');")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let many = prop::collection::vec(inner, 1..4);
        let functions = |bodies: &[String]| {
            let each = bodies
                .iter()
                .map(|body| format!("async () => {{ {body} return trace.length }}"));
            each.collect::<Vec<_>>().join(", ")
        };
        prop_oneof![
            many.clone().prop_map(|bodies| bodies.concat()),
            many.clone()
                .prop_map(move |bodies| format!("t(await parallel([{}]));", functions(&bodies))),
            many.clone()
                .prop_map(move |bodies| format!("t(await any([{}]));", functions(&bodies))),
            many.clone()
                .prop_map(move |bodies| format!("t(await race(50, [{}]));", functions(&bodies))),
            many.clone()
                .prop_map(move |bodies| format!("t(await threshold(2, [{}]));", functions(&bodies))),
            many.clone()
                .prop_map(move |bodies| format!("t(await Promise.all([{}].map(f => f())));", functions(&bodies))),
            many.clone()
                .prop_map(move |bodies| format!("t(await Promise.race([{}].map(f => f())));", functions(&bodies))),
            many.clone().prop_map(move |bodies| {
                format!(
                    "t(await pipeline([1, 2], async x => {{ {} return x }}, x => agent('s' + x)));",
                    bodies.concat()
                )
            }),
            many.clone().prop_map(|bodies| {
                let (first, rest) = bodies.split_first().expect("at least one");
                format!(
                    "try {{ {first} }} catch (e) {{ t(e.message); {} }} finally {{ t('f'); }}",
                    rest.concat()
                )
            }),
            many.prop_map(|bodies| format!("for (let i = 0; i < 2; i++) {{ {} }}", bodies.concat())),
        ]
    })
}

/// A random script.
fn scripts() -> impl Strategy<Value = String> {
    prop::collection::vec(statements(), 1..5).prop_map(|all| {
        let caught = all
            .iter()
            .map(|body| format!("try {{ {body} }} catch (e) {{ t(`c ${{e.message}}`) }}\n"));
        format!(
            "const trace = []; const t = x => {{ trace.push(x instanceof Error ? x.message : x); return x }};
            {}
            return trace",
            caught.collect::<String>()
        )
    })
}

/// State between two steps.
#[derive(Clone, Debug)]
struct Between {
    /// Calls that end, each with its result.
    ends: Vec<(usize, u8)>,
    /// True if the state is rebuilt, as after a restart.
    is_rebuilt: bool,
    /// True if another script is evaluated, which may evict this one.
    is_crowded: bool,
    spent: u64,
}

fn between() -> impl Strategy<Value = Vec<Between>> {
    let ends = prop::collection::vec((any::<usize>(), any::<u8>()), 1..4);
    let one = (ends, prop::bool::weighted(0.2), prop::bool::weighted(0.2), 0..500_u64);
    let one = one.prop_map(|(ends, is_rebuilt, is_crowded, spent)| Between {
        ends,
        is_rebuilt,
        is_crowded,
        spent,
    });
    prop::collection::vec(one, 40)
}

/// Executes a script with a cached session, and compares each step with an evaluation from the start. Returns the number of steps.
fn compare(code: &str, port: &ScriptPort, plan: &[Between], has_tokens: bool, drops: bool) -> u64 {
    let mut recorded = RecordedScript::new(code, patient().code);
    let mut others = Vec::new();
    let mut steps = 0;
    for between in plan {
        recorded.state.tokens = has_tokens.then_some(TokenFigures {
            total: 10_000,
            spent: between.spent,
        });
        let (live, evaluated) = (recorded.step(port), recorded.evaluated());
        assert_eq!(live, evaluated, "step {steps} of {code}");
        steps += 1;
        let answer = live.expect("no limit is exceeded");
        if recorded.record(&answer).is_some() || recorded.running.is_empty() {
            break;
        }
        for (which, result) in &between.ends {
            recorded.end_call(*which, *result);
        }
        if drops && between.is_rebuilt {
            recorded.state.instance = ScriptInstance::default();
        }
        if drops && between.is_crowded {
            let other = RecordedScript::new("await agent('other')", patient().code);
            other.step(port).expect("waits");
            others.push(other);
        }
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_step_of_a_kept_script_has_the_answer_of_an_evaluation_from_the_start(
        code in scripts(), plan in between(), has_tokens in any::<bool>()
    ) {
        let port = ScriptPort::new(patient());
        let steps = compare(&code, &port, &plan, has_tokens, false);
        let stats = port.stats();
        prop_assert_eq!((stats.evaluated_steps, stats.resumed_steps), (1, steps - 1), "{}", code);
    }

    #[test]
    fn a_script_that_is_dropped_at_random_steps_has_the_answers_of_one_that_is_kept(
        code in scripts(), plan in between(), has_tokens in any::<bool>()
    ) {
        let port = ScriptPort::new(ScriptSettings { live_scripts: 1, ..patient() });
        compare(&code, &port, &plan, has_tokens, true);
    }
}

const TWO_THOUSAND: &str = "let n = 0; for (let i = 0; i < 2000; i++) { await sleep(1); n++ } return n";

#[test]
fn the_cost_of_a_script_is_linear_in_its_sequential_calls() {
    let port = Arc::new(ScriptPort::new(patient()));
    let engine = engine(&Echo::default()).scripts(Arc::clone(&port));
    let ran = run_in(engine, &script(TWO_THOUSAND, json!({})), Value::Null, Vec::new());
    assert_eq!((&ran.report.error, &ran.report.output), (&None, &json!(2000)));
    let stats = port.stats();
    assert_eq!(
        (stats.evaluated_steps, stats.resumed_steps, stats.delivered_results),
        (1, 2000, 2000)
    );
    assert_eq!(stats.live_scripts, 0, "the script has ended");
}

#[test]
fn a_script_without_live_scripts_has_the_same_result() {
    let code =
        "const seen = []; for (let i = 0; i < 20; i++) seen.push(await agent(`a${i}`), Math.random()); return seen";
    let outputs = [0, 1].map(|live_scripts| {
        let settings = ScriptSettings {
            live_scripts,
            ..patient()
        };
        let engine = engine(&Echo::default()).scripts(settings);
        let ran = run_in(engine, &script(code, json!({})), Value::Null, Vec::new());
        assert_eq!(ran.report.error, None);
        ran.report.output.clone()
    });
    assert_eq!(outputs[0], outputs[1]);
}

#[test]
fn kept_scripts_are_limited_in_number_and_bytes_and_the_least_recently_used_is_released_first() {
    let waits = |port: &ScriptPort, code: &str| {
        let mut recorded = RecordedScript::new(code, patient().code);
        let answer = recorded.step(port).expect("waits");
        assert_eq!(recorded.record(&answer), None);
        recorded.end_call(0, 1);
        recorded
    };
    let port = ScriptPort::new(ScriptSettings {
        live_scripts: 2,
        ..patient()
    });
    let code = "await agent('a'); await agent('b'); return 1";
    let mut all: Vec<_> = (0..4).map(|_| waits(&port, code)).collect();
    assert_eq!(port.stats().live_scripts, 2);
    // The last two are cached.
    for (at, resumed) in [(3, 1), (2, 2), (0, 2)] {
        let answer = all[at].step(&port).expect("waits");
        assert_eq!(all[at].record(&answer), None);
        assert_eq!(port.stats().resumed_steps, resumed, "script {at}");
    }
    drop(all);
    assert_eq!(port.stats().live_scripts, 0, "their states are dropped");
    let port = ScriptPort::new(ScriptSettings {
        live_script_bytes: 6 << 20,
        ..patient()
    });
    let large = "const kept = 'x'.repeat(3 << 20); await agent('a'); return kept.length";
    let mut all: Vec<_> = (0..3).map(|_| waits(&port, large)).collect();
    assert_eq!(port.stats().live_scripts, 1, "each has more than half of the limit");
    for recorded in &mut all {
        let answer = recorded.step(&port).expect("ends");
        assert_eq!(recorded.record(&answer), Some(json!({ "returned": 3 << 20 })));
    }
    assert_eq!(port.stats().live_scripts, 0);
}

/// Steps a script until it ends. Returns the number of steps and the error.
fn until_it_fails(code: &str, limits: CodeLimits) -> (u32, RunErrorCode) {
    let port = ScriptPort::new(ScriptSettings {
        code: limits,
        ..ScriptSettings::default()
    });
    let mut recorded = RecordedScript::new(code, limits);
    for step in 0..5_000 {
        let answer = match recorded.step(&port) {
            Ok(answer) => answer,
            Err((code, _)) => return (step, code),
        };
        if let Some(end) = recorded.record(&answer) {
            let code = serde_json::from_value(end["failed"]["code"].clone());
            return (step, code.unwrap_or_else(|_| panic!("{end}")));
        }
        recorded.end_call(0, 1);
    }
    panic!("it did not end: {code}");
}

#[test]
fn the_limits_of_an_evaluation_apply_to_all_steps_of_a_kept_script_together() {
    let limits = CodeLimits {
        time: Duration::from_millis(300),
        memory: 8 << 20,
        ..CodeLimits::default()
    };
    let cases = [
        "let n = 0; for (;;) { for (let i = 0; i < 3e5; i++) n += i; await sleep(1) }",
        "const all = []; for (;;) { all.push('x'.repeat(1e5) + all.length); await sleep(1) }",
        "await sleep(1); for (;;) {}",
        "await sleep(1); for (;;) await 0",
        "await sleep(1); (function f() { return f() + 1 })()",
    ];
    for code in cases {
        let (_, error) = until_it_fails(code, limits);
        assert_eq!(error, RunErrorCode::ScriptLimitExceeded, "{code}");
    }
}
