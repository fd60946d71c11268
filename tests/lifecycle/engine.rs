//! The engine's API: admission, handles, subscribers, shutdown.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use pirn::scene::Stage;
use pirn::{Engine, EventType, Message, Role, RunErrorCode, ShutdownReport, SubscriptionItem, ThreadStatus, Tokenizer};
use pirn_actors::engine::RunRequest;
use pirn_actors::host::Random;
use pirn_tests::world::{line, node, wait};
use serde_json::{Map, json};

/// Waits for the CUSTOM event `go`.
const GATE: &str = r#"{"id": "gate",
    "nodes": [{"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"event": "go"}}, {"id": "e", "type": "END", "config": {"output": "output.data.answer"}}],
    "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]}"#;

fn engine() -> Engine {
    Engine::builder().arbiters(2).workflows(GATE).build().expect("valid")
}

fn answer(value: u32) -> Map<String, serde_json::Value> {
    Map::from_iter([("answer".to_owned(), json!(value))])
}

/// Reads events until one of this type comes.
fn wait_for_event(events: &mut pirn::BlockingEvents, wanted: EventType) {
    let heard =
        events.any(|heard| matches!(heard, SubscriptionItem::Event(event) if event.raised.event_type == wanted));
    assert!(heard, "{wanted:?} never came");
}

#[test]
fn a_run_id_in_use_is_refused_with_run_id_taken_for_live_and_stored_runs() {
    let builder = Engine::builder().arbiters(1).workflows(GATE);
    let engine = builder.store(pirn::store::MemoryStore::new()).build().expect("valid");
    let start = || engine.run("gate").run_id("same").start();
    let first = start().expect("admitted");
    let refused = start().expect_err("it is under way");
    assert_eq!(refused.code, RunErrorCode::RunIdTaken, "{refused}");
    first.cancel("enough");
    first.wait_all_ended_blocking();
    let again = start().expect("only the store knows").outcome_blocking();
    let error = again.error.as_ref().expect("it failed");
    assert_eq!(error.code, RunErrorCode::RunIdTaken, "{error}");
}

#[test]
fn an_id_that_no_store_accepts_is_refused_before_the_run_starts() {
    for builder in [
        Engine::builder(),
        Engine::builder().store(pirn::store::MemoryStore::new()),
    ] {
        let engine = builder.arbiters(1).workflows(GATE).build().expect("valid");
        for id in ["", "a\0b", &"x".repeat(513)] {
            let of_run = engine.run("gate").run_id(id).start().expect_err("refused");
            assert_eq!(of_run.code, RunErrorCode::InvalidInput, "{of_run}");
            let of_session = engine.run("gate").session(id).start().expect_err("refused");
            assert_eq!(of_session.code, RunErrorCode::InvalidInput, "{of_session}");
        }
    }
}

#[test]
fn engines_are_built_and_shut_down_in_one_process_without_leftovers() {
    for round in 0..30 {
        let engine = engine();
        let mut prepared = engine.run("gate");
        let mut events = prepared.blocking_events(&[EventType::NodeStarted], 16);
        let run = prepared.start().expect("admitted");
        wait_for_event(&mut events, EventType::NodeStarted);
        wait_for_event(&mut events, EventType::NodeStarted);
        run.emit("go", answer(round));
        assert_eq!(run.outcome_blocking().output, json!(round));
        assert_eq!(
            engine.shutdown_blocking(Duration::from_secs(5)),
            ShutdownReport::default()
        );
    }
}

#[test]
fn emit_does_not_copy_a_shared_name_and_accepts_fields_as_an_array() {
    let engine = engine();
    let mut prepared = engine.run("gate");
    let mut events = prepared.blocking_events(&[EventType::NodeStarted, EventType::Custom], 16);
    let run = prepared.start().expect("admitted");
    wait_for_event(&mut events, EventType::NodeStarted);
    wait_for_event(&mut events, EventType::NodeStarted);
    let name: Arc<str> = "noted".into();
    run.emit(Arc::clone(&name), answer(1));
    run.emit("noted", [("answer", json!(1))]);
    run.emit("noted".to_owned(), []);
    run.emit("go", [("other", json!("x")), ("answer", json!(2))]);
    assert_eq!(run.outcome_blocking().output, json!(2));
    engine.shutdown_blocking(Duration::from_secs(5));
    let heard = events.filter_map(|heard| match heard {
        SubscriptionItem::Event(event) => (event.raised.event_type == EventType::Custom).then_some(event),
        SubscriptionItem::Lagged(count) => panic!("{count} were missed"),
    });
    let heard: Vec<_> = heard.collect();
    assert!(
        heard[..3]
            .iter()
            .all(|event| event.raised.event_name.as_deref() == Some("noted"))
    );
    assert!(
        heard[0]
            .raised
            .event_name
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, &name))
    );
    assert_eq!(heard[0].raised.fields["data"], json!(answer(1)));
    assert_eq!(heard[0].raised.fields, heard[1].raised.fields);
    assert_eq!(heard[2].raised.fields["data"], json!({}));
}

