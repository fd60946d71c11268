//! Runs that wait for a long time are parked, and this changes nothing that a client can observe.

use std::time::Duration;

use futures::executor::block_on;
use pirn::store::MemoryStore;
use pirn::{AnswerRefused, Engine, EventFilter, RunHandle, SubscriptionItem, ThreadStatus};
use serde_json::{Value, json};

use super::faults::external_effects::{Known, Outside, RUN, answered};
use super::faults::failing_store::{Crash, Failing};
use super::shapes::{MORE_SHAPES, bundle};
use super::workflows;

/// Waits for a person, an event and a time, one after the other.
const BUNDLE: &str = r#"{"workflows": [
    {"id": "main", "nodes": [
        {"id": "start", "type": "START"},
        {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}},
        {"id": "go", "type": "WAIT", "config": {"event": "go"}},
        {"id": "nap", "type": "WAIT", "config": {"seconds": 600}},
        {"id": "end", "type": "END", "config": {"output": "[nodes.ask.answer, nodes.go.data.n, input]"}}],
      "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "go"}, {"from": "go", "to": "nap"}, {"from": "nap", "to": "end"}]}]}"#;

/// A workflow that takes 100 seconds.
const PASS: &str = r#"{"id": "pass", "edges": [{"from": "start", "to": "nap"}, {"from": "nap", "to": "end"}], "nodes": [
    {"id": "start", "type": "START"}, {"id": "nap", "type": "WAIT", "config": {"seconds": 100}}, {"id": "end", "type": "END"}]}"#;

const MINUTE: Duration = Duration::from_mins(1);

type Kept = Failing<MemoryStore>;

fn kept() -> Kept {
    Failing::new(MemoryStore::new(), Crash::Never)
}

fn engine(store: &Kept, park_after: Option<Duration>) -> Engine {
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(BUNDLE)
        .workflows(PASS);
    let engine = park_after.into_iter().fold(engine, pirn::EngineBuilder::park_after);
    engine.build().expect("builds")
}

/// Advances the clock by 100 seconds, after which every waiting run is parked.
fn pass(engine: &Engine) {
    let passed = engine.start("pass", json!(null)).expect("starts");
    passed.outcome_blocking();
    passed.wait_all_ended_blocking();
    engine.wait_idle();
}

/// Starts a run that is parked while it waits for a person's answer.
fn waits_for_a_person(store: &Kept) -> (Engine, RunHandle) {
    let engine = engine(store, None);
    let run = engine.run("main").run_id(RUN).input(json!("in")).start();
    let run = run.expect("starts");
    pass(&engine);
    assert_eq!(store.reads(RUN), 0);
    (engine, run)
}

fn question(run: &RunHandle) -> String {
    block_on(run.interactions()).remove(0).id.clone()
}

fn answer(run: &RunHandle, answer: &str) -> Result<(), AnswerRefused> {
    block_on(run.answer(&question(run), json!(answer)))
}

/// Executes a run through all its waits. Returns its events, its report and the number of times its journal was read.
fn plays(park_after: Option<Duration>) -> (Vec<Value>, Value, usize) {
    let store = kept();
    let engine = engine(&store, park_after);
    let mut run = engine.run("main").run_id(RUN).input(json!("in"));
    let events = run.blocking_events(&[], 1_000);
    let run = run.start().expect("starts");
    pass(&engine);
    answer(&run, "yes").expect("is taken");
    pass(&engine);
    run.emit("other", [("n", json!(1))]);
    pass(&engine);
    run.emit("go", [("n", json!(2))]);
    pass(&engine);
    // Polls instead of waiting: a missed input would make a wait hang.
    let report = run.try_outcome().expect("it has come to its end");
    run.wait_all_ended_blocking();
    engine.shutdown_blocking(Duration::from_secs(5));
    let events = events.map(|heard| match heard {
        SubscriptionItem::Event(event) => event.to_json(),
        SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
    });
    (events.collect(), json!(*report), store.reads(RUN))
}

