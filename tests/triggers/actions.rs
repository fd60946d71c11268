//! SPEC sections 5 to 7 in a real engine: events fire triggers, and conversations are compressed.

use pirn::{Engine, EventType, Message, Role, ThreadStatus};
use pirn_tests::world::{Ran, code, line, long_conversation, node, run, run_in, run_unrecorded, say, wait, workflow};
use serde_json::{Value, json};

const SEED_002: &str = include_str!("../seeds/002-compression-workflow.json");
const SEED_002_TRIGGER: &str = include_str!("../seeds/002-trigger.json");
const SEED_003: &str = include_str!("../seeds/003-compression-workflow.json");
const SEED_003_TRIGGER: &str = include_str!("../seeds/003-trigger.json");

fn seed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// The models: `main` echoes, that of the compression replies SUMMARY after `delay_ms`.
fn profiles(delay_ms: u32) -> Value {
    json!([
        {"id": "main", "provider": "echo"},
        {"id": "compression-profile", "provider": "scripted",
         "responses": [{"content": "SUMMARY", "delayMs": delay_ms}]},
    ])
}

fn ask(id: &str) -> Value {
    node(
        id,
        "LLM",
        json!({"profileId": "main", "prompt": format!("question {id}")}),
    )
}

/// START > A > B > C > END, with `limit` as its token limit if given.
fn main_workflow(limit: Option<u64>) -> Value {
    let mut main = line("main", &[ask("A"), ask("B"), ask("C")]);
    if let Some(limit) = limit {
        main["config"] =
            json!({"tokenLimit": limit, "compression": {"strategy": "keep_system_recent", "parameters": {"count": 2}}});
    }
    main
}

fn virtually(bundle: &Value) -> Ran {
    run_in(
        Engine::builder().virtual_time(Some(3)),
        bundle,
        json!({"topic": "birds"}),
        long_conversation(),
    )
}

fn types(ran: &Ran) -> Vec<EventType> {
    ran.events.iter().map(|event| event.raised.event_type).collect()
}

#[test]
fn the_seeds_triggered_workflow_compresses_before_a_call_beyond_the_limit() {
    let with = json!({
        "workflows": [main_workflow(Some(200)), seed(SEED_002)],
        "triggers": [seed(SEED_002_TRIGGER)], "profiles": profiles(10),
    });
    let without = json!({
        "workflows": [main_workflow(Some(200)), seed(SEED_002)], "profiles": profiles(10),
    });
    let (ran, plain) = (virtually(&with), virtually(&without));
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    assert_eq!(ran.nodes(), plain.nodes(), "G29: the node sequence is the same");
    assert_eq!(ran.nodes(), ["start", "A", "B", "C", "end"], "G29");
    assert_eq!(
        ran.visible(),
        [
            "You are kind.",
            "SUMMARY",
            "question A",
            "question A",
            "question B",
            "question B",
            "question C",
            "question C"
        ]
    );
    assert_eq!(ran.of(EventType::TokenLimitExceeded).len(), 1);
    assert_eq!(ran.of(EventType::TriggeredSubgraphStarted).len(), 1);
    assert_eq!(ran.of(EventType::TriggeredSubgraphCompleted).len(), 1);
    assert_eq!(ran.of(EventType::CompressionCompleted).len(), 1, "{:?}", types(&ran));
    assert_eq!(ran.report.firings.len(), 1);
    let firing = &ran.report.firings[0];
    assert_eq!(firing.trigger_id, "compression-trigger");
    assert_eq!(firing.current_node_id.as_deref(), Some("A"));
    assert_eq!(firing.next_node_id.as_deref(), Some("B"));
    assert_eq!(firing.status, Some(ThreadStatus::Completed));
    assert_eq!(firing.nodes.len(), 5, "the child's nodes are a list of its own");
    assert_eq!(
        ran.report.variables, plain.report.variables,
        "G29: variables are as they were"
    );
    assert_eq!(
        ran.report.conversation.messages.len(),
        plain.report.conversation.messages.len() + 3,
        "archived messages are kept; system, summary and the current turn stand again in the new batch"
    );
}