#[test]
fn a_full_engine_and_a_closed_engine_refuse_new_runs() {
    let engine = Engine::builder().max_runs(1).workflows(GATE).build().expect("valid");
    let first = engine.start("gate", json!(null)).expect("admitted");
    let refused = engine.start("gate", json!(null)).expect_err("full");
    assert_eq!(refused.code, RunErrorCode::Overloaded);
    first.cancel("enough");
    let report = first.outcome_blocking();
    assert_eq!(
        (report.status, report.error.as_ref().map(|error| error.code)),
        (ThreadStatus::Cancelled, Some(RunErrorCode::Cancelled))
    );
    engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!(
        engine.start("gate", json!(null)).expect_err("closed").code,
        RunErrorCode::Cancelled
    );
}

#[test]
fn the_slot_and_the_id_of_a_run_are_free_when_its_outcome_is_visible() {
    let engine = Engine::builder()
        .max_runs(1)
        .workflows(line("short", &[]).to_string())
        .build()
        .expect("valid");
    for round in 0..2_000 {
        let run = engine.run("short").run_id("the-only-one").start();
        let run = run.unwrap_or_else(|refused| panic!("round {round}: {refused}"));
        // A spinning thread, because a woken one would be too late to catch the moment.
        while run.try_outcome().is_none() {
            std::hint::spin_loop();
        }
    }
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_paused_run_waits_at_its_safe_point_until_it_is_resumed() {
    let engine = engine();
    let mut prepared = engine.run("gate");
    let mut events = prepared.blocking_events(
        &[
            EventType::NodeStarted,
            EventType::ThreadPaused,
            EventType::ThreadResumed,
        ],
        16,
    );
    let run = prepared.start().expect("admitted");
    wait_for_event(&mut events, EventType::NodeStarted);
    wait_for_event(&mut events, EventType::NodeStarted);
    run.pause();
    run.emit("go", answer(1));
    wait_for_event(&mut events, EventType::ThreadPaused);
    assert!(run.try_outcome().is_none());
    run.resume();
    wait_for_event(&mut events, EventType::ThreadResumed);
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_slow_subscriber_delays_nothing_and_receives_the_number_of_missed_events() {
    let workflow = r#"{"id": "quick", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "e"}]}"#;
    let engine = Engine::builder()
        .virtual_time(None)
        .workflows(workflow)
        .build()
        .expect("valid");
    let mut prepared = engine.run("quick");
    let all = prepared.blocking_events(&[], 1_000);
    let slow = prepared.blocking_events(&[], 1);
    let run = prepared.start().expect("admitted");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    engine.shutdown_blocking(Duration::from_secs(5));
    let raised = all.count();
    let told: Vec<SubscriptionItem> = slow.collect();
    assert_eq!(raised, 6);
    assert!(
        matches!(told.first(), Some(SubscriptionItem::Event(event)) if event.sequence == 1),
        "{told:?}"
    );
    assert_eq!(
        told.last(),
        Some(&SubscriptionItem::Lagged(5)),
        "all six are accounted for"
    );
}

#[test]
fn a_shutdown_waits_for_runs_that_end_within_the_grace_period() {
    let short = line("short", &[wait("w", 200)]);
    let engine = Engine::builder().arbiters(2).workflows(short.to_string()).build();
    let engine = engine.expect("valid");
    let run = engine.start("short", json!(null)).expect("admitted");
    assert_eq!(
        engine.shutdown_blocking(Duration::from_mins(1)),
        ShutdownReport::default()
    );
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
}

#[test]
fn a_shutdown_cancels_runs_that_do_not_end_within_the_grace_period() {
    let engine = engine();
    let run = engine.start("gate", json!(null)).expect("admitted");
    let report = engine.shutdown_blocking(Duration::ZERO);
    assert_eq!(
        report,
        ShutdownReport {
            runs_cancelled: 1,
            ..ShutdownReport::default()
        }
    );
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
}

/// A tokenizer that calls a function on its first count.
struct Interrupting(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Tokenizer for Interrupting {
    fn name(&self) -> &'static str {
        "interrupting"
    }

    fn count(&self, text: &str) -> u64 {
        let act = self.0.lock().expect("no panic").take();
        if let Some(act) = act {
            act();
        }
        text.len() as u64
    }
}

#[test]
fn a_shutdown_during_an_admission_cancels_the_admitted_run() {
    let tokenizer = Arc::new(Interrupting(Mutex::default()));
    let mut gate: serde_json::Value = serde_json::from_str(GATE).expect("JSON");
    gate["config"] = json!({"tokenizer": "interrupting"});
    let builder = Engine::builder()
        .tokenizer("interrupting", Arc::clone(&tokenizer) as Arc<dyn Tokenizer>)
        .workflows(gate.to_string());
    let stage = Stage::of(builder).expect("valid");
    let outcome = stage.play(0, Box::new(Random::new(0)), |scene| {
        let engine = Arc::clone(scene.engine());
        *tokenizer.0.lock().expect("no panic") = Some(Box::new(move || {
            engine.close();
            engine.cancel_all();
        }));
        // The run is admitted already; its messages are being counted.
        scene.start(RunRequest {
            workflow_id: "gate".to_owned(),
            conversation: vec![Message::new(Role::User, "hello")].into(),
            ..RunRequest::default()
        })
    });
    let outcome = outcome.expect("it got in").outcome.peek();
    let report = outcome.expect("it does not go on for ever").expect("it is told");
    assert_eq!(report.status, ThreadStatus::Cancelled);
}

#[test]
fn an_async_program_awaits_the_outcome_and_streams_the_events() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let engine = engine();
        let mut prepared = engine.run("gate");
        let mut events = prepared.events(&[EventType::NodeStarted, EventType::ThreadCompleted], 16);
        let run = prepared.start().expect("admitted");
        for _ in 0..2 {
            assert!(matches!(events.next().await, Some(SubscriptionItem::Event(event)) if event.raised.event_type == EventType::NodeStarted));
        }
        assert_eq!(run.status().await.expect("it runs").status, ThreadStatus::Running);
        run.emit("go", answer(9));
        assert_eq!(run.outcome().await.output, json!(9));
        run.wait_all_ended().await;
        while events.next().await.is_some() {}
        assert_eq!(engine.shutdown(Duration::from_secs(5)).await, ShutdownReport::default());
    });
}

