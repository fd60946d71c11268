//! A run that a trigger started is removed from its engine before it has ended, and its starter continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use pirn::store::{MemoryStore, Store};
use pirn::{Engine, RunHandle, ThreadStatus};
use serde_json::{Value, json};

use super::shared_memory::SharedMemory;
use super::{RUN, answer, asks, engine_of, pair};
use crate::durable::triggers::asking;

const CHILD: &str = "run-1-f1";

/// Starts a run that starts another one. Both are durable and wait for an answer.
fn both(engine: &Engine) -> (RunHandle, RunHandle) {
    engine.run("main").run_id(RUN).start().expect("starts");
    let (run, child) = (asking(engine, RUN), asking(engine, CHILD));
    block_on(run.wait_durable()).expect("is durable");
    block_on(child.wait_durable()).expect("is durable");
    (run, child)
}

/// Releases a run from its engine.
fn release(run: &RunHandle) {
    run.release();
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Failed);
}

/// Answers a run, and checks the output and the error that it has recorded of the run that it started.
fn completes(run: &RunHandle, error: Option<&str>) {
    assert!(answer(run, "parent"));
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{report:?}");
    let firing = &report.firings[0];
    let status = error.map_or(ThreadStatus::Completed, |_| ThreadStatus::Failed);
    assert_eq!(firing.status, Some(status), "{firing:?}");
    assert_eq!(firing.error.as_ref().map(|error| error.message.as_str()), error);
}

/// Resumes a run that waits for an answer.
fn resumed(engine: &Engine, run: &str) -> RunHandle {
    block_on(engine.resume(run).start()).expect("resumes")
}

#[test]
fn a_started_run_that_is_released_and_resumed_reports_to_its_starter() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = || pair().shared_store(Arc::clone(&store)).build().expect("builds");
    for is_resumed_here in [true, false] {
        let first = engine();
        let (run, child) = both(&first);
        release(&child);
        let second = if is_resumed_here { first.clone() } else { engine() };
        // Twice, because the resumed run may be released too.
        release(&resumed(&second, CHILD));
        let child = resumed(&second, CHILD);
        assert!(answer(&child, "child"));
        assert_eq!(child.outcome_blocking().status, ThreadStatus::Completed);
        completes(&run, None);
        run.wait_all_ended_blocking();
        child.wait_all_ended_blocking();
        first.shutdown_blocking(Duration::ZERO);
        second.shutdown_blocking(Duration::ZERO);
        block_on(store.remove(vec![RUN.to_owned(), CHILD.to_owned()], false)).expect("removes");
    }
}

#[test]
fn a_started_run_that_is_cancelled_in_the_store_reports_to_its_starter() {
    let engine = pair().store(MemoryStore::new()).build().expect("builds");
    let (run, child) = both(&engine);
    release(&child);
    let child = block_on(engine.resume(CHILD).cancel("enough")).expect("cancels");
    assert_eq!(child.outcome_blocking().status, ThreadStatus::Cancelled);
    completes(&run, Some("enough"));
    engine.shutdown_blocking(Duration::ZERO);
}

#[test]
fn a_run_is_resumed_after_a_run_that_it_started() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = || pair().shared_store(Arc::clone(&store)).build().expect("builds");
    let first = engine();
    let (run, child) = both(&first);
    release(&child);
    release(&run);
    let second = engine();
    let child = resumed(&second, CHILD);
    let run = resumed(&first, RUN);
    assert!(answer(&child, "child"));
    assert_eq!(child.outcome_blocking().status, ThreadStatus::Completed);
    until_fired(&first);
    completes(&run, None);
    first.shutdown_blocking(Duration::ZERO);
    second.shutdown_blocking(Duration::ZERO);
}

