//! Runs with a changed journal.

use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use pirn::store::{MemoryStore, Pending, Record, RunStatus, Store, StoreError, forward_to_store};
use pirn::{CommandOutcome, Engine, RunBuilder, RunCommand, RunHandle, ThreadStatus};
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

use crate::durable::faults::external_effects::RUN;
use crate::durable::triggers::asking;

type Edit = fn(&mut Vec<Record>) -> Result<(), StoreError>;

const SWAPPED: Edit = |records| {
    records.swap(0, 1);
    Ok(())
};

/// A store that changes the records of one run when they are read.
struct Edited {
    run: &'static str,
    store: MemoryStore,
    edit: Edit,
}

impl Store for Edited {
    forward_to_store!(store: location commit run runs contents chain snapshot timers sessions session set_meta meta remove remove_session);

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        // A store in memory answers at once.
        let read = self.store.journal(id, 0, 1_000).now_or_never();
        let mut records = read.expect("is ready").expect("is read");
        let edited = if id == self.run {
            (self.edit)(&mut records)
        } else {
            Ok(())
        };
        let rest = records.into_iter().skip(after as usize).take(limit).collect();
        Box::pin(std::future::ready(edited.map(|()| rest)))
    }
}

fn engine(store: impl Store) -> Engine {
    let ask = |id: &str| node(id, "LLM", json!({"prompt": format!("say {id}")}));
    let nodes = [
        ask("a"),
        ask("b"),
        node("sure", "USER_INTERACTION", json!({"question": "Sure?"})),
    ];
    // A run of `parent` starts one of `main`, and waits for an answer like it.
    let mut parent = line("parent", &[ask("a"), nodes[2].clone()]);
    parent["triggers"] = json!([{"id": "t", "type": "EVENT", "maxTriggers": 1,
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'a'"},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "main"}}}]);
    let builder = Engine::builder().workflows(json!({"workflows": [line("main", &nodes), parent]}).to_string());
    builder.store(store).build().expect("builds")
}

fn answer(run: &RunHandle) -> ThreadStatus {
    let question = block_on(run.interactions()).remove(0);
    block_on(run.answer(&question.id, Value::from("yes"))).expect("is open");
    run.outcome_blocking().status
}

/// Returns the store of a process that ended while a run, and the runs that it started, waited for answers.
fn stored_by(start: impl FnOnce(&Engine) -> RunBuilder, waiting: &[&str]) -> MemoryStore {
    let store = MemoryStore::new();
    let first = engine(store.clone());
    let _run = start(&first).run_id(RUN).start().expect("starts");
    for run in waiting {
        block_on(asking(&first, run).wait_durable()).expect("is durable");
    }
    first.shutdown_blocking(Duration::ZERO);
    store
}

fn cancel(engine: &Engine, run: &str) -> Result<CommandOutcome, String> {
    let reason = "it cannot continue".to_owned();
    let cancelled = block_on(engine.send_command(run, &RunCommand::Cancel { reason }));
    cancelled.map_err(|error| error.code().to_owned())
}

#[test]
fn a_run_whose_journal_was_changed_diverges_and_stays_resumable() {
    let store = stored_by(|engine| engine.run("main"), &[RUN]);
    let stored = || block_on(store.run(RUN)).expect("is read").expect("is there");
    let before = stored();
    assert!(before.steps >= 2, "{before:?}");
    let edits: [(&str, Edit); 2] = [
        ("in another order", SWAPPED),
        ("without the first record", |records| {
            records.remove(0);
            Ok(())
        }),
    ];
    for (name, edit) in edits {
        let edited = engine(Edited {
            run: RUN,
            store: store.clone(),
            edit,
        });
        let resumed = block_on(edited.resume(RUN).start());
        let error = resumed.map(|_| ()).expect_err(name);
        assert_eq!(error.code(), "RUN_DIVERGED", "{name}: {error}");
        let view = block_on(edited.view(RUN, None)).map(|_| ()).expect_err(name);
        assert_eq!(view.code(), "RUN_DIVERGED", "{name}: {view}");
        edited.shutdown_blocking(Duration::ZERO);
        assert_eq!(stored(), before, "{name}");
    }
    let last = engine(store.clone());
    let run = block_on(last.resume(RUN).start()).expect("the unchanged journal fits");
    assert_eq!(answer(&run), ThreadStatus::Completed);
    last.shutdown_blocking(Duration::from_secs(5));
}

/// Otherwise the session would wait for it, and it could be neither pruned nor erased.
#[test]
fn a_run_that_cannot_be_replayed_can_be_cancelled_and_removed() {
    let edits: [(&str, Edit); 3] = [
        ("diverges", SWAPPED),
        ("is no record", |records| {
            records[0].body = "{}".to_owned();
            Ok(())
        }),
        ("is damaged", |_| {
            Err(StoreError::Damaged {
                file: "runs.db".into(),
                run: Some(RUN.to_owned()),
                why: "step 1: the checksum does not match".to_owned(),
            })
        }),
    ];
    for (name, edit) in edits {
        let store = stored_by(|engine| engine.run("main").session("s"), &[RUN]);
        let edited = engine(Edited {
            run: RUN,
            store: store.clone(),
            edit,
        });
        let blocked = edited.run("main").session("s").start().expect("starts");
        let error = blocked.outcome_blocking().error.clone().expect("waits for no one");
        assert!(error.message.contains(RUN), "{name}: {error}");
        assert_eq!(cancel(&edited, RUN), Ok(CommandOutcome::Ended), "{name}");
        assert_eq!(cancel(&edited, RUN), Err("RUN_HAS_ENDED".to_owned()), "{name}");
        let stored = block_on(store.run(RUN)).expect("is read").expect("is there");
        assert_eq!(stored.status, RunStatus::Cancelled, "{name}");
        let next = edited.run("main").session("s").start().expect("starts");
        assert_eq!(
            answer(&asking(&edited, next.run_id())),
            ThreadStatus::Completed,
            "{name}"
        );
        edited.shutdown_blocking(Duration::from_secs(5));
        let removed = block_on(store.remove(vec![RUN.to_owned()], false)).expect("is removed");
        assert_eq!(removed.runs, 1, "{name}");
    }
}

#[test]
fn a_run_continues_after_a_started_run_that_cannot_be_replayed_is_cancelled() {
    const CHILD: &str = "run-1-f1";
    let store = stored_by(|engine| engine.run("parent"), &[RUN, CHILD]);
    let edited = engine(Edited {
        run: CHILD,
        store: store.clone(),
        edit: SWAPPED,
    });
    let refused = block_on(edited.resume(RUN).start())
        .map(|_| ())
        .expect_err("waits for the child");
    assert!(refused.to_string().contains(CHILD), "{refused}");
    assert_eq!(
        cancel(&edited, RUN),
        Err("RUN_DIVERGED".to_owned()),
        "the child comes first"
    );
    assert_eq!(cancel(&edited, CHILD), Ok(CommandOutcome::Ended));
    let run = block_on(edited.resume(RUN).start()).expect("resumes");
    assert_eq!(answer(&run), ThreadStatus::Completed);
    let report = run.outcome_blocking();
    let failed = report.firings.iter().filter(|firing| firing.error.is_some()).count();
    assert_eq!(failed, 1, "{:?}", report.firings);
    edited.shutdown_blocking(Duration::from_secs(5));
}
