//! A seed determines the whole run: report, events, faults and the random numbers of scripts.

use std::sync::Arc;
use std::time::Duration;

use pirn::faults::{Faults, Rates};
use pirn::tools::tool_fn;
use pirn::{Engine, EngineBuilder, EventType, Profile, RunReport, SubscriptionItem, ThreadStatus, simulate};
use pirn_tests::world::{code, forked, line, node, wait};
use serde_json::{Value, json};

/// Returns a run's report and its event log, in the format of `pirn run`.
fn logged(builder: EngineBuilder, id: &str) -> (String, Vec<String>) {
    let engine = builder.build().expect("the workflows are in order");
    let mut run = engine.run(id);
    let events = run.blocking_events(&[], 1 << 16);
    let handle = run.start().expect("admitted");
    let report = handle.outcome_blocking();
    handle.wait_all_ended_blocking();
    let told = |heard| match heard {
        SubscriptionItem::Event(event) => serde_json::to_string(&*event).expect("events are JSON"),
        SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
    };
    let events = events.map(told).collect();
    engine.shutdown_blocking(Duration::from_secs(5));
    (serde_json::to_string(&*report).expect("reports are JSON"), events)
}

fn profile() -> Profile {
    let call = json!([{ "name": "look", "arguments": {} }]);
    let responses = json!([{ "toolCalls": call }, { "content": "found", "delayMs": 30 }, { "content": "again" }]);
    serde_json::from_value(json!({ "id": "default", "provider": "scripted", "responses": responses }))
        .expect("a profile")
}

/// Returns a workflow with concurrent models, tools, scripts that use random numbers, waits, a retry and a join with a time
/// limit.
fn busy() -> Value {
    let ask = |id: &str| {
        let mut node = node(id, "LLM", json!({ "prompt": "hello", "tools": ["look"] }));
        node["retry"] = json!({ "maxAttempts": 3, "initialDelayMs": 100, "backoff": 2, "maxDelayMs": 1000 });
        node
    };
    let branches = [
        vec![ask("a"), code("draw", "return Math.random()")],
        vec![ask("b"), wait("nap", 700)],
        vec![code("c", "return [Math.random(), Math.random()]"), wait("rest", 400)],
    ];
    forked(
        &branches,
        false,
        &json!({ "joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2, "timeout": 20 }),
    )
}

fn engine(seed: u64) -> EngineBuilder {
    let rates = Rates {
        fail: 0.2,
        stall: 0.1,
        stall_ms: 60_000,
        late: 0.5,
        late_ms: (10, 2_000),
    };
    let faults = Faults {
        models: [("*".to_owned(), rates)].into(),
        tools: [("look".to_owned(), rates)].into(),
    };
    let look = tool_fn("look", "Looks", json!({ "type": "object" }), |_| async {
        Ok("seen".to_owned())
    });
    Engine::builder()
        .workflows(busy().to_string())
        .profiles([profile()])
        .tool(look)
        .faults(faults)
        .simulated(seed)
}

#[test]
fn equal_seeds_give_equal_reports_and_events_byte_for_byte() {
    let mut different = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (first, second) = (logged(engine(seed), "forked"), logged(engine(seed), "forked"));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.1.len() > 20, "seed {seed}: {:?}", first.1);
        different.insert(first);
    }
    assert!(
        different.len() > 50,
        "the seed matters: {} different runs",
        different.len()
    );
}

#[test]
fn subscribing_to_a_run_does_not_change_it() {
    let watched = |seed, types: Option<&[EventType]>| {
        let engine = engine(seed).build().expect("the workflows are in order");
        let mut run = engine.run("forked");
        let _events = types.map(|types| run.blocking_events(types, 1 << 16));
        let report = run.start().expect("admitted").outcome_blocking();
        engine.shutdown_blocking(Duration::from_secs(5));
        serde_json::to_string(&*report).expect("reports are JSON")
    };
    for seed in 0..30 {
        let alone = watched(seed, None);
        assert_eq!(alone, watched(seed, Some(&[EventType::NodeFailed])), "seed {seed}");
        assert_eq!(alone, watched(seed, Some(&[])), "seed {seed}");
    }
}

#[test]
fn injected_faults_occur_and_retries_succeed() {
    let (mut failed, mut completed) = (0, 0);
    for seed in 0..40 {
        let (report, events) = logged(engine(seed), "forked");
        failed += usize::from(
            events
                .iter()
                .any(|event| event.contains("a fault of the configuration: it failed")),
        );
        completed += usize::from(report.contains("\"status\":\"COMPLETED\""));
    }
    assert!(
        failed > 5 && completed > 5,
        "{failed} with a failure, {completed} completed"
    );
}

