//! Triggered sub-workflows and their main thread: cases G03 to G12.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use pirn::{Engine, EngineBuilder, EventType, FiringOutcome, Message, Role, ThreadStatus};
use pirn_tests::world::{Ran, code, line, node, run, run_in, run_unrecorded, say, wait, workflow};
use serde_json::{Value, json};

/// Returns a trigger that starts `sub` on each event of this type; for events of nodes, only of node `a`.
fn starts(event_type: &str, parameters: &Value) -> Value {
    let mut trigger = json!({"id": "t", "type": "EVENT", "condition": {"eventType": event_type},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}});
    if event_type.starts_with("NODE") {
        trigger["condition"]["expression"] = json!("event.nodeId === 'a'");
    }
    for (key, value) in parameters.as_object().into_iter().flatten() {
        trigger["action"]["parameters"][key] = value.clone();
    }
    trigger
}

/// Returns START_FROM_TRIGGER > the nodes > CONTINUE_FROM_TRIGGER.
fn sub(nodes: &[Value], back: Value) -> Value {
    let mut all = vec![node("first", "START_FROM_TRIGGER", json!({}))];
    all.extend(nodes.iter().cloned());
    all.push(node("last", "CONTINUE_FROM_TRIGGER", back));
    let way: Vec<&str> = all.iter().filter_map(|node| node["id"].as_str()).collect();
    workflow("sub", &all, &[&way.join(">")])
}

/// Returns START > a > b > a long wait > END, together with `sub` and the trigger.
fn bundle(trigger: &Value, sub: &Value) -> Value {
    let nodes = [
        code("a", "return 'of a'"),
        code("b", "return 'of b'"),
        wait("end-rest", 1000),
    ];
    let mut main = line("main", &nodes);
    main["triggers"] = json!([trigger]);
    json!({"workflows": [main, sub]})
}

fn started_at(ran: &Ran, id: &str) -> Option<u64> {
    let started = ran.of(EventType::NodeStarted);
    let start = started.iter().find(|event| event.raised.fields["nodeId"] == id)?;
    Some(start.timestamp - ran.at_ms(EventType::ThreadStarted)?)
}

#[test]
fn g03_the_thread_waits_for_the_triggered_workflow_by_default() {
    let slow = sub(&[wait("rest", 100)], json!({}));
    for (parameters, at) in [
        (json!({}), 100),
        (json!({"waitForCompletion": true}), 100),
        (json!({"waitForCompletion": false}), 0),
    ] {
        let ran = run(&bundle(&starts("NODE_COMPLETED", &parameters), &slow), Value::Null);
        assert_eq!((ran.code(), started_at(&ran, "b")), ("", Some(at)), "G03 {parameters}");
        assert_eq!(started_at(&ran, "rest"), Some(0), "G03 {parameters}");
    }
}

/// Returns an engine whose function `look` sends its inputs to the receiver.
pub(crate) fn looking() -> (EngineBuilder, std::sync::mpsc::Receiver<Value>) {
    let (sender, seen) = channel();
    let sender = Mutex::new(sender);
    let builder = Engine::builder().virtual_time(Some(1)).function("look", move |input| {
        let sender = sender.lock().map_err(|error| error.to_string())?;
        sender.send(input.clone()).map_err(|error| error.to_string())?;
        Ok(Value::Null)
    });
    (builder, seen)
}

pub(crate) fn look() -> Value {
    node("look", "CODE", json!({"function": "look", "input": "input"}))
}

#[test]
fn g06_a_triggered_workflow_receives_the_event_and_the_main_threads_input_output_and_variables() {
    let (builder, seen) = looking();
    let trigger = starts(
        "NODE_COMPLETED",
        &json!({"mergeOptions": {"includeVariables": ["userId", "nothing"]}}),
    );
    let mut file = bundle(&trigger, &sub(&[look()], json!({})));
    file["workflows"][0]["variables"] = json!([{"name": "userId", "value": "u"}, {"name": "other", "value": 1}]);
    let ran = run_unrecorded(builder, &file, json!({"existingKey": "v"}), Vec::new());
    assert_eq!(ran.code(), "", "G06: {:?}", ran.report.error);
    let seen: Vec<Value> = seen.iter().collect();
    assert_eq!(seen.len(), 1, "G06");
    let keys: Vec<&String> = seen[0].as_object().into_iter().flatten().map(|(key, _)| key).collect();
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(sorted, ["event", "input", "output", "triggerId", "variables"], "G06");
    assert_eq!(seen[0]["triggerId"], "t", "G06");
    assert_eq!(seen[0]["input"], json!({"existingKey": "v"}), "G06");
    assert_eq!(seen[0]["output"], "of a", "G06");
    assert_eq!(seen[0]["variables"], json!({"userId": "u"}), "G06");
    let event = &seen[0]["event"];
    assert_eq!(
        (&event["type"], &event["nodeId"]),
        (&json!("NODE_COMPLETED"), &json!("a")),
        "G06"
    );
    assert_eq!(ran.report.firings[0].status, Some(ThreadStatus::Completed), "G06");
}

