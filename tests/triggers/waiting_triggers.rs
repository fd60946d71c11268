//! SPEC section 6, `waitForCompletion: true`: the thread stops at its next safe point until the child has ended. The event
//! may be raised for the thread by itself, its conversation, its supervisor or a model's stream.

use pirn::{Engine, EventType};
use pirn_tests::world::{code, forked, line, node, run_in, say, wait, workflow};
use serde_json::{Value, json};

/// The time that the sub-workflow takes.
const TAKES_MS: u32 = 100;

fn sub() -> Value {
    workflow(
        "sub",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            wait("x", TAKES_MS),
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["s>x>c"],
    )
}

fn ask() -> Value {
    node("ask", "LLM", json!({"profileId": "main", "prompt": "go"}))
}

/// START > (what raises the event) > after > END.
fn cases() -> Vec<(EventType, Value)> {
    use EventType as E;
    let call = |mode: &str| node("call", "SUBGRAPH", json!({"subgraphId": "child", "conversation": mode}));
    let after = || code("after", "return 1");
    let main = |first: Value| line("main", &[first, after()]);
    let join = || {
        let mut forked = forked(
            &[vec![code("a", "return 1")], vec![code("b", "return 2")]],
            false,
            &json!({"joinStrategy": "ALL_COMPLETED"}),
        );
        forked["id"] = json!("main");
        let nodes = forked["nodes"].as_array_mut();
        if let Some(nodes) = nodes {
            nodes.push(after());
        }
        forked["edges"] = json!([
            {"from": "start", "to": "fork"}, {"from": "fork", "to": "a"}, {"from": "fork", "to": "b"},
            {"from": "a", "to": "join"}, {"from": "b", "to": "join"},
            {"from": "join", "to": "after"}, {"from": "after", "to": "end"}]);
        forked
    };
    let limited = |limit: u64| {
        let mut main = main(ask());
        main["config"] = json!({ "tokenLimit": limit });
        main
    };
    let compress = node(
        "compress",
        "CONTEXT_PROCESSOR",
        json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 2}}),
    );
    vec![
        (E::NodeCompleted, main(code("a", "return 1"))),
        (E::MessageAdded, main(say("say", "hello"))),
        (E::MessageAdded, main(ask())),
        (E::MessageAdded, main(call("share"))),
        (E::LlmToken, main(ask())),
        (E::RequestPrepared, main(ask())),
        (E::CompressionCompleted, main(compress)),
        (E::SubgraphStarted, main(call("none"))),
        (E::SubgraphCompleted, main(call("none"))),
        (E::ThreadForkStarted, join()),
        (E::ThreadJoinConditionMet, join()),
        (
            E::VariableChanged,
            main(node("v", "VARIABLE", json!({"variableName": "n", "expression": "1"}))),
        ),
        (E::TokenLimitExceeded, limited(3)),
        (E::TokenUsageWarning, limited(6)),
    ]
}

#[test]
fn a_waiting_trigger_holds_the_thread_at_its_next_safe_point_for_every_event_source() {
    for (event, main) in cases() {
        let trigger = json!({"id": "t", "type": "EVENT", "workflowId": "main", "maxTriggers": 1,
            "condition": {"eventType": event},
            "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}});
        let bundle = json!({
            "workflows": [main, sub(), line("child", &[say("say", "hello")])],
            "triggers": [trigger],
            "profiles": [{"id": "main", "provider": "echo"}],
        });
        for seed in 0..10 {
            let name = format!("{} in order {seed}", event.as_str());
            let engine = Engine::builder().virtual_time(Some(seed));
            let ran = run_in(engine, &bundle, Value::Null, Vec::new());
            assert_eq!(ran.code(), "", "{name}");
            assert_eq!(
                ran.report.firings.len(),
                1,
                "{name}: {:?}",
                ran.of(EventType::RequestPrepared)
            );
            let when = |event_type: EventType, id: &str| {
                let of = ran.of(event_type).into_iter();
                let mut at = of.filter(|event| event.raised.fields["nodeId"] == id);
                at.next().map(|event| event.timestamp)
            };
            let began = when(EventType::NodeStarted, "after");
            assert_eq!(began, Some(u64::from(TAKES_MS)), "{name}: the next node waits");
            if event == EventType::TokenLimitExceeded {
                let asked = when(EventType::NodeCompleted, "ask");
                assert_eq!(asked, Some(u64::from(TAKES_MS)), "{name}: the call waits");
            }
        }
    }
}