#[test]
fn parking_a_run_changes_neither_its_events_nor_its_report() {
    let (events, report, reads) = plays(Some(Duration::MAX));
    assert_eq!((reads, &report["output"]), (0, &json!(["yes", 2, "in"])));
    // The run is rebuilt from its journal four times: for the list of questions, the events `other` and `go`, and the timer.
    assert_eq!(plays(None), (events.clone(), report.clone(), 4));
    assert_eq!(plays(Some(MINUTE)), (events, report, 4));
}

#[test]
fn the_parking_delay_does_not_advance_the_virtual_clock() {
    let store = kept();
    let engine = engine(&store, None);
    let run = engine.start("main", json!(null)).expect("starts");
    engine.wait_idle();
    // No timer is pending, so the virtual clock does not advance and the parking delay does not elapse.
    let nap = engine.start("pass", json!(null)).expect("starts");
    let report = nap.outcome_blocking();
    assert_eq!(report.elapsed_ms, 100_000);
    assert_eq!(
        store.reads(nap.run_id()),
        1,
        "it left memory itself, and came back in time"
    );
    drop(run);
}

#[test]
fn a_cancel_and_a_deadline_end_a_parked_run() {
    let store = kept();
    let (engine, run) = waits_for_a_person(&store);
    run.cancel("enough");
    let report = run.outcome_blocking();
    assert_eq!((report.status, store.reads(RUN)), (ThreadStatus::Cancelled, 1));
    let late = engine.run("main").run_id("late").deadline(10 * MINUTE).start();
    let report = late.expect("starts").outcome_blocking();
    assert_eq!((report.status, report.elapsed_ms), (ThreadStatus::Timeout, 600_000));
    assert_eq!(store.reads("late"), 1);
}

#[test]
fn waiting_for_durability_does_not_load_a_parked_run() {
    let store = kept();
    let (_engine, run) = waits_for_a_person(&store);
    block_on(run.wait_durable()).expect("it is kept");
    assert_eq!(store.reads(RUN), 0);
}

#[test]
fn a_parked_run_remains_paused() {
    let store = kept();
    let (engine, run) = waits_for_a_person(&store);
    run.pause();
    pass(&engine);
    answer(&run, "yes").expect("is taken");
    run.emit("go", [("n", json!(1))]);
    pass(&engine);
    let status = block_on(run.status()).expect("is there");
    assert_eq!(status.threads[0].status, ThreadStatus::Paused);
    run.resume();
    assert_eq!(run.outcome_blocking().output, json!(["yes", 1, "in"]));
}

