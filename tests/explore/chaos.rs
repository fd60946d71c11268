//! Trials with random faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pirn::chaos::{Chaos, FaultKind};
use pirn::serde_json::{Value, json};
use pirn::{Engine, ThreadStatus, chaos};

use pirn::tools::tool_fn;

fn line(nodes: &[Value], output: &str) -> Value {
    let mut all = vec![json!({"id": "start", "type": "START"})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "end", "type": "END", "config": {"output": output}}));
    let edges: Vec<Value> = all
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    json!({"id": "main", "nodes": all, "edges": edges})
}

fn tried(flow: &Value, kinds: &[FaultKind], seeds: u64) -> Chaos {
    let text = flow.to_string();
    let build = move || {
        let look = |_: Value| std::future::ready(Ok::<_, String>("found".to_owned()));
        Engine::builder()
            .workflows(&*text)
            .tool(tool_fn("look", "looks", json!({"type": "object"}), look))
    };
    let trial = chaos(build).input("a text").seeds(0..seeds).only(kinds.iter().copied());
    trial.run().expect("it runs")
}

fn ask(id: &str) -> Value {
    json!({"id": id, "type": "LLM", "config": {"prompt": "say {{input}}"}})
}

fn look() -> Value {
    json!({"id": "look", "type": "TOOL", "config": {"tool": "look", "arguments": {}}})
}

#[test]
fn kills_at_any_commit_and_clock_jumps_change_no_outcome() {
    let wait = json!({"id": "rest", "type": "WAIT", "config": {"seconds": 600}});
    let question = json!({"id": "sure", "type": "USER_INTERACTION", "config": {"question": "Sure?"}});
    let code = json!({"id": "double", "type": "CODE", "config": {"code": "return input + input"}});
    let flow = line(
        &[ask("one"), wait, look(), question, code, ask("two")],
        "({one: nodes.one, look: nodes.look, sure: nodes.sure.answer, double: nodes.double, two: nodes.two})",
    );
    let tried = tried(&flow, &[FaultKind::Kill, FaultKind::ClockJump], 40);
    assert_eq!(tried.different, 0, "{tried}");
    assert!(
        tried.faults[&FaultKind::Kill] >= 40 && tried.faults[&FaultKind::ClockJump] > 5,
        "{tried}"
    );
}

#[test]
fn equal_seeds_give_equal_trials() {
    let fork = json!({"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["a", "b"]}});
    let join =
        json!({"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ANY_COMPLETED"}});
    let edge = |from: &str, to: &str| json!({"from": from, "to": to});
    let flow = json!({"id": "main", "nodes": [
            {"id": "start", "type": "START"}, fork, ask("a"), ask("b"), join,
            {"id": "end", "type": "END", "config": {"output": "output"}}],
        "edges": [edge("start", "fork"), edge("fork", "a"), edge("fork", "b"), edge("a", "join"), edge("b", "join"),
            edge("join", "end")]});
    let (one, other) = (tried(&flow, &FaultKind::ALL, 20), tried(&flow, &FaultKind::ALL, 20));
    assert_eq!(one, other);
    assert!(one.different > 0, "{one}");
}

#[test]
fn the_kinds_without_which_an_outcome_does_not_differ_are_its_causes() {
    let limited = |mut node: Value| {
        node["timeoutMs"] = json!(500);
        node
    };
    for (kind, node, output) in [
        (FaultKind::ModelError, ask("ask"), "1"),
        (FaultKind::TruncatedReply, ask("ask"), "output.content"),
        (FaultKind::LateReply, limited(ask("ask")), "1"),
        (FaultKind::ToolError, look(), "1"),
        (FaultKind::HangingTool, limited(look()), "1"),
    ] {
        // All kinds that affect the outcome, and others that do not.
        let kinds = [kind, FaultKind::Kill, FaultKind::ClockJump];
        let found = tried(&line(&[node], output), &kinds, 60);
        assert!(found.different > 0, "{kind:?}: {found}");
        assert!(found.runs.iter().any(|run| run.causes == [kind]), "{found}");
        for run in &found.runs {
            // A call that is repeated after a kill may receive the fault.
            assert!(run.causes.contains(&kind), "seed {}: {found}", run.seed);
            assert!(run.faults.iter().any(|fault| fault.kind == kind), "{found}");
            assert_eq!(run.expected.status, ThreadStatus::Completed);
        }
    }
}

#[test]
fn a_downtime_that_exceeds_a_time_limit_is_a_cause() {
    let mut flow = line(
        &[
            json!({"id": "rest", "type": "WAIT", "config": {"seconds": 60}}),
            ask("ask"),
        ],
        "1",
    );
    flow["config"] = json!({"timeoutMs": 120_000});
    let found = tried(&flow, &[FaultKind::Kill, FaultKind::ClockJump], 30);
    assert!(found.different > 0, "{found}");
    for run in &found.runs {
        assert_eq!(
            (&run.causes[..], run.got.status),
            (&[FaultKind::ClockJump][..], ThreadStatus::Timeout),
            "{found}"
        );
    }
}

/// A workflow whose branches run at the same time. `b` fails if it runs before `a`.
fn racing() -> Value {
    let set = |id: &str, name: &str, expression: &str| json!({"id": id, "type": "VARIABLE", "config": {"variableName": name, "expression": expression, "scope": "global"}});
    let edge = |from: &str, to: &str| json!({"from": from, "to": to});
    json!({"id": "main", "nodes": [
            {"id": "start", "type": "START"},
            {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["a", "b"]}},
            set("a", "one", "1"), set("b", "two", "one + 1"),
            {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"}},
            {"id": "end", "type": "END", "config": {"output": "two"}}],
        "edges": [edge("start", "fork"), edge("fork", "a"), edge("fork", "b"), edge("a", "join"), edge("b", "join"),
            edge("join", "end")]})
}

#[test]
fn a_race_that_a_kill_decides_is_no_difference() {
    let mut limited = line(
        &[json!({"id": "rest", "type": "WAIT", "config": {"seconds": 5}})],
        "output",
    );
    // The timer of the WAIT and that of the limit expire at one moment.
    limited["config"] = json!({"timeoutMs": 5000});
    for flow in [racing(), limited] {
        let found = tried(&flow, &[FaultKind::Kill], 40);
        assert_eq!(found.different, 0, "{found}");
        assert!(found.races > 0, "{found}");
        assert_eq!(found.runs.len() as u64, found.races, "{found}");
        for run in &found.runs {
            assert!(run.race && run.causes == [FaultKind::Kill], "{found}");
        }
        let text = found.to_string();
        let line = "race: the outcome also occurs without a kill, in another order of concurrent steps";
        assert!(text.contains(line), "{text}");
        let last = format!(
            "{} of 40 runs are races; `pirn explore` shows the orders\n",
            found.races
        );
        assert!(text.ends_with(&last), "{text}");
    }
}

#[test]
fn an_outcome_that_no_order_without_a_kill_has_is_a_difference() {
    let text = line(&[look()], "output").to_string();
    let calls = Arc::new(AtomicU64::new(0));
    let build = move || {
        let calls = Arc::clone(&calls);
        let count = move |_: Value| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok::<_, String>(call.to_string()))
        };
        Engine::builder()
            .workflows(&*text)
            .tool(tool_fn("look", "looks", json!({"type": "object"}), count))
    };
    let found = chaos(build).input("a text").seeds(0..2).only([FaultKind::Kill]).run();
    let found = found.expect("it runs");
    assert_eq!((found.different, found.races), (2, 0), "{found}");
}
