//! The limits of a model call are decided once and recorded, so other prices after a resume do not change them.

use futures::executor::block_on;
use pirn::store::MemoryStore;
use pirn::{Engine, RunErrorCode, ThreadStatus};
use serde_json::json;

/// A model call, a question and another model call.
const WORKFLOW: &str = r#"{"id": "main", "config": {"budget": {"cost": 0.001}}, "nodes": [
    {"id": "start", "type": "START"}, {"id": "first", "type": "LLM", "config": {"prompt": "one"}},
    {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Go on?"}},
    {"id": "second", "type": "LLM", "config": {"prompt": "two"}}, {"id": "end", "type": "END"}],
  "edges": [{"from": "start", "to": "first"}, {"from": "first", "to": "ask"}, {"from": "ask", "to": "second"},
    {"from": "second", "to": "end"}]}"#;

/// Returns an engine whose model has this price per million tokens.
fn engine(store: &MemoryStore, price: f64) -> Engine {
    let profile = json!({"id": "m", "provider": "scripted", "parameters": {"maxTokens": 100},
        "prices": {"input": price, "output": price}, "responses": [{"content": "said"}, {"content": "said"}]});
    let profile = serde_json::from_value(profile).expect("a profile");
    let engine = Engine::builder().virtual_time(None).store(store.clone());
    engine.workflows(WORKFLOW).profiles([profile]).build().expect("builds")
}

#[test]
fn the_budget_decision_for_a_call_is_recorded_and_survives_higher_prices() {
    let store = MemoryStore::new();
    let cheap = engine(&store, 1.0);
    let run = cheap.run("main").run_id("run-1").start().expect("starts");
    cheap.wait_idle();
    drop((run, cheap));

    let dear = engine(&store, 1_000.0);
    let run = block_on(dear.resume("run-1").start()).expect("it stands as it did");
    dear.wait_idle();
    let asked = block_on(run.interactions());
    block_on(run.answer(&asked[0].id, json!("yes"))).expect("is taken");
    dear.wait_idle();
    let report = run.try_outcome().expect("it ended");
    assert_eq!(report.status, ThreadStatus::Failed);
    let error = report.error.as_ref().expect("it failed");
    assert_eq!(error.code, RunErrorCode::TokenBudgetExceeded, "the second call is dear");
    let nodes: Vec<&str> = report.nodes.iter().map(|node| &*node.node_id).collect();
    assert_eq!(nodes, ["start", "first", "ask", "second"]);
    drop((run, dear));

    // A later view shows what happened, independent of the prices in its configuration.
    for price in [1.0, 5.0] {
        let view = block_on(engine(&store, price).view("run-1", None)).expect("is rebuilt");
        assert_eq!(view.report.error, report.error);
        assert_eq!(view.report.budget, report.budget);
    }
}