#[test]
fn g07_a_triggered_workflow_receives_the_selected_history_as_its_conversation() {
    let hello = || {
        vec![
            Message::new(Role::User, "Hello"),
            Message::new(Role::Assistant, "Hi there!"),
        ]
    };
    let back = json!({"conversationHistoryCallback": {"range": {"start": 0, "end": 9}, "mode": "replace"}});
    let sub = sub(&[look(), say("more", "More")], back);
    for (case, options, handed) in [
        (
            "G07: all",
            json!({"includeConversationHistory": true}),
            vec!["Hello", "Hi there!"],
        ),
        (
            "G07: some",
            json!({"includeConversationHistory": {"lastN": 1}}),
            vec!["Hi there!"],
        ),
        ("G07: none", json!({"includeConversationHistory": false}), vec![]),
        ("G07: none is the default", json!({}), vec![]),
    ] {
        let (builder, seen) = looking();
        let trigger = starts("NODE_COMPLETED", &json!({"mergeOptions": options}));
        let ran = run_in(builder, &bundle(&trigger, &sub), Value::Null, hello());
        assert_eq!(ran.code(), "", "{case}: {:?}", ran.report.error);
        let input = seen.iter().next().unwrap_or_default();
        let history = input.get("conversationHistory").and_then(Value::as_array);
        let told: Option<Vec<&str>> = history.map(|history| {
            history
                .iter()
                .filter_map(|message| message["content"].as_str())
                .collect()
        });
        assert_eq!(told, (!handed.is_empty()).then(|| handed.clone()), "{case}");
        // The sub-workflow returns its whole conversation, which replaces the main thread's.
        assert_eq!(ran.visible(), [handed, vec!["More"]].concat(), "{case}");
    }
}

#[test]
fn g08_a_triggered_workflow_does_not_change_a_thread_that_has_ended() {
    let marks = sub(
        &[
            code("never", "return 1"),
            node("v", "VARIABLE", json!({"variableName": "v", "expression": "2"})),
        ],
        json!({"variableCallback": {"includeAll": true}}),
    );
    let ends = |last: Value, config: Value, event_type: &str| {
        let mut main = line("main", &[code("a", "return 1"), last]);
        main["config"] = config;
        main["variables"] = json!([{"name": "v", "value": 1}]);
        main["triggers"] = json!([starts(event_type, &json!({}))]);
        json!({"workflows": [main, marks]})
    };
    let mut stopped = ends(wait("w", 50), json!({}), "THREAD_CANCELLED");
    if let Some(triggers) = stopped["workflows"][0]["triggers"].as_array_mut() {
        triggers.push(json!({"id": "stop", "type": "EVENT",
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
            "action": {"type": "STOP_THREAD", "parameters": {}}}));
    }
    for (file, status) in [
        (
            ends(wait("w", 50), json!({}), "THREAD_COMPLETED"),
            ThreadStatus::Completed,
        ),
        (
            ends(code("x", "throw 1"), json!({}), "THREAD_FAILED"),
            ThreadStatus::Failed,
        ),
        (stopped, ThreadStatus::Cancelled),
        (
            ends(wait("w", 50), json!({"timeoutMs": 20}), "THREAD_FAILED"),
            ThreadStatus::Timeout,
        ),
    ] {
        let ran = run(&file, Value::Null);
        assert_eq!(ran.report.status, status, "G08 {status:?}: {:?}", ran.report.error);
        assert_eq!(ran.report.variables["v"], json!(1), "G08 {status:?}");
        assert_eq!(started_at(&ran, "never"), None, "G08 {status:?}: it is not started");
        assert_eq!(ran.of(EventType::TriggeredSubgraphStarted).len(), 0, "G08 {status:?}");
    }
}

