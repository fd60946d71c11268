//! Runs that only wait for external inputs do not delay a shutdown: they stay stored and resume in another process.

use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{MemoryStore, SqliteStore, Store};
use pirn::{Engine, RunHandle};
use pirn_test_disk::{Disk, VFS};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// A grace period far above the duration of the tests.
const GRACE: Duration = Duration::from_secs(20);

/// Returns workflows that call `work` and then wait in the way that their id names.
fn workflows() -> String {
    let line = |id: &str, wait: Value| {
        json!({"id": id,
            "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "wait"}, {"from": "wait", "to": "end"}],
            "nodes": [{"id": "start", "type": "START"}, {"id": "work", "type": "CODE", "config": {"function": "work"}}, wait,
                {"id": "end", "type": "END", "config": {"output": "nodes.wait"}}]})
    };
    let wait = |config: Value| json!({"id": "wait", "type": "WAIT", "config": config});
    let ask = json!({"id": "wait", "type": "USER_INTERACTION", "config": {"question": "On?"}});
    let short = json!({"id": "short", "edges": [{"from": "start", "to": "end"}],
        "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}]});
    let all = [
        short,
        line("person", ask),
        line("event", wait(json!({"event": "go"}))),
        line("time", wait(json!({"seconds": 86_400}))),
    ];
    json!({ "workflows": all }).to_string()
}

/// Returns an engine whose `work` passes a sender to `begun` and ends when a value is sent.
fn engine(
    store: impl Store,
    park_after: Duration,
    begun: impl Fn(oneshot::Sender<()>) + Send + Sync + 'static,
) -> Engine {
    let built = Engine::builder()
        .store(store)
        .park_after(park_after)
        .workflows(workflows())
        .async_function("work", move |_| {
            let (go, is_let_go) = oneshot::channel();
            begun(go);
            async move {
                is_let_go.await.map_err(|error| error.to_string())?;
                Ok::<_, String>(Value::Null)
            }
        });
    built.build().expect("builds")
}

fn at_once(go: oneshot::Sender<()>) {
    go.send(()).expect("it waits");
}

/// Waits until the store has the run with this status.
fn until(run: &RunHandle, store: &impl Store, standing: &str) {
    loop {
        let kept = block_on(store.run(run.run_id())).expect("is read");
        if kept.is_some_and(|kept| kept.status.as_str() == standing) {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_shutdown_does_not_wait_for_runs_that_wait_for_a_person_or_an_event() {
    for park_after in [Duration::MAX, Duration::ZERO] {
        let store = MemoryStore::new();
        let first = engine(store.clone(), park_after, at_once);
        let runs = ["person", "event"].map(|id| first.start(id, json!(null)).expect("starts"));
        for run in &runs {
            until(run, &store, "WAITING");
        }
        let report = first.shutdown_blocking(GRACE);
        assert_eq!((report.runs_cancelled, report.runs_left), (0, 0), "{report:?}");
        for run in &runs {
            let told = run.outcome_blocking();
            let error = told.error.as_ref().expect("it has not ended");
            assert!(error.message.contains("can be resumed"), "{error:?}");
        }
        let second = engine(store, Duration::MAX, at_once);
        let resumed = block_on(second.recover()).expect("is read");
        for (id, run) in resumed {
            let run = run.unwrap_or_else(|error| panic!("{id}: {error}"));
            if let Some(question) = block_on(run.interactions()).first() {
                block_on(run.answer(&question.id, json!("yes"))).expect("is taken");
            } else {
                run.emit("go", [("n", json!(1))]);
            }
            let report = run.outcome_blocking();
            assert_eq!(report.error, None, "{id}");
        }
    }
}

#[test]
fn a_shutdown_does_not_wait_for_runs_behind_a_stored_run_of_their_session() {
    for _ in 0..20 {
        let store = MemoryStore::new();
        let first = engine(store.clone(), Duration::MAX, at_once);
        let runs = ["a", "b", "c"].map(|id| {
            let run = first.run("person").session("s").run_id(id).start().expect("starts");
            block_on(run.wait_durable()).expect("is durable");
            run
        });
        until(&runs[0], &store, "WAITING");
        let report = first.shutdown_blocking(GRACE);
        assert_eq!((report.runs_cancelled, report.runs_left), (0, 0), "{report:?}");
        let second = engine(store, Duration::MAX, at_once);
        let resumed = block_on(second.recover()).expect("is read");
        assert_eq!(resumed.len(), runs.len());
        for (id, run) in resumed {
            let run = run.unwrap_or_else(|error| panic!("{id}: {error}"));
            let question = loop {
                match block_on(run.interactions()).first() {
                    Some(question) => break question.id.clone(),
                    None => std::thread::yield_now(),
                }
            };
            block_on(run.answer(&question, json!("yes"))).expect("is taken");
            assert_eq!(run.outcome_blocking().error, None, "{id}");
        }
        second.shutdown_blocking(GRACE);
    }
}

/// The position of a resumed run is not the one that its first instance releases.
#[test]
fn a_run_that_is_released_and_resumed_keeps_its_position_in_its_session() {
    let engine = engine(MemoryStore::new(), Duration::MAX, at_once);
    let mut run = engine.run("person").session("s").run_id("a").start().expect("starts");
    block_on(run.wait_durable()).expect("is durable");
    for round in 0..300 {
        run.release();
        run.outcome_blocking();
        run = block_on(engine.resume("a").start()).expect("resumes");
        let next = engine.run("short").session("s").start().expect("starts");
        // The next run is behind this one in the mailbox, and asks for its turn.
        block_on(next.wait_durable()).expect("is durable");
        next.cancel("enough");
        let report = next.outcome_blocking();
        let error = report.error.as_ref().expect("was cancelled");
        assert_eq!(error.code.as_str(), "CANCELLED", "round {round}: {error}");
    }
    run.cancel("enough");
    engine.shutdown_blocking(GRACE);
}

#[test]
fn a_shutdown_releases_a_working_run_once_it_waits_for_a_person() {
    let disk = Disk::new();
    let open = || SqliteStore::open_on(VFS, disk.path("runs.db")).expect("opens");
    let (begun, begins) = std::sync::mpsc::channel();
    let first = engine(open(), Duration::MAX, move |go| {
        begun.send(go).expect("the test waits");
    });
    let run = first.start("person", json!(null)).expect("starts");
    let go = begins.recv().expect("it begins");
    let stopping = first.clone();
    let stopping = std::thread::spawn(move || stopping.shutdown_blocking(GRACE));
    // The shutdown has started once no further run is accepted.
    while first.start("short", json!(null)).is_ok() {
        std::thread::yield_now();
    }
    go.send(()).expect("it is at work still");
    let report = stopping.join().expect("ends");
    assert_eq!((report.runs_cancelled, report.runs_left), (0, 0), "{report:?}");
    drop(first);
    let store = open();
    let kept = block_on(store.run(run.run_id())).expect("is read").expect("is there");
    assert_eq!(kept.status.as_str(), "WAITING", "the work's outcome is kept, too");
}

#[test]
fn a_shutdown_cancels_a_run_that_waits_for_a_timer_after_the_grace_period() {
    let store = MemoryStore::new();
    let engine = engine(store.clone(), Duration::ZERO, at_once);
    let run = engine.start("time", json!(null)).expect("starts");
    until(&run, &store, "WAITING");
    let report = engine.shutdown_blocking(Duration::ZERO);
    assert_eq!((report.runs_cancelled, report.runs_left), (1, 0), "{report:?}");
}

#[test]
fn a_store_can_be_opened_again_after_the_shutdown_of_its_engine() {
    let folder = std::env::temp_dir().join(format!("pirn-shutdown-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("runs.db");
    for round in 0..20 {
        let store = SqliteStore::open(&file).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let engine = engine(store, Duration::MAX, at_once);
        let run = engine.start("person", json!(null)).expect("starts");
        while block_on(run.interactions()).is_empty() {
            std::thread::yield_now();
        }
        block_on(run.wait_durable()).expect("is kept");
        drop(run);
        block_on(engine.shutdown(Duration::ZERO));
    }
    std::fs::remove_dir_all(folder).expect("is removed");
}