#[test]
fn the_seeds_detached_workflow_compresses_without_the_thread_waiting() {
    let mut main = line("main", &[ask("A"), wait("pause", 1000), ask("B"), ask("C")]);
    main["config"] =
        json!({"tokenLimit": 600, "compression": {"strategy": "keep_system_recent", "parameters": {"count": 2}}});
    let bundle = json!({
        "workflows": [main, seed(SEED_003)], "triggers": [seed(SEED_003_TRIGGER)], "profiles": profiles(0),
    });
    let ran = virtually(&bundle);
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    assert_eq!(ran.of(EventType::CompressionCompleted).len(), 1, "{:?}", types(&ran));
    let visible = ran.visible();
    assert_eq!(visible[0], "You are kind.");
    assert!(visible.len() < 21, "{visible:?}");
    assert_eq!(
        visible[visible.len() - 6..],
        [
            "question A",
            "question A",
            "question B",
            "question B",
            "question C",
            "question C"
        ]
    );
}

/// The messages after the last assistant message without tool calls (SPEC section 7).
fn current_turn(messages: &[Message]) -> &[Message] {
    let answered = |message: &Message| message.role == Role::Assistant && message.tool_calls.is_empty();
    let begins = messages.iter().rposition(answered).map_or(0, |last| last + 1);
    &messages[begins..]
}

#[test]
fn messages_added_during_a_compression_follow_the_summary() {
    let mut trigger = seed(SEED_002_TRIGGER);
    trigger["action"]["parameters"]["waitForCompletion"] = json!(false);
    let main = {
        let mut main = line(
            "main",
            &[ask("A"), say("u3", "u3"), wait("pause", 1000), say("u4", "u4")],
        );
        main["config"] = json!({"tokenLimit": 200});
        main
    };
    // The seed's workflow, with a first node that records the workflow's input.
    let squeeze = {
        let mut squeeze = seed(SEED_002);
        let start = squeeze["nodes"][0]["id"].clone();
        for edge in squeeze["edges"].as_array_mut().into_iter().flatten() {
            if edge["from"] == start {
                edge["from"] = json!("look");
            }
        }
        let look = node("look", "CODE", json!({"function": "look", "input": "input.messages"}));
        let lists = [("nodes", look), ("edges", json!({"from": start, "to": "look"}))];
        for (list, item) in lists {
            if let Some(list) = squeeze[list].as_array_mut() {
                list.push(item);
            }
        }
        squeeze
    };
    let alone = json!({"workflows": [main.clone()], "profiles": profiles(100)});
    let plain = virtually(&alone).report.conversation.messages;
    let plain: Vec<Message> = plain.iter().map(|message| (**message).clone()).collect();
    let bundle = json!({"workflows": [main, squeeze], "triggers": [trigger], "profiles": profiles(100)});
    for order in 0..20 {
        let (sender, seen) = std::sync::mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let engine = Engine::builder()
            .virtual_time(Some(order))
            .function("look", move |input| {
                let sender = sender.lock().map_err(|error| error.to_string())?;
                sender.send(input.clone()).map_err(|error| error.to_string())?;
                Ok(Value::Null)
            });
        let ran = run_unrecorded(engine, &bundle, json!({"topic": "birds"}), long_conversation());
        assert_eq!(ran.code(), "", "G31 in order {order}: {:?}", ran.report.error);
        // The order decides when the compression reads the conversation; the result for the messages it read is fixed.
        let seen: Vec<Value> = seen.iter().collect();
        assert_eq!(seen.len(), 1, "G31 in order {order}");
        let seen: Vec<Message> = serde_json::from_value(seen[0].clone()).unwrap_or_default();
        assert_eq!(
            seen,
            plain[..seen.len()],
            "G31 in order {order}: it sees what was said so far"
        );
        let meanwhile = &plain[seen.len()..];
        assert!(!meanwhile.is_empty(), "G31 in order {order}");
        let kept = current_turn(&seen).iter().chain(meanwhile);
        let mut expected = vec!["You are kind.", "SUMMARY"];
        expected.extend(kept.map(|message| message.content.as_str()));
        assert_eq!(ran.visible(), expected, "G31 in order {order}");
        assert_eq!(ran.report.elapsed_ms, 1000, "the thread did not wait");
    }
}