#[test]
fn g08_a_paused_thread_stays_paused_while_a_triggered_workflow_runs_for_it() {
    let mut main = line("main", &[code("a", "return 1"), wait("w", 10), code("b", "return v")]);
    main["variables"] = json!([{"name": "v", "value": 1}]);
    let on_a = "event.nodeId === 'a'";
    main["triggers"] = json!([
        {"id": "pause", "type": "EVENT", "condition": {"eventType": "NODE_COMPLETED", "expression": on_a},
            "action": {"type": "PAUSE_THREAD", "parameters": {}}},
        starts("THREAD_PAUSED", &json!({})),
        {"id": "resume", "type": "EVENT", "condition": {"eventType": "TRIGGERED_SUBGRAPH_COMPLETED"},
            "action": {"type": "RESUME_THREAD", "parameters": {}}},
    ]);
    let sets = sub(
        &[
            wait("rest", 100),
            node("v", "VARIABLE", json!({"variableName": "v", "expression": "2"})),
        ],
        json!({"variableCallback": {"includeVariables": ["v"]}}),
    );
    let ran = run(&json!({"workflows": [main, sets]}), Value::Null);
    assert_eq!(
        (ran.code(), &ran.report.output),
        ("", &json!(2)),
        "G08: {:?}",
        ran.report.error
    );
    let order: Vec<EventType> = ran
        .events
        .iter()
        .filter(|event| *event.thread_id == *ran.report.thread_id)
        .map(|event| event.raised.event_type)
        .filter(|kind| {
            [
                EventType::ThreadPaused,
                EventType::TriggeredSubgraphCompleted,
                EventType::ThreadResumed,
            ]
            .contains(kind)
        })
        .collect();
    assert_eq!(
        order,
        [
            EventType::ThreadPaused,
            EventType::TriggeredSubgraphCompleted,
            EventType::ThreadResumed
        ],
        "G08"
    );
    assert_eq!(started_at(&ran, "b"), Some(110), "G08: paused in the meantime");
}

#[test]
fn g10_g12_the_last_node_of_a_triggered_workflow_selects_its_returned_variables_and_messages() {
    let set = |name: &str, expression: &str| {
        node(
            name,
            "VARIABLE",
            json!({"variableName": name, "expression": expression}),
        )
    };
    let nodes = [
        set("var1", "'value1'"),
        set("var2", "42"),
        set("var3", "true"),
        say("said", "inside"),
    ];
    let names = |names: Value| json!({"variableCallback": {"includeVariables": names}});
    let cases = [
        (
            "G10",
            names(json!(["var1", "var3"])),
            json!({"own": 0, "var1": "value1", "var3": true}),
            vec!["hello"],
        ),
        (
            "G10: all",
            json!({"variableCallback": {"includeAll": true}}),
            json!({"own": 0, "var1": "value1", "var2": 42, "var3": true}),
            vec!["hello"],
        ),
        ("G12", json!({}), json!({"own": 0}), vec!["hello"]),
        (
            "G12: a history is appended where it is asked for",
            json!({"conversationHistoryCallback": {"lastN": 1}}),
            json!({"own": 0}),
            vec!["hello", "inside"],
        ),
    ];
    for (case, back, variables, visible) in cases {
        let mut file = bundle(&starts("NODE_COMPLETED", &json!({})), &sub(&nodes, back));
        file["workflows"][0]["variables"] = json!([{"name": "own", "value": 0}]);
        let ran = run_in(
            Engine::builder().virtual_time(Some(1)),
            &file,
            Value::Null,
            vec![Message::new(Role::User, "hello")],
        );
        assert_eq!(ran.code(), "", "{case}: {:?}", ran.report.error);
        assert_eq!(json!(ran.report.variables), variables, "{case}");
        assert_eq!(ran.visible(), visible, "{case}");
        assert_eq!(ran.report.firings[0].outcome, FiringOutcome::Completed, "{case}");
        assert_eq!(
            ran.nodes(),
            ["start", "a", "b", "end-rest", "end"],
            "{case}: its nodes are a list of its own"
        );
    }
}