#[test]
fn a_shutdown_under_virtual_time_completes_runs_with_timers_and_cancels_waiting_runs() {
    let engine = || {
        let long = line(
            "long",
            &(0..300).map(|no| wait(&format!("w{no}"), 10)).collect::<Vec<_>>(),
        );
        Engine::builder()
            .simulated(1)
            .workflows(GATE)
            .workflows(long.to_string())
            .build()
            .expect("valid")
    };
    let ends = engine();
    let run = ends.start("long", json!(null)).expect("admitted");
    assert_eq!(ends.shutdown_blocking(Duration::ZERO), ShutdownReport::default());
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);

    let waits = engine();
    let run = waits.start("gate", json!(null)).expect("admitted");
    let report = waits.shutdown_blocking(Duration::ZERO);
    assert_eq!((report.runs_cancelled, report.runs_left), (1, 0));
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
}

#[test]
fn a_shutdown_reports_work_that_it_could_not_stop() {
    let (entered, has_entered) = crossbeam_channel::bounded::<()>(1);
    let (let_go, held) = crossbeam_channel::bounded::<()>(0);
    let work = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime");
    let engine = Engine::builder()
        .work_on(work.handle().clone())
        .async_function("stubborn", move |_| {
            let (entered, held) = (entered.clone(), held.clone());
            Box::pin(async move {
                entered.send(()).unwrap_or(());
                // The function blocks its thread, so it cannot be dropped.
                held.recv().unwrap_or(());
                Ok(json!(null))
            })
        })
        .workflows(line("stubborn", &[node("n", "CODE", json!({ "function": "stubborn" }))]).to_string())
        .build()
        .expect("valid");
    let run = engine.start("stubborn", json!(null)).expect("admitted");
    has_entered.recv().expect("it is called");
    let report = engine.shutdown_blocking(Duration::ZERO);
    assert_eq!((report.runs_cancelled, report.runs_left, report.work_left), (1, 0, 1));
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
    drop(let_go);
}

