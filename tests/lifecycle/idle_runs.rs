//! Messages from outside under virtual time when no timer is pending and no task is runnable: the clock's thread sleeps and
//! must be woken.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use futures::executor::block_on;
use pirn::{Engine, EventType, MailboxDepths, RunHandle, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{line, node};
use serde_json::{Map, json};

/// Returns the result of `asked`, which is called on a thread that may block for ever; `None` after 20 seconds.
fn within_20_seconds<T: Send + 'static>(asked: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || told.send(asked()).unwrap_or(()));
    heard.recv_timeout(Duration::from_secs(20)).ok()
}

/// A run that waits for the event `go`, in an idle engine, with its events.
fn idle_run(types: &[EventType]) -> (Engine, RunHandle, pirn::BlockingEvents) {
    let waits = line("waits", &[node("w", "WAIT", json!({"event": "go"}))]);
    let engine = Engine::builder()
        .virtual_time(None)
        .workflows(waits.to_string())
        .build()
        .expect("valid");
    let mut prepared = engine.run("waits");
    let events = prepared.blocking_events(types, 16);
    let run = prepared.start().expect("admitted");
    engine.wait_idle();
    (engine, run, events)
}

/// Rounds of each test: the clock's thread reports idle a moment before it sleeps, and a message in that moment is seen
/// even without a wake-up.
const ROUNDS: usize = 64;

#[test]
fn an_idle_run_ends_when_it_is_cancelled() {
    for _ in 0..ROUNDS {
        let (_engine, run, _events) = idle_run(&[EventType::ThreadCompleted]);
        run.cancel("enough");
        let report = within_20_seconds(move || run.outcome_blocking()).expect("it ends");
        assert_eq!(report.status, ThreadStatus::Cancelled);
    }
}

#[test]
fn an_idle_run_receives_an_event() {
    for _ in 0..ROUNDS {
        let (_engine, run, _events) = idle_run(&[EventType::ThreadCompleted]);
        run.emit("go", Map::new());
        let report = within_20_seconds(move || run.outcome_blocking()).expect("it ends");
        assert_eq!(report.status, ThreadStatus::Completed);
    }
}

#[test]
fn an_idle_run_reports_its_status() {
    for _ in 0..ROUNDS {
        let (_engine, run, _events) = idle_run(&[EventType::ThreadCompleted]);
        let status = within_20_seconds(move || futures::executor::block_on(run.status()));
        assert_eq!(
            status.flatten().map(|status| status.status),
            Some(ThreadStatus::Running)
        );
    }
}

#[test]
fn a_paused_idle_run_continues_when_it_is_resumed() {
    for _ in 0..ROUNDS {
        let (engine, run, mut events) = idle_run(&[EventType::ThreadPaused]);
        run.pause();
        run.emit("go", Map::new());
        let is_paused = within_20_seconds(move || events.any(|heard| matches!(heard, SubscriptionItem::Event(_))));
        assert_eq!(is_paused, Some(true));
        engine.wait_idle();
        assert_eq!(run.try_outcome(), None);
        run.resume();
        let report = within_20_seconds(move || run.outcome_blocking()).expect("it ends");
        assert_eq!(report.status, ThreadStatus::Completed);
    }
}

/// Runs on real threads, because the arbiter must be busy while the depths are read.
#[test]
fn mailbox_depths_include_messages_that_wait_for_a_busy_run() {
    let (begun, has_begun) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let busy = line("busy", &[node("a", "CODE", json!({"function": "busy"}))]);
    let engine = Engine::builder()
        .arbiters(1)
        .workflows(busy.to_string())
        .function("busy", move |_| {
            begun.send(()).map_err(|error| error.to_string())?;
            let gate = gate.lock().map_err(|error| error.to_string())?;
            gate.recv().map_err(|error| error.to_string())?;
            Ok(json!(null))
        })
        .build()
        .expect("valid");
    let run = engine.run("busy").start().expect("admitted");
    has_begun.recv().expect("it begins");
    run.pause();
    run.resume();
    // Adjacent events are combined into one message.
    run.emit("a", Map::new());
    run.emit("b", Map::new());
    let depths = engine.mailbox_depths();
    go.send(()).expect("it waits");
    assert_eq!(
        block_on(depths),
        MailboxDepths {
            runs: 3,
            ..MailboxDepths::default()
        }
    );
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    run.wait_all_ended_blocking();
    assert_eq!(block_on(engine.mailbox_depths()), MailboxDepths::default());
}
