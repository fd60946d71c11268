//! Two engines of one process that use the same store object.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{MemoryStore, Store, StoreError};
use pirn::{Engine, ResumeError, RunHandle, ThreadStatus};
use serde_json::{Value, json};

const GRACE: Duration = Duration::from_secs(5);

fn engine(store: &Arc<dyn Store>) -> Engine {
    let waits = json!({"id": "waits", "edges": [{"from": "start", "to": "wait"}, {"from": "wait", "to": "end"}],
        "nodes": [{"id": "start", "type": "START"}, {"id": "wait", "type": "WAIT", "config": {"event": "go"}},
            {"id": "end", "type": "END"}]});
    let built = Engine::builder()
        .shared_store(Arc::clone(store))
        .workflows(waits.to_string());
    built.build().expect("builds")
}

fn is_held(result: &Result<RunHandle, ResumeError>) -> bool {
    matches!(result, Err(ResumeError::Store(StoreError::RunHeld { .. })))
}

#[test]
fn a_run_of_another_engine_with_the_same_store_is_not_resumed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (first, second) = (engine(&store), engine(&store));
    let run = first.start("waits", Value::Null).expect("admitted");
    block_on(run.wait_durable()).expect("durable");
    assert!(is_held(&block_on(second.resume(run.run_id()).start())));
    assert!(is_held(&block_on(second.resume(run.run_id()).cancel("no owner"))));
    let emitted = block_on(second.resume(run.run_id()).emit("go", [("n", json!(1))]));
    assert!(is_held(&emitted.map(|()| run.clone())), "the owner has the journal");
    assert!(block_on(second.recover()).expect("read").is_empty());
    assert_eq!(run.try_outcome(), None, "the run continues");
    // Once the owner has stopped, the run has none.
    block_on(first.shutdown(GRACE));
    let recovered = block_on(second.recover()).expect("read");
    let [(id, Ok(again))] = &recovered[..] else {
        panic!("not recovered")
    };
    assert_eq!(id, run.run_id());
    again.emit("go", [("n", json!(1))]);
    assert_eq!(block_on(again.outcome()).status, ThreadStatus::Completed);
    block_on(second.shutdown(GRACE));
}