#[test]
fn a_started_run_that_is_released_before_its_first_step_is_stored() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = pair().shared_store(Arc::clone(&store)).build().expect("builds");
    engine.watch_started(1, || Some(|run: RunHandle, _: &str, _| run.release()));
    let run = engine.run("main").run_id(RUN).start().expect("starts");
    asking(&engine, RUN);
    let is_stored = || block_on(store.run(CHILD)).expect("is read").is_some();
    let until = Instant::now() + Duration::from_secs(20);
    while !is_stored() || engine.find(CHILD).is_some() {
        assert!(Instant::now() < until, "{CHILD} is lost");
        std::thread::yield_now();
    }
    resumed(&engine, CHILD);
    let child = asking(&engine, CHILD);
    assert!(answer(&child, "child"));
    assert_eq!(child.outcome_blocking().status, ThreadStatus::Completed);
    completes(&run, None);
    engine.shutdown_blocking(Duration::from_secs(5));
}

/// Waits until the run has recorded the end of the run that it started.
fn until_fired(engine: &Engine) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let view = block_on(engine.view(RUN, None)).expect("is read");
        if view.report.firings[0].status.is_some() {
            return;
        }
        assert!(Instant::now() < until, "the end of {CHILD} was lost");
        std::thread::yield_now();
    }
}

#[test]
fn a_run_that_is_released_and_resumed_in_one_process_stays_claimed() {
    let store = SharedMemory::new(true);
    let engine = pair().store(store.clone()).build().expect("builds");
    engine.run("mine").run_id(RUN).start().expect("starts");
    let mut run = asking(&engine, RUN);
    block_on(run.wait_durable()).expect("is durable");
    for round in 0..200 {
        release(&run);
        assert!(!store.owns(RUN), "round {round}: the outcome precedes the release");
        run = resumed(&engine, RUN);
        assert!(store.owns(RUN), "round {round}");
    }
    store.kill();
    engine.shutdown_blocking(Duration::ZERO);
}

/// Returns two processes of one store.
fn two_processes() -> [(SharedMemory, Engine); 2] {
    let first = SharedMemory::new(true);
    let second = first.next_process();
    [first, second].map(|store| {
        let engine = pair().store(store.clone()).build().expect("builds");
        (store, engine)
    })
}

/// Executes the assignments of a process in another thread.
fn works(engine: &Engine) -> std::thread::JoinHandle<()> {
    let engine = engine.clone();
    std::thread::spawn(move || drop(block_on(engine.work(100))))
}

#[test]
fn a_started_run_that_another_process_takes_over_reports_to_its_starter() {
    let [(first_store, first), (second_store, second)] = two_processes();
    let workers = [works(&first), works(&second)];
    let (run, child) = both(&first);
    second_store.take(CHILD);
    assert_eq!(child.outcome_blocking().status, ThreadStatus::Failed);
    assert!(answer(&asking(&second, CHILD), "child"));
    until_fired(&first);
    completes(&run, None);
    for store in [first_store, second_store] {
        store.kill();
    }
    for worker in workers {
        worker.join().expect("no panic");
    }
    first.shutdown_blocking(Duration::ZERO);
    second.shutdown_blocking(Duration::ZERO);
}

/// A worker that takes over both runs resumes the started one with its starter, and may be assigned it before that.
#[test]
fn the_claim_on_a_run_stays_if_it_was_resumed_with_its_starter() {
    let [(first_store, first), (second_store, second)] = two_processes();
    both(&first);
    first_store.kill();
    first.shutdown_blocking(Duration::ZERO);
    second_store.take(RUN);
    second_store.take(CHILD);
    let is_refused = Arc::new(AtomicBool::new(false));
    let worker = {
        let (second, is_refused) = (second.clone(), Arc::clone(&is_refused));
        std::thread::spawn(move || {
            let engine = second.clone();
            let (begun, begins) = oneshot::channel::<()>();
            let (begun, begins) = (std::sync::Mutex::new(Some(begun)), begins.shared());
            let working = second.work_with(100, move |run| {
                let begun = (run == RUN).then(|| begun.lock().expect("locks").take()).flatten();
                let (resumed, begins, is_refused) = (engine.resume(run), begins.clone(), Arc::clone(&is_refused));
                async move {
                    let Some(begun) = begun else {
                        begins.await.expect("is sent");
                        let resumed = resumed.start().await.map(drop);
                        is_refused.store(resumed.is_err(), Ordering::SeqCst);
                        return resumed;
                    };
                    let resumed = resumed.start().await.map(drop);
                    begun.send(()).expect("the other one waits");
                    resumed
                }
                .boxed()
            });
            drop(block_on(working));
        })
    };
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::yield_now();
        }
    };
    until(&|| is_refused.load(Ordering::SeqCst));
    // The worker has handled the refusal when it answers this request.
    second_store.tell_here(1, RUN);
    until(&|| second_store.has_answered(1));
    assert!(second_store.owns(RUN) && second_store.owns(CHILD));
    second_store.kill();
    worker.join().expect("no panic");
    second.shutdown_blocking(Duration::ZERO);
}

