//! Runs that lack tools, profiles or variables when they are resumed or forked stay unchanged.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use futures::future::{self, BoxFuture, FutureExt};
use pirn::store::{MemoryStore, Store, WaitingFor};
use pirn::{Engine, EngineBuilder, Profile, Tool, ToolSpec, WorkClock};
use serde_json::{Value, json};

struct Order;

impl Tool for Order {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "order".to_owned(),
            description: "Orders".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }

    fn call(&self, _: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        future::ready(Ok("ordered".to_owned())).boxed()
    }
}

fn flow() -> String {
    let nodes = json!([{"id": "start", "type": "START"},
        {"id": "sure", "type": "USER_INTERACTION", "config": {"question": "Sure?"}},
        {"id": "order", "type": "TOOL", "config": {"tool": "order"}},
        {"id": "ask", "type": "LLM", "config": {"prompt": "done?", "profileId": "house"}},
        {"id": "end", "type": "END", "config": {"output": "nodes.order"}}]);
    let edges = json!([{"from": "start", "to": "sure"}, {"from": "sure", "to": "order"}, {"from": "order", "to": "ask"},
        {"from": "ask", "to": "end"}]);
    let variables = json!([{"name": "amount", "value": 1}]);
    json!({"id": "main", "nodes": nodes, "edges": edges, "variables": variables}).to_string()
}

fn equipped(store: &MemoryStore) -> EngineBuilder {
    let house = Profile {
        id: "house".to_owned(),
        provider: "echo".to_owned(),
        ..Profile::default()
    };
    Engine::builder()
        .store(store.clone())
        .profiles([house])
        .tool(Arc::new(Order))
}

/// Starts a run that waits for an answer, and leaves it in the engine's store.
fn waiting(engine: EngineBuilder) {
    let engine = engine.workflows(flow()).build().expect("builds");
    let run = engine.run("main").run_id("r").start().expect("starts");
    while block_on(run.interactions()).is_empty() {
        std::thread::yield_now();
    }
    block_on(run.wait_durable()).expect("is kept");
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_run_is_not_resumed_without_its_tools_and_profiles() {
    let store = MemoryStore::new();
    waiting(equipped(&store));
    let bare = Engine::builder().store(store.clone()).build().expect("builds");
    let error = block_on(bare.resume("r").start()).expect_err("a tool is missing");
    assert_eq!(error.code(), "RESOURCE_MISSING");
    assert!(
        error
            .to_string()
            .ends_with("this process lacks profile house, tool order"),
        "{error}"
    );
    bare.shutdown_blocking(Duration::from_secs(5));
    let run = block_on(store.run("r")).expect("is read").expect("is there");
    assert!(!run.status.is_final(), "it stays as it is");

    let engine = equipped(&store).build().expect("builds");
    let run = block_on(engine.resume("r").answers(|_| Some(json!("yes")), |_, _| ()).start()).expect("goes on");
    assert_eq!(run.outcome_blocking().output, "ordered");
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_run_is_resumed_without_tools_that_it_never_had() {
    let store = MemoryStore::new();
    waiting(Engine::builder().store(store.clone()));
    let engine = Engine::builder().store(store).build().expect("builds");
    let run = block_on(engine.resume("r").answers(|_| Some(json!("yes")), |_, _| ()).start()).expect("goes on");
    assert!(run.outcome_blocking().error.is_some(), "it has no tool, as before");
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_run_without_its_tools_can_be_cancelled() {
    let store = MemoryStore::new();
    waiting(equipped(&store));
    let bare = Engine::builder().store(store).build().expect("builds");
    let run = block_on(bare.resume("r").cancel("enough")).expect("is cancelled");
    assert_eq!(run.outcome_blocking().status.as_str(), "CANCELLED");
    bare.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_fork_that_lacks_its_tools_is_removed_when_its_start_is_refused() {
    let store = MemoryStore::new();
    waiting(equipped(&store));
    let bare = Engine::builder().store(store.clone()).build().expect("builds");
    let fork = block_on(bare.fork("r", 0).make("f")).expect("is made");
    let error = block_on(fork.start()).expect_err("a tool is missing");
    assert_eq!(error.code(), "RESOURCE_MISSING");
    assert!(block_on(store.run("f")).expect("is read").is_none(), "nothing is left");
    assert!(block_on(store.run("r")).expect("is read").is_some());
    bare.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_fork_assigns_only_existing_variables() {
    let store = MemoryStore::new();
    waiting(equipped(&store));
    let engine = equipped(&store).build().expect("builds");
    let error = block_on(engine.fork("r", 0).set("amuont", json!(2)).make("r2"))
        .map(|_| ())
        .expect_err("a typo");
    assert_eq!(error.code(), "UNKNOWN_NAME");
    assert!(error.to_string().contains("did you mean amount?"), "{error}");
    assert!(block_on(store.run("r2")).expect("is read").is_none(), "no run is made");
    let made = block_on(engine.fork("r", 0).set("amount", json!(2)).make("r3")).expect("is made");
    assert_eq!(made.run_id(), "r3");
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_fork_starts_at_the_time_at_which_it_is_made() {
    let wait = |id: &str| json!({"id": id, "type": "WAIT", "config": {"seconds": 5}});
    let flow = json!({"id": "nap", "nodes": [{"id": "start", "type": "START"}, wait("one"), wait("two"), {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "one"}, {"from": "one", "to": "two"}, {"from": "two", "to": "end"}]});
    let store = MemoryStore::new();
    let engine = Engine::builder()
        .workflows(flow.to_string())
        .store(store.clone())
        .virtual_time(None);
    let engine = engine.build().expect("builds");
    let run = engine.run("nap").run_id("r").start().expect("starts");
    assert_eq!(run.outcome_blocking().elapsed_ms, 10_000);
    engine.wait_idle();
    let fork = block_on(engine.fork("r", 1).make("fork")).expect("is made");
    let fork = block_on(fork.start()).expect("starts");
    fork.outcome_blocking();
    engine.wait_idle();
    let started = |id: &str| block_on(store.run(id)).expect("is read").expect("is stored").started_at;
    assert_eq!(
        (started("r"), started("fork")),
        (0, 10_000),
        "not 5 s, the time of the shared step"
    );
}

#[test]
fn a_view_at_a_step_shows_the_pending_wait_and_the_nodes_of_its_steps() {
    let store = MemoryStore::new();
    waiting(equipped(&store));
    let engine = equipped(&store).build().expect("builds");
    let run = block_on(engine.resume("r").answers(|_| Some(json!("yes")), |_, _| ()).start()).expect("goes on");
    run.outcome_blocking();
    run.wait_all_ended_blocking();
    let early = block_on(engine.view("r", Some(0))).expect("is read");
    assert_eq!(early.waiting_for.map(WaitingFor::as_str), Some("interaction"));
    let whole = block_on(engine.view("r", None)).expect("is read");
    assert_eq!(whole.waiting_for, None);
    let mut answered = whole.history.iter().filter(|step| step.kind.as_str() == "interaction");
    let node = answered.next().and_then(|step| step.node_id.as_deref());
    assert_eq!(node, Some("sure"));
    engine.shutdown_blocking(Duration::from_secs(5));
}
