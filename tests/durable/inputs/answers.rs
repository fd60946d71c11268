//! People's answers in stored runs: durable before they are acknowledged, and used once.

use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use pirn::store::{MemoryStore, SqliteStore, Store};
use pirn::{AnswerRefused, Engine, EventType, SubscriptionItem};
use pirn_test_disk::{Disk, VFS};
use serde_json::{Value, json};

use crate::durable::faults::external_effects::{Outside, RUN};
use crate::durable::faults::failing_store::{Crash, Failing};

/// Returns a workflow with a call, a question and another call.
pub(crate) fn asks() -> String {
    let work = |id: &str, then: &str| json!({"id": id, "type": "CODE", "config": {"function": "work"}, "onError": {"targetNodeId": then}});
    let schema = json!({"type": "string", "minLength": 2});
    let ask = json!({"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Which?", "schema": schema, "assignTo": "got"}});
    json!({"id": "main",
        "nodes": [{"id": "start", "type": "START"}, work("a", "ask"), ask, work("b", "end"), {"id": "end", "type": "END", "config": {"output": "got"}}],
        "edges": [{"from": "start", "to": "a"}, {"from": "a", "to": "ask"}, {"from": "ask", "to": "b"}, {"from": "b", "to": "end"}]})
    .to_string()
}

/// Answers the question that is pending when the run is idle, and returns the result.
fn answer(engine: &Engine, run: &pirn::RunHandle, answer: &str) -> Option<Result<(), AnswerRefused>> {
    engine.wait_idle();
    let question = block_on(run.interactions()).pop()?;
    let wrong = block_on(run.answer(&question.id, "x"));
    assert!(!matches!(wrong, Ok(())), "it is too short");
    let answered = block_on(run.answer(&question.id, answer));
    let again = block_on(run.answer(&question.id, "again"));
    assert_eq!(
        again,
        Err(AnswerRefused::NotOpen),
        "it was answered, or the store failed"
    );
    Some(answered)
}

#[test]
fn an_acknowledged_answer_survives_a_crash_at_any_point_and_is_used_once() {
    let whole = Failing::new(MemoryStore::new(), Crash::Never);
    assert_eq!(crash_and_answer(&whole).0, Some(Ok(())));
    let (mut lost, mut kept) = (0, 0);
    for at in 0..whole.commits() {
        for crash in [Crash::Before(at), Crash::After(at)] {
            let (first, output) = crash_and_answer(&Failing::new(MemoryStore::new(), crash));
            match (&first, output.as_str()) {
                (Some(Ok(())), "first") | (None, "second") => {}
                (Some(Err(AnswerRefused::NotKept { .. })), "first") => kept += 1,
                (Some(Err(AnswerRefused::NotKept { .. })), "second") => lost += 1,
                other => panic!("{crash:?}: {other:?}"),
            }
        }
    }
    assert_eq!(
        (lost, kept),
        (1, 1),
        "its commit fails before and after it takes effect"
    );
}

/// Answers "first" before the crash, and "second" if the question is still pending afterwards. Returns the result of the first
/// answer and the run's output.
fn crash_and_answer(store: &Failing<MemoryStore>) -> (Option<Result<(), AnswerRefused>>, String) {
    let outside = Outside::default();
    let engine = outside.engine(&asks(), store.clone()).build().expect("builds");
    let run = engine.run("main").run_id(RUN).start().expect("starts");
    let first = answer(&engine, &run, "first");
    engine.wait_idle();
    engine.shutdown_blocking(Duration::from_secs(5));
    let kept = MemoryStore::clone(&store.kept);
    let Some(there) = block_on(kept.run(RUN)).expect("is read") else {
        // The run was not stored, so the answer was not acknowledged, and the run starts again.
        assert!(!matches!(first, Some(Ok(()))));
        let engine = outside.engine(&asks(), kept).build().expect("builds");
        let run = engine.run("main").run_id(RUN).start().expect("starts");
        assert_eq!(answer(&engine, &run, "second"), Some(Ok(())));
        return (
            first,
            run.outcome_blocking().output.as_str().unwrap_or_default().to_owned(),
        );
    };
    let engine = outside.engine(&asks(), kept).build().expect("builds");
    if !there.status.is_final() {
        let run = block_on(engine.resume(RUN).start()).expect("goes on");
        let second = answer(&engine, &run, "second");
        assert!(
            second.is_none() || !matches!(first, Some(Ok(()))),
            "one that was taken is asked for again"
        );
        assert!(second.is_none_or(|second| second.is_ok()));
        run.wait_all_ended_blocking();
    }
    let view = block_on(engine.view(RUN, None)).expect("is read");
    let answered = view
        .events
        .iter()
        .filter(|event| event.raised.event_type == EventType::InteractionAnswered);
    assert_eq!(answered.count(), 1);
    let output = view.report.output.as_str().unwrap_or_default().to_owned();
    (first, output)
}

/// Starts a run on real threads that waits for its answer, in a store on a disk.
fn waiting(disk: &Disk) -> (Engine, pirn::RunHandle, String) {
    let store = SqliteStore::open_on(VFS, disk.path("runs.db")).expect("opens");
    let engine = Engine::builder()
        .store(store)
        .workflows(asks())
        .async_function("work", |_| std::future::ready(Ok(Value::Null)));
    let engine = engine.build().expect("builds");
    let mut run = engine.run("main");
    let mut events = run.blocking_events(&[EventType::InteractionRequested], 10);
    let run = run.start().expect("starts");
    let Some(SubscriptionItem::Event(asked)) = events.next() else {
        panic!("it asks")
    };
    let id = asked.raised.fields["interactionId"]
        .as_str()
        .expect("a text")
        .to_owned();
    (engine, run, id)
}

#[test]
fn an_answer_is_acknowledged_only_when_it_is_durable() {
    let disk = Disk::new();
    let (engine, run, id) = waiting(&disk);
    disk.block_syncs();
    let mut answer = Box::pin(run.answer(&id, "yes"));
    assert_eq!(answer.as_mut().now_or_never(), None);
    disk.wait_for_blocked_sync();
    assert_eq!(answer.as_mut().now_or_never(), None, "it is on its way to the disk");
    disk.release_syncs();
    assert_eq!(block_on(answer), Ok(()));
    assert_eq!(run.outcome_blocking().output, "yes");
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn an_answer_to_a_paused_run_is_acknowledged_before_the_run_resumes() {
    let disk = Disk::new();
    let (engine, run, id) = waiting(&disk);
    run.pause();
    assert_eq!(block_on(run.answer(&id, "yes")), Ok(()));
    run.pin(pirn::PinSection::Todo, json!("wait"));
    assert_eq!(block_on(run.wait_durable()), Ok(()));
    assert_eq!(run.try_outcome(), None);
    run.resume();
    assert_eq!(run.outcome_blocking().output, "yes");
    run.wait_all_ended_blocking();
    assert!(block_on(run.wait_durable()).is_err(), "nobody hears of it any more");
    assert!(engine.find(run.run_id()).is_none());
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn an_answer_that_the_store_fails_to_persist_is_refused_with_store_error() {
    let disk = Disk::new();
    let (engine, run, id) = waiting(&disk);
    disk.trouble(disk.count(), pirn_test_disk::Trouble::Fails);
    let refused = block_on(run.answer(&id, "yes")).expect_err("it is not kept");
    assert_eq!(refused.code(), "STORE_ERROR", "{refused}");
    assert_eq!(
        run.outcome_blocking().error.as_ref().map(|error| error.code.as_str()),
        Some("STORE_ERROR")
    );
    engine.shutdown_blocking(Duration::from_secs(5));
}
