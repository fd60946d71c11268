//! A thread's turns on real threads: bounded, with panics contained, and executed inline while nothing has to wait.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use pirn::{Engine, Event, EventType, RunReport, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{forked, line, node, wait, workflow};
use serde_json::{Map, Value, json};

#[test]
fn a_loop_that_never_waits_can_be_cancelled() {
    let (told, heard) = mpsc::sync_channel(0);
    let first = std::sync::Once::new();
    let spin = json!({"id": "spin",
        "nodes": [{"id": "s", "type": "START"}, node("a", "CODE", json!({"function": "step"})),
            node("b", "CODE", json!({"function": "step"})), {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "b", "weight": 2}, {"from": "b", "to": "a"}, {"from": "a", "to": "e"}],
        "config": {"maxSteps": 50_000_000}});
    let engine = Engine::builder()
        .function("step", move |_| {
            first.call_once(|| told.send(()).unwrap_or(()));
            Ok(json!(null))
        })
        .workflows(spin.to_string())
        .build()
        .expect("valid");
    let run = engine.start("spin", json!(null)).expect("admitted");
    heard.recv().expect("it runs");
    run.cancel("enough");
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Cancelled);
    engine.shutdown_blocking(Duration::from_secs(5));
}

/// Runs a hundred branches in which `good` answers and `bad` panics; the join needs 50 of them.
fn half_of_them(branches: &[Vec<Value>]) -> (Engine, Arc<RunReport>) {
    let join = json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 50});
    let engine = Engine::builder()
        .function("good", |_| Ok(json!("fine")))
        .function("bad", |_| panic!("on purpose"))
        .workflows(forked(branches, false, &join).to_string())
        .build()
        .expect("valid");
    let report = engine
        .start("forked", json!(null))
        .expect("admitted")
        .outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    (engine, report)
}

#[test]
fn branches_that_panic_in_their_first_turn_fail_alone() {
    let bad = |n: usize| node(&format!("b{n}"), "CODE", json!({"function": "bad"}));
    let good = |n: usize| node(&format!("b{n}"), "CODE", json!({"function": "good"}));
    let branches: Vec<_> = (0..100)
        .map(|n| vec![if n % 2 == 0 { bad(n) } else { good(n) }])
        .collect();
    let (engine, report) = half_of_them(&branches);
    let failed = report.output["failed"].as_array().map_or(0, Vec::len);
    assert_eq!(failed, 50);
    assert_eq!(report.output["failed"][0]["error"]["code"], "ACTOR_PANICKED");
    assert_eq!(report.output["failed"][0]["error"]["pathId"], "p0");
    engine.shutdown_blocking(Duration::from_secs(5));
}