#[test]
fn concurrent_inputs_load_a_parked_run_once_and_are_delivered_in_order() {
    let store = kept();
    let (engine, run) = waits_for_a_person(&store);
    let question = question(&run);
    pass(&engine);
    assert_eq!(store.reads(RUN), 1);
    run.emit("go", [("n", json!(1))]);
    let (first, second) = block_on(async {
        futures::join!(
            run.answer(&question, json!("first")),
            run.answer(&question, json!("second"))
        )
    });
    assert_eq!((first, second), (Ok(()), Err(AnswerRefused::NotOpen)));
    assert_eq!(run.outcome_blocking().output, json!(["first", 1, "in"]));
    assert_eq!(
        store.reads(RUN),
        3,
        "once for the question, once for all that came, once for the time"
    );
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_subscriber_to_a_parked_run_gets_all_later_events_and_does_not_load_the_run() {
    let store = kept();
    let (engine, run) = waits_for_a_person(&store);
    let of_run = EventFilter {
        run_id: Some(RUN.to_owned()),
        ..EventFilter::default()
    };
    let mut events = engine.events(of_run, 100);
    engine.wait_idle();
    assert_eq!(store.reads(RUN), 0);
    run.cancel("enough");
    run.wait_all_ended_blocking();
    let heard = block_on(futures::StreamExt::next(&mut events));
    let Some(SubscriptionItem::Event(first)) = heard else {
        panic!("{heard:?}")
    };
    assert_eq!(
        (first.sequence, first.raised.event_type.as_str()),
        (6, "INTERACTION_WITHDRAWN")
    );
}

#[test]
fn parked_runs_are_unchanged_after_a_shutdown_or_the_end_of_their_process() {
    for shuts_down in [false, true] {
        let store = kept();
        let (first, run) = waits_for_a_person(&store);
        if shuts_down {
            first.shutdown_blocking(Duration::ZERO);
            let report = run.try_outcome().expect("is told");
            assert_eq!(
                report.error.as_ref().map(|error| error.code.as_str()),
                Some("CANCELLED")
            );
        }
        drop((first, run));
        assert_eq!(store.reads(RUN), 0, "nothing was made again for that");
        let second = engine(&store, None);
        let run = block_on(second.resume(RUN).start()).expect("goes on");
        pass(&second);
        answer(&run, "yes").expect("is taken");
        run.emit("go", [("n", json!(1))]);
        assert_eq!(run.outcome_blocking().output, json!(["yes", 1, "in"]));
    }
}

#[test]
fn a_parked_run_that_cannot_be_loaded_ends_with_store_error_and_remains_stored() {
    let store = kept();
    let (engine, run) = waits_for_a_person(&store);
    let question = json!("1");
    store.fail_reads();
    let answered = block_on(run.answer("run-1.0.1", question));
    assert!(matches!(answered, Err(AnswerRefused::NotKept { .. })), "{answered:?}");
    let report = run.outcome_blocking();
    assert_eq!(
        report.error.as_ref().map(|error| error.code.as_str()),
        Some("STORE_ERROR")
    );
    let there = block_on(pirn::store::Store::run(&*store.kept, RUN))
        .expect("is read")
        .expect("is there");
    assert!(!there.status.is_final());
    drop(engine);
}

/// Executes a run in which a person answers one question at a time and takes 100 seconds for each.
fn plays_slowly(bundle: &str, park_after: Duration) -> (Known, Vec<Value>, usize) {
    let (outside, store) = (Outside::default(), kept());
    let engine = outside.engine(bundle, store.clone()).park_after(park_after);
    let engine = engine.workflows(PASS).build().expect("builds");
    let mut run = engine.run("main").run_id(RUN).input(json!({"ticket": 7}));
    let events = run.blocking_events(&[], 65_536);
    let run = run.start().expect("starts");
    let mut passes = 0;
    loop {
        pass(&engine);
        passes += 1;
        assert!(passes < 50, "it never ends: {bundle}");
        let question = block_on(run.interactions()).into_iter().next();
        let answer = question.as_ref().and_then(answered);
        match question.zip(answer) {
            Some((question, answer)) => block_on(run.answer(&question.id, answer)).expect("is taken"),
            // Parts of a run that outlive its outcome may also raise questions, so the loop ends only if none is pending.
            None if run.try_outcome().is_some() => break,
            None => {}
        }
    }
    run.wait_all_ended_blocking();
    outside.known().reports.push(json!(*run.outcome_blocking()));
    engine.shutdown_blocking(Duration::from_secs(5));
    let told = events.map(|heard| match heard {
        SubscriptionItem::Event(event) => event.to_json(),
        SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
    });
    let known = outside.known().clone();
    (known, told.collect(), store.reads(RUN))
}

/// Removes time limits: the virtual clock would advance to them before the person answers.
fn without_limits(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| name != "timeoutMs" && name != "timeout");
            fields.values_mut().for_each(without_limits);
        }
        Value::Array(items) => items.iter_mut().for_each(without_limits),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_workflow_gives_an_equal_result_if_it_is_parked_at_every_wait() {
    let mut reads = 0;
    let shapes = MORE_SHAPES.iter().map(|shape| {
        let mut bundle = bundle(*shape, 1);
        without_limits(&mut bundle);
        bundle.to_string()
    });
    for (number, bundle) in workflows::all().into_iter().chain(shapes).enumerate() {
        let (stays, told, _) = plays_slowly(&bundle, Duration::MAX);
        let (parks, told_too, read) = plays_slowly(&bundle, Duration::ZERO);
        assert_eq!((&parks, &told_too), (&stays, &told), "workflow {number}: {bundle}");
        assert!(parks.reports[0]["status"] != "RUNNING", "workflow {number}");
        reads += read;
    }
    println!("{reads} times a run came back");
    assert!(reads > 40, "only {reads}");
}