#[test]
fn no_run_is_admitted_after_the_first_poll_of_a_shutdown() {
    for _ in 0..50 {
        let engine = engine();
        let mut shutdown = Box::pin(engine.shutdown(Duration::from_secs(5)));
        // The result depends on the machine: a shutdown without runs may be complete already.
        let _: Option<ShutdownReport> = (&mut shutdown).now_or_never();
        let refused = engine
            .start("gate", serde_json::Value::Null)
            .expect_err("it shuts down");
        assert_eq!(refused.code, RunErrorCode::Cancelled, "{refused}");
        drop(shutdown);
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}

#[test]
fn a_callback_that_panics_ends_no_run() {
    let asks = r#"{"id": "asks", "triggers": [{"id": "t", "condition": {"eventType": "NODE_COMPLETED"}, "maxTriggers": 1,
            "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "started"}}}],
        "nodes": [{"id": "s", "type": "START"},
            {"id": "q", "type": "USER_INTERACTION", "config": {"question": "Go?", "choices": ["yes"]}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "q"}, {"from": "q", "to": "e"}]}"#;
    let started = line("started", &[wait("w", 1)]).to_string();
    let engine = Engine::builder()
        .arbiters(1)
        .workflows(asks)
        .workflows(started)
        .build()
        .expect("valid");
    engine.watch_started(8, || -> Option<fn(pirn::RunHandle, &str, pirn::Events)> {
        panic!("on purpose")
    });
    engine.watch_started(8, || {
        Some(|_: pirn::RunHandle, _: &str, _: pirn::Events| panic!("on purpose"))
    });
    let (reported, report) = std::sync::mpsc::channel();
    let refuses = engine.run("asks").answers(
        |_| Some(json!("no")),
        move |_, _| {
            reported.send(()).unwrap_or(());
            panic!("on purpose")
        },
    );
    let gives = engine.run("asks").answers(|_| panic!("on purpose"), |_, _| ());
    let runs = [refuses, gives].map(|run| run.start().expect("admitted"));
    report.recv_timeout(Duration::from_secs(10)).expect("refused");
    for run in runs {
        let question = loop {
            if let Some(question) = futures::executor::block_on(run.interactions()).pop() {
                break question;
            }
        };
        futures::executor::block_on(run.answer(&question.id, "yes")).expect("it is open");
        let report = run.outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    }
    engine.shutdown_blocking(Duration::from_secs(5));
}
