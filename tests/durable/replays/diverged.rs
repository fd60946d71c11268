//! Runs with a changed journal.

use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use pirn::store::{MemoryStore, Pending, Record, Store, forward_to_store};
use pirn::{Engine, EventType, ThreadStatus};
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

use crate::durable::faults::external_effects::RUN;

type Edit = fn(&mut Vec<Record>);

/// A store that changes the records of the run when they are read.
struct Edited {
    store: MemoryStore,
    edit: Edit,
}

impl Store for Edited {
    forward_to_store!(store: location commit run runs contents chain snapshot timers sessions session set_meta meta remove remove_session);

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        // A store in memory answers at once.
        let read = self.store.journal(id, 0, 1_000).now_or_never();
        let mut records = read.expect("is ready").expect("is read");
        (self.edit)(&mut records);
        let rest = records.into_iter().skip(after as usize).take(limit).collect();
        Box::pin(std::future::ready(Ok(rest)))
    }
}

fn engine(store: impl Store) -> Engine {
    let ask = |id: &str| node(id, "LLM", json!({"prompt": format!("say {id}")}));
    let nodes = [
        ask("a"),
        ask("b"),
        node("sure", "USER_INTERACTION", json!({"question": "Sure?"})),
    ];
    let builder = Engine::builder().workflows(line("main", &nodes).to_string());
    builder.store(store).build().expect("builds")
}

#[test]
fn a_run_whose_journal_was_changed_diverges_and_stays_resumable() {
    let store = MemoryStore::new();
    let first = engine(store.clone());
    let mut run = first.run("main").run_id(RUN);
    let mut asked = run.blocking_events(&[EventType::InteractionRequested], 10);
    let run = run.start().expect("starts");
    asked.next().expect("the run asks");
    block_on(run.wait_durable()).expect("is durable");
    first.shutdown_blocking(Duration::ZERO);
    let stored = || block_on(store.run(RUN)).expect("is read").expect("is there");
    let before = stored();
    assert!(before.steps >= 2, "{before:?}");
    let edits: [(&str, Edit); 2] = [
        ("in another order", |records| records.swap(0, 1)),
        ("without the first record", |records| drop(records.remove(0))),
    ];
    for (name, edit) in edits {
        let edited = engine(Edited {
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
    let question = block_on(run.interactions()).remove(0);
    block_on(run.answer(&question.id, Value::from("yes"))).expect("is open");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    last.shutdown_blocking(Duration::from_secs(5));
}