/// The closing engine releases the started run, which waits for a person, before its starter.
#[test]
fn a_shutdown_does_not_wait_for_the_end_of_a_started_run_that_has_left() {
    let mut main = asks("main", &["mine".to_owned()]);
    main["nodes"][2] = json!({"id": "ask", "type": "CODE", "config": {"function": "held"}});
    main["nodes"][4]["config"]["output"] = Value::from("1");
    let (open, gate) = oneshot::channel::<()>();
    let gate = gate.shared();
    let engine = engine_of(&[main, asks("mine", &[])])
        .async_function("held", move |_| gate.clone().map(|_| Ok::<_, String>(Value::Null)))
        .store(MemoryStore::new())
        .build()
        .expect("builds");
    let run = engine.run("main").run_id(RUN).start().expect("starts");
    let child = asking(&engine, CHILD);
    let since = Instant::now();
    std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| engine.shutdown_blocking(Duration::from_mins(1)));
        assert_eq!(child.outcome_blocking().status, ThreadStatus::Failed);
        open.send(()).expect("the function waits");
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
        shutdown.join().expect("no panic");
    });
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

/// Returns workflows in which `main` starts a run of `mine` after a node that waits for the gate. With `asks_later`, a question follows.
fn gated(asks_later: bool) -> [Value; 2] {
    let mut main = asks("main", &["mine".to_owned()]);
    main["nodes"][1]["config"]["function"] = Value::from("held");
    if !asks_later {
        main["nodes"][2] = json!({"id": "ask", "type": "VARIABLE", "config": {"variableName": "x", "expression": "1"}});
        main["nodes"][4]["config"]["output"] = Value::from("1");
    }
    [main, asks("mine", &[])]
}

#[test]
fn a_run_that_a_trigger_starts_during_a_shutdown_is_stored() {
    for asks_later in [true, false] {
        let store = MemoryStore::new();
        let (open, gate) = oneshot::channel::<()>();
        let gate = gate.shared();
        let engine = || {
            let gate = gate.clone();
            let held = move |_| gate.clone().map(|_| Ok::<_, String>(Value::Null));
            let engine = engine_of(&gated(asks_later)).async_function("held", held);
            engine.store(store.clone()).build().expect("builds")
        };
        let first = engine();
        let run = first.run("main").run_id(RUN).start().expect("starts");
        block_on(run.wait_durable()).expect("is durable");
        std::thread::scope(|scope| {
            let shutdown = scope.spawn(|| first.shutdown_blocking(Duration::from_mins(1)));
            // The shutdown has started once no further run is accepted.
            while first.run("mine").start().is_ok() {
                std::thread::yield_now();
            }
            open.send(()).expect("the function waits");
            shutdown.join().expect("no panic");
        });
        let second = engine();
        block_on(second.recover()).expect("is read");
        assert!(answer(&asking(&second, CHILD), "child"));
        while second.find(CHILD).is_some() {
            std::thread::yield_now();
        }
        if asks_later {
            completes(&asking(&second, RUN), None);
        }
        let view = block_on(second.view(CHILD, None)).expect("is read");
        assert_eq!(view.report.status, ThreadStatus::Completed);
        second.shutdown_blocking(Duration::from_secs(5));
    }
}