#[test]
fn a_failed_or_stuck_compression_does_not_change_the_conversation() {
    let fails = json!([
        {"id": "main", "provider": "echo"},
        {"id": "compression-profile", "provider": "scripted", "responses": [{"error": "no"}]},
    ]);
    for (case, profiles, timeout, elapsed) in [
        ("H13 fails", fails, 30.0, 0),
        ("H13 hangs", profiles(100_000), 2.0, 6000),
        (
            "hangs, and a limit is a millisecond at least",
            profiles(100_000),
            0.000_4,
            3,
        ),
    ] {
        let mut trigger = seed(SEED_002_TRIGGER);
        trigger["action"]["parameters"]["timeout"] = json!(timeout);
        let with = json!({
            "workflows": [main_workflow(Some(200)), seed(SEED_002)], "triggers": [trigger], "profiles": profiles,
        });
        let without = json!({"workflows": [main_workflow(None)], "profiles": profiles});
        let (ran, plain) = (virtually(&with), virtually(&without));
        assert_eq!(ran.code(), "", "{case}: {:?}", ran.report.error);
        assert_eq!(ran.visible(), plain.visible(), "{case}");
        assert_eq!(
            ran.report.conversation.mark_map, plain.report.conversation.mark_map,
            "{case}"
        );
        // The context stays above the limit, so that each of the three turns attempts it again.
        assert_eq!(ran.of(EventType::TriggeredSubgraphFailed).len(), 3, "{case}");
        assert_eq!(ran.of(EventType::CompressionFailed).len(), 3, "{case}");
        assert_eq!(ran.report.elapsed_ms, elapsed, "{case}");
    }
}

/// START > (CODE a) > (CODE b) > END with a trigger.
fn watched(trigger: &Value) -> Value {
    let mut main = line("main", &[code("a", "return 1"), wait("w", 100), code("b", "return 2")]);
    main["variables"] = json!([{"name": "count", "type": "number", "value": 0}]);
    main["triggers"] = json!([trigger]);
    main
}

fn counting(extra: &Value) -> Value {
    let mut trigger = json!({"id": "t", "type": "EVENT",
        "condition": {"eventType": "NODE_COMPLETED"},
        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "{{event.nodeId}}"}}});
    for (key, value) in extra.as_object().into_iter().flatten() {
        trigger[key] = value.clone();
    }
    trigger
}

fn notified(ran: &Ran) -> Vec<String> {
    ran.of(EventType::Notification)
        .iter()
        .map(|event| event.raised.fields["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_trigger_fires_up_to_its_limit_while_it_is_enabled() {
    let all = vec!["start", "a", "w", "b", "end"];
    let cases = [
        ("F01", json!({}), all.clone()),
        ("F03", json!({"status": "DISABLED"}), vec![]),
        ("F03", json!({"enabled": false}), vec![]),
        ("F06", json!({"maxTriggers": 1}), vec!["start"]),
        ("F07", json!({"maxTriggers": 3}), vec!["start", "a", "w"]),
        ("F08", json!({"maxTriggers": 0}), all),
        (
            "expression",
            json!({"condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'b'"}}),
            vec!["b"],
        ),
        (
            "F17",
            json!({"condition": {"eventType": "THREAD_COMPLETED", "expression": "false"}}),
            vec![],
        ),
    ];
    for (case, extra, expected) in cases {
        let ran = run(&watched(&counting(&extra)), Value::Null);
        assert_eq!(notified(&ran), expected, "{case}");
    }
}

#[test]
fn a_failed_condition_affects_no_other_trigger() {
    let broken =
        counting(&json!({"id": "x", "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nope.nope()"}}));
    let mut bundle = watched(&counting(&json!({})));
    bundle["triggers"] = json!([broken, counting(&json!({}))]);
    let ran = run(&bundle, Value::Null);
    assert_eq!(ran.code(), "");
    assert_eq!(notified(&ran).len(), 5, "F11");
    assert_eq!(ran.of(EventType::TriggerFailed).len(), 5, "F11");
}