/// Short branches run inline one after another, and share no state, also after one that panicked.
#[test]
fn branches_that_run_inline_one_after_another_share_no_state() {
    let branches: Vec<_> = (0..12)
        .map(|n| {
            let count = json!({"variableName": "x", "expression": "(variables.x || 0) + 1"});
            let text = format!("{n}: {{{{x}}}}");
            let say = json!({"operation": "insert", "messages": [{"role": "user", "content": text}]});
            let function = if n % 5 == 3 { "bad" } else { "good" };
            vec![
                node(&format!("x{n}"), "VARIABLE", count),
                node(&format!("s{n}"), "CONTEXT_PROCESSOR", say),
                node(&format!("b{n}"), "CODE", json!({ "function": function })),
            ]
        })
        .collect();
    let join = json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 10, "mainPathId": "p11", "mergeVariables": "all"});
    let engine = Engine::builder()
        .function("good", |_| Ok(json!("fine")))
        .function("bad", |_| panic!("on purpose"))
        .workflows(forked(&branches, false, &join).to_string())
        .build()
        .expect("valid");
    let run = engine.start("forked", json!(null)).expect("admitted");
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    assert_eq!(
        report.variables["x"], 1,
        "each counted from nothing, or they would not agree"
    );
    let said: Vec<&str> = report
        .conversation
        .messages
        .iter()
        .map(|message| &*message.content)
        .collect();
    assert_eq!(said, ["11: 1"]);
    let ids: Vec<&str> = report.threads.iter().map(|thread| &*thread.thread_id).collect();
    let expected: Vec<String> = (0..13).map(|n| format!("{}.{n}", report.run_id)).collect();
    assert_eq!(ids, expected);
    assert_eq!(report.output["childThreadIds"]["p11"], *expected[12]);
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn threads_that_panic_after_a_wait_fail_alone() {
    let branches: Vec<_> = (0..100)
        .map(|n| {
            let function = if n % 2 == 0 { "bad" } else { "good" };
            let then = node(&format!("b{n}"), "CODE", json!({ "function": function }));
            vec![wait(&format!("w{n}"), 1), then]
        })
        .collect();
    let (engine, report) = half_of_them(&branches);
    let failed = report.output["failed"].as_array().expect("a list");
    assert!(!failed.is_empty());
    for failed in failed {
        assert_eq!(failed["error"]["code"], "ACTOR_PANICKED");
        assert!(
            failed["error"]["nodeId"]
                .as_str()
                .is_some_and(|node| node.starts_with('b'))
        );
    }
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_thread_that_panics_after_its_join_reports_the_nodes_that_it_had_executed() {
    let bad = node("bad", "CODE", json!({"function": "bad"}));
    let paths = json!(["p", "q"]);
    let fork = node(
        "fork",
        "FORK",
        json!({"forkPathIds": paths, "childNodeIds": ["a", "b"]}),
    );
    let join = node(
        "join",
        "JOIN",
        json!({"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}),
    );
    let nodes = [
        node("start", "START", json!({})),
        fork,
        wait("a", 1),
        wait("b", 2),
        join,
        bad,
        node("end", "END", json!({})),
    ];
    let edges = ["start>fork>a>join>bad>end", "fork>b>join"];
    let engine = Engine::builder()
        .function("bad", |_| panic!("on purpose"))
        .workflows(workflow("main", &nodes, &edges).to_string())
        .build()
        .expect("valid");
    let report = engine.start("main", json!(null)).expect("admitted").outcome_blocking();
    let error = report.error.as_ref().expect("it failed");
    assert_eq!(
        (error.code.as_str(), error.node_id.as_deref()),
        ("ACTOR_PANICKED", Some("bad"))
    );
    let nodes: Vec<&str> = report.nodes.iter().map(|node| &*node.node_id).collect();
    assert_eq!(nodes, ["start", "fork", "join", "bad"]);
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_thread_ends_for_any_number_of_effects_in_a_turn() {
    // A turn has room for 4,096 effects: the end of the thread may be the first effect of the next turn.
    for count in 4_094..=4_098 {
        let step = |n: usize| node(&format!("n{n}"), "CODE", json!({"function": "step"}));
        let mut chain = line("chain", &(0..count).map(step).collect::<Vec<_>>());
        chain["config"] = json!({"maxSteps": 10_000});
        let engine = Engine::builder()
            .function("step", |_| Ok(json!(null)))
            .workflows(chain.to_string())
            .build()
            .expect("valid");
        let run = engine.start("chain", json!(null)).expect("admitted");
        let (told, heard) = mpsc::channel();
        std::thread::spawn(move || told.send(run.outcome_blocking()));
        let report = heard.recv_timeout(Duration::from_mins(1)).expect("it ends");
        assert_eq!(report.status, ThreadStatus::Completed, "{count}");
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}

#[test]
fn the_node_after_a_join_starts_before_the_losing_branches_are_cancelled() {
    let losers = 100;
    let mut branches = vec![vec![node("w0", "WAIT", json!({"event": "go"}))]];
    branches.extend((1..=losers).map(|n| vec![wait(&format!("w{n}"), 1_000_000)]));
    let join = json!({"joinStrategy": "ANY_COMPLETED"});
    let engine = Engine::builder()
        .workflows(forked(&branches, false, &node("join", "JOIN", join)["config"]).to_string())
        .build()
        .expect("valid");
    let mut run = engine.run("forked");
    let mut events = run.blocking_events(&[EventType::NodeStarted, EventType::ThreadCancelled], 1_024);
    let run = run.start().expect("admitted");
    // Wait until every loser waits: one that has not started when the join is decided would never start.
    let waiting = |event: &Event| {
        let id = event.raised.fields.get("nodeId").and_then(Value::as_str);
        id.is_some_and(|id| id == "join" || id.starts_with('w'))
    };
    let begun = events
        .by_ref()
        .filter(|heard| matches!(heard, SubscriptionItem::Event(event) if waiting(event)))
        .take(losers + 2);
    assert_eq!(begun.count(), losers + 2);
    run.emit("go", Map::new());
    let report = run.outcome_blocking();
    let told: Vec<bool> = events
        .filter_map(|heard| match heard {
            SubscriptionItem::Event(event) if event.raised.event_type == EventType::ThreadCancelled => Some(true),
            SubscriptionItem::Event(event) => {
                (event.raised.fields.get("nodeId") == Some(&json!("end"))).then_some(false)
            }
            SubscriptionItem::Lagged(_) => None,
        })
        .collect();
    assert_eq!(told.len(), losers + 1, "{told:?}");
    assert!(!told[0], "the end came first");
    let ended = |status| report.threads.iter().filter(|thread| thread.status == status).count();
    assert_eq!(
        (ended(ThreadStatus::Completed), ended(ThreadStatus::Cancelled)),
        (2, losers)
    );
    engine.shutdown_blocking(Duration::from_secs(5));
}