fn drawing() -> Value {
    line(
        "draws",
        &[
            code("a", "return Math.random()"),
            code("b", "return [output, Math.random(), Math.random()]"),
        ],
    )
}

#[test]
fn each_script_draws_random_numbers_from_a_separate_sequence_of_the_seed() {
    let drawn = |builder: EngineBuilder| {
        let engine = builder.workflows(drawing().to_string()).build().expect("in order");
        let output = engine
            .start("draws", Value::Null)
            .expect("admitted")
            .outcome_blocking()
            .output
            .clone();
        engine.shutdown_blocking(Duration::from_secs(5));
        output
    };
    let first = drawn(Engine::builder().simulated(7));
    assert_eq!(first, drawn(Engine::builder().simulated(7)));
    assert_ne!(first, drawn(Engine::builder().simulated(8)));
    let numbers: Vec<f64> = first
        .as_array()
        .expect("three")
        .iter()
        .filter_map(Value::as_f64)
        .collect();
    assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)), "{numbers:?}");
    assert_ne!(first[0], first[1], "two nodes draw differently");
    let on_real_threads = drawn(Engine::builder().seed(7));
    assert!(on_real_threads.is_array(), "{on_real_threads}");
}

#[test]
fn without_a_seed_a_script_has_no_random_numbers() {
    let engine = Engine::builder()
        .workflows(drawing().to_string())
        .build()
        .expect("in order");
    let report: Arc<pirn::RunReport> = engine.start("draws", Value::Null).expect("admitted").outcome_blocking();
    assert_eq!(
        report.error.as_ref().map(|error| error.code.as_str()),
        Some("SCRIPT_ERROR")
    );
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_stalled_call_fails_at_its_clients_time_limit() {
    let rates = Rates {
        stall: 1.0,
        stall_ms: 90_000,
        ..Rates::default()
    };
    let faults = Faults {
        models: [("*".to_owned(), rates)].into(),
        ..Faults::default()
    };
    let builder = Engine::builder()
        .workflows(line("ask", &[node("llm", "LLM", json!({ "prompt": "hello" }))]).to_string())
        .faults(faults)
        .simulated(1);
    let report: Value = serde_json::from_str(&logged(builder, "ask").0).expect("JSON");
    assert_eq!(
        (&report["error"]["code"], &report["elapsedMs"]),
        (&json!("MODEL_ERROR"), &json!(90_000))
    );
}

#[test]
fn the_first_failing_seed_is_reported_and_reproducible() {
    let simulated = simulate(|| engine(0)).seeds(5..60).run().expect("played");
    let failure = simulated.failure.as_ref().expect("one of them fails");
    let alone = logged(engine(failure.seed), "forked").0;
    assert_eq!(serde_json::to_string(&*failure.report).expect("JSON"), alone);
    assert_eq!(simulated.played, failure.seed - 5 + 1, "{simulated}");
    for seed in 5..failure.seed {
        let report = logged(engine(seed), "forked").0;
        assert!(report.contains("\"status\":\"COMPLETED\""), "seed {seed}: {report}");
    }
    let all = simulate(|| engine(0))
        .seeds(5..60)
        .keep_going(true)
        .run()
        .expect("played");
    assert_eq!((all.played, &all.failure), (55, &simulated.failure));
    assert_eq!(all.failed, all.statuses[&ThreadStatus::Failed]);
}

#[test]
fn a_simulation_accepts_a_failure_check_and_a_stop_condition() {
    let builder = || Engine::builder().workflows(drawing().to_string());
    let drew_much = |report: &RunReport| match report.output[0].as_f64() {
        Some(drawn) if drawn < 0.9 => Ok(()),
        other => Err(format!("it drew {other:?}")),
    };
    let simulated = simulate(builder).seeds(0..500).check(drew_much).run().expect("played");
    let failure = simulated.failure.expect("one in ten");
    assert_eq!(failure.report.status, ThreadStatus::Completed);
    assert!(failure.message.contains("it drew Some(0.9"), "{}", failure.message);
    let mut left = 3;
    let stopped = simulate(builder).stop_when(move || {
        left -= 1;
        left == 0
    });
    let stopped = stopped.run().expect("played");
    assert_eq!((stopped.played, stopped.interrupted), (2, true));
}

#[test]
fn a_run_that_waits_for_ever_is_cancelled_and_reported() {
    let waiting = line("wait", &[node("w", "WAIT", json!({ "event": "never" }))]);
    let simulated = simulate(move || Engine::builder().workflows(waiting.to_string()))
        .run()
        .expect("played");
    let failure = simulated.failure.expect("the first");
    assert_eq!((failure.seed, failure.report.status), (0, ThreadStatus::Cancelled));
    assert!(failure.message.contains("waits for ever"), "{}", failure.message);
}