#[test]
fn actions_reach_the_thread_that_raised_the_event() {
    let on_a = |action: Value| {
        counting(
            &json!({"condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"}, "action": action}),
        )
    };
    let stopped = run(
        &watched(&on_a(json!({"type": "STOP_THREAD", "parameters": {}}))),
        Value::Null,
    );
    assert_eq!(stopped.report.status, ThreadStatus::Cancelled);
    let set = json!({"type": "SET_VARIABLE", "parameters": {"variableName": "count", "value": 5}});
    let set = run(&watched(&on_a(set)), Value::Null);
    assert_eq!(set.report.variables["count"], json!(5));
    let wrong = json!({"type": "SET_VARIABLE", "parameters": {"variableName": "count", "value": "five"}});
    let wrong = run(&watched(&on_a(wrong)), Value::Null);
    assert_eq!((wrong.code(), &wrong.report.variables["count"]), ("", &json!(0)));
    assert_eq!(wrong.of(EventType::TriggerFailed).len(), 1);
    let custom = json!({"type": "CUSTOM", "parameters": {"function": "noted", "parameters": {"x": 1}}});
    let (sender, heard) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let engine = Engine::builder().virtual_time(Some(1)).function("noted", move |input| {
        let sender = sender.lock().map_err(|error| error.to_string())?;
        sender.send(input.clone()).map_err(|error| error.to_string())?;
        Ok(Value::Null)
    });
    run_in(engine, &watched(&on_a(custom)), Value::Null, Vec::new());
    let noted: Vec<Value> = heard.iter().collect();
    assert_eq!(noted.len(), 1);
    assert_eq!(
        (&noted[0]["parameters"]["x"], &noted[0]["event"]["nodeId"]),
        (&json!(1), &json!("a"))
    );
    let panics = json!({"type": "CUSTOM", "parameters": {"function": "panics"}});
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .function("panics", |_| panic!("on purpose"));
    let ran = run_in(engine, &watched(&on_a(panics)), Value::Null, Vec::new());
    assert_eq!((ran.code(), ran.of(EventType::TriggerFailed).len()), ("", 1));
}

#[test]
fn a_paused_thread_continues_when_a_trigger_resumes_it() {
    let mut bundle = watched(&Value::Null);
    bundle["triggers"] = json!([
        counting(
            &json!({"id": "p", "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
            "action": {"type": "PAUSE_THREAD", "parameters": {}}})
        ),
        counting(&json!({"id": "r", "condition": {"eventType": "THREAD_PAUSED"},
            "action": {"type": "RESUME_THREAD", "parameters": {}}})),
    ]);
    let ran = run(&bundle, Value::Null);
    assert_eq!(ran.code(), "");
    assert_eq!(ran.of(EventType::ThreadPaused).len(), 1);
    assert_eq!(ran.of(EventType::ThreadResumed).len(), 1);
}

#[test]
fn a_trigger_that_fires_itself_ends_in_an_error_event() {
    let trigger = counting(&json!({"condition": {"eventType": "VARIABLE_CHANGED"},
        "action": {"type": "SET_VARIABLE", "parameters": {"variableName": "count", "expression": "event.value + 1"}}}));
    let mut bundle = line(
        "main",
        &[
            node("v", "VARIABLE", json!({"variableName": "count", "expression": "1"})),
            wait("w", 100),
            wait("w2", 100),
            wait("w3", 100),
            wait("w4", 100),
            wait("w5", 100),
            wait("w6", 100),
            wait("w7", 100),
            wait("w8", 100),
            wait("w9", 100),
            wait("w10", 100),
        ],
    );
    bundle["triggers"] = json!([trigger]);
    let ran = run(&bundle, Value::Null);
    assert_eq!(ran.code(), "");
    assert_eq!(ran.of(EventType::TriggerFailed).len(), 1);
    assert_eq!(ran.report.variables["count"], json!(9), "8 links of the chain");
}

#[test]
fn a_triggered_sub_workflow_that_raises_its_trigger_event_ends_too() {
    let sub = workflow(
        "sub",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            code("x", "return 1"),
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["s>x>c"],
    );
    let main = line("main", &[code("a", "return 1")]);
    let trigger = counting(
        &json!({"condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'x' || event.nodeId === 'a'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}}),
    );
    let ran = run(&json!({"workflows": [main, sub], "triggers": [trigger]}), Value::Null);
    assert_eq!(ran.code(), "");
    assert_eq!(ran.of(EventType::TriggerFailed).len(), 1, "{:?}", types(&ran));
    assert_eq!(ran.of(EventType::TriggeredSubgraphCompleted).len(), 8);
}

#[test]
fn returned_variables_are_assigned_all_or_none() {
    let sub = |callback: Value| {
        workflow(
            "sub",
            &[
                node("s", "START_FROM_TRIGGER", json!({})),
                node("x", "VARIABLE", json!({"variableName": "count", "expression": "42"})),
                node("y", "VARIABLE", json!({"variableName": "fixed", "expression": "42"})),
                node("c", "CONTINUE_FROM_TRIGGER", callback),
            ],
            &["s>x>y>c"],
        )
    };
    let mut main = line("main", &[code("a", "return 1"), code("b", "return count")]);
    main["variables"] = json!([
        {"name": "count", "type": "number", "value": 0},
        {"name": "fixed", "type": "number", "value": 1, "readonly": true}]);
    main["triggers"] = json!([counting(&json!({
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}}))]);
    for (callback, count) in [
        (json!({}), 0),
        (json!({"variableCallback": {"includeVariables": ["count"]}}), 42),
        (json!({"variableCallback": {"includeVariables": ["count", "fixed"]}}), 0),
    ] {
        let ran = run(&json!({"workflows": [main, sub(callback.clone())]}), Value::Null);
        assert_eq!(ran.code(), "", "{callback}");
        assert_eq!(ran.report.output, json!(count), "{callback}");
        assert_eq!(ran.report.variables["fixed"], json!(1), "{callback}");
    }
}

#[test]
fn one_compression_runs_at_a_time() {
    let mut trigger = seed(SEED_002_TRIGGER);
    trigger["action"]["parameters"]["waitForCompletion"] = json!(false);
    let mut main = line("main", &[ask("A"), ask("B"), ask("C"), wait("pause", 1000)]);
    main["config"] = json!({"tokenLimit": 200});
    main["triggers"] = json!([{"id": "again", "type": "EVENT",
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeType === 'LLM'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH",
            "parameters": {"triggeredWorkflowId": "slow", "waitForCompletion": false}}}]);
    let slow = workflow(
        "slow",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            wait("x", 500),
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["s>x>c"],
    );
    let bundle = json!({"workflows": [main, seed(SEED_002), slow], "triggers": [trigger], "profiles": profiles(100)});
    let ran = virtually(&bundle);
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    let fired = |id: &str| {
        ran.report
            .firings
            .iter()
            .filter(|firing| firing.trigger_id == id)
            .count()
    };
    assert_eq!(
        fired("again"),
        1,
        "H14: the same trigger already queued or running coalesces"
    );
    assert_eq!(fired("compression-trigger"), 1, "H14");
    assert_eq!(ran.visible()[..2], ["You are kind.", "SUMMARY"]);
}
