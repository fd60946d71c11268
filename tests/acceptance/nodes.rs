//! SPEC section 2 in a real engine: the path of a thread, its assignments, and the failures of its nodes.

use pirn::{Engine, EventType, Message, Role, ThreadStatus};
use pirn_tests::world::{Ran, code, line, node, run, run_in, run_unrecorded, say, wait, workflow};
use serde_json::{Value, json};

/// Runs START > ROUTE > one of the targets > END.
fn routed(variables: &Value, config: Value, targets: &[&str]) -> Ran {
    let mut nodes = vec![
        node("start", "START", json!({})),
        node("route", "ROUTE", config),
        node("end", "END", json!({})),
    ];
    let mut ways = vec!["start>route".to_owned()];
    for target in targets {
        nodes.push(code(target, "return 1"));
        ways.push(format!("route>{target}>end"));
    }
    let ways: Vec<&str> = ways.iter().map(String::as_str).collect();
    let mut bundle = workflow("routes", &nodes, &ways);
    bundle["variables"] = variables
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    run(&bundle, Value::Null)
}

#[test]
fn a_route_takes_the_first_condition_that_holds_by_priority() {
    let route = |condition: &str, target: &str, priority: u32| json!({"condition": condition, "targetNodeId": target, "priority": priority});
    let success = "variables.status === \"success\"";
    let cases = [
        (
            "J01",
            json!({"status": "success"}),
            json!({"routes": [route(success, "s", 10), route("variables.status === \"failure\"", "f", 5)], "defaultTargetNodeId": "d"}),
            vec!["s", "f", "d"],
            "s",
        ),
        (
            "J02",
            json!({"status": "success"}),
            json!({"routes": [route(success, "low", 1), route(success, "high", 10)]}),
            vec!["low", "high"],
            "high",
        ),
        (
            "J03",
            json!({"status": "unknown"}),
            json!({"routes": [route(success, "a", 10)], "defaultTargetNodeId": "d"}),
            vec!["a", "d"],
            "d",
        ),
        (
            "J04",
            json!({"status": "unknown"}),
            json!({"routes": [route(success, "a", 10)]}),
            vec!["a"],
            "NO_ROUTE_MATCHED",
        ),
        (
            "J05",
            json!({"score": 85, "passed": true}),
            json!({"routes": [route("variables.score >= 80 && variables.passed === true", "e", 10)], "defaultTargetNodeId": "d"}),
            vec!["e", "d"],
            "e",
        ),
        (
            "J06",
            json!({"status": "success"}),
            json!({"routes": [route("variables.nonExistentVariable > 100", "bad", 10), route(success, "good", 5)]}),
            vec!["bad", "good"],
            "good",
        ),
        (
            "J07",
            json!({}),
            json!({"routes": [], "defaultTargetNodeId": "d"}),
            vec!["d"],
            "d",
        ),
        (
            "list order",
            json!({}),
            json!({"routes": [route("true", "a", 1), route("true", "b", 1)]}),
            vec!["a", "b"],
            "a",
        ),
    ];
    for (case, variables, config, targets, expected) in cases {
        let ran = routed(&variables, config, &targets);
        let went = if ran.code().is_empty() {
            ran.nodes()[2]
        } else {
            ran.code()
        };
        assert_eq!(went, expected, "{case}: {:?}", ran.report.error);
    }
}

#[test]
fn the_heaviest_satisfied_edge_wins_then_the_first() {
    let cases = [
        ("J08", json!([["true", 10, "a"], ["true", 5, "b"]]), "a"),
        ("J08", json!([["true", 5, "a"], ["true", 10, "b"]]), "b"),
        ("J11: list order", json!([["true", 1, "b"], ["true", 1, "a"]]), "b"),
        ("J13", json!([["x > 3", 10, "a"], [null, 0, "b"]]), "a"),
        ("J13", json!([["x > 9", 10, "a"], [null, 0, "b"]]), "b"),
        (
            "none",
            json!([["x > 9", 10, "a"], ["x > 8", 0, "b"]]),
            "NO_EDGE_SATISFIED",
        ),
    ];
    for (case, edges, expected) in cases {
        let mut bundle = workflow(
            "edges",
            &[
                node("start", "START", json!({})),
                code("n", "return 1"),
                code("a", "return 1"),
                code("b", "return 1"),
                node("end", "END", json!({})),
            ],
            &["start>n", "a>end", "b>end"],
        );
        bundle["variables"] = json!([{"name": "x", "value": 5}]);
        for edge in edges.as_array().into_iter().flatten() {
            let mut added = json!({"from": "n", "to": edge[2], "weight": edge[1]});
            if !edge[0].is_null() {
                added["condition"] = edge[0].clone();
            }
            if let Some(list) = bundle["edges"].as_array_mut() {
                list.push(added);
            }
        }
        let ran = run(&bundle, Value::Null);
        let went = if ran.code().is_empty() {
            ran.nodes()[2]
        } else {
            ran.code()
        };
        assert_eq!(went, expected, "{case}");
    }
}

#[test]
fn a_variable_node_evaluates_checks_and_assigns() {
    let cases = [
        ("L01", json!([]), "10 + 20", Some("number"), Ok(json!(30))),
        (
            "L02",
            json!([{"name": "v", "value": 5}]),
            "v + 1",
            Some("number"),
            Ok(json!(6)),
        ),
        (
            "L03",
            json!([{"name": "a", "value": 10}, {"name": "b", "value": 2}]),
            "{{a}} * {{b}}",
            Some("number"),
            Ok(json!(20)),
        ),
        (
            "L04",
            json!([{"name": "value", "value": 10}]),
            "{{value}}",
            Some("number"),
            Ok(json!(10)),
        ),
        (
            "L05",
            json!([{"name": "user", "value": {"name": "John"}}]),
            "{{user.name}}",
            Some("string"),
            Ok(json!("John")),
        ),
        ("L06", json!([]), "{{nonExistentVar}} + 1", Some("number"), Err(())),
        (
            "L15",
            json!([{"name": "a", "value": 10}, {"name": "b", "value": 20}]),
            "({{a}} + {{b}}) * 2 - 5",
            Some("number"),
            Ok(json!(55)),
        ),
        (
            "L18",
            json!([{"name": "v", "value": 1, "readonly": true}]),
            "200",
            None,
            Err(()),
        ),
        (
            "L19",
            json!([{"name": "v", "type": "number", "value": 1}]),
            "'not-a-number'",
            None,
            Err(()),
        ),
        ("throws", json!([]), "input.nope()", None, Err(())),
    ];
    for (case, variables, expression, kind, expected) in cases {
        let mut config = json!({"variableName": "v", "expression": expression});
        if let Some(kind) = kind {
            config["variableType"] = json!(kind);
        }
        let mut bundle = line("variables", &[node("set", "VARIABLE", config)]);
        bundle["variables"] = variables;
        let ran = run(&bundle, Value::Null);
        match expected {
            Ok(value) => assert_eq!(
                ran.report.variables.get("v"),
                Some(&value),
                "{case}: {:?}",
                ran.report.error
            ),
            Err(()) => assert_eq!(ran.report.status, ThreadStatus::Failed, "{case}"),
        }
    }
}

#[test]
fn an_assignment_to_a_readonly_variable_fails_with_its_error_code() {
    let mut bundle = line(
        "variables",
        &[node("set", "VARIABLE", json!({"variableName": "v", "expression": "2"}))],
    );
    bundle["variables"] = json!([{"name": "v", "value": 1, "readonly": true}]);
    assert_eq!(run(&bundle, Value::Null).code(), "READONLY_VARIABLE", "L14 L18");
}

#[test]
fn a_missing_path_is_an_error_with_the_path() {
    let ran = run(
        &line(
            "t",
            &[node("ask", "LLM", json!({"prompt": "about {{input.nothing.here}}"}))],
        ),
        json!({}),
    );
    assert_eq!(ran.code(), "TEMPLATE_ERROR");
    let error = ran.report.error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("input.nothing"), "{error}");
}

#[test]
fn a_called_workflow_shares_forks_or_ignores_the_conversation() {
    for (mode, visible) in [
        ("share", vec!["hello", "inside"]),
        ("fork", vec!["hello"]),
        ("none", vec!["hello"]),
    ] {
        let main = line(
            "main",
            &[node(
                "call",
                "SUBGRAPH",
                json!({"subgraphId": "sub", "conversation": mode, "input": {"n": 4}}),
            )],
        );
        let sub = line("sub", &[say("say", "inside"), code("c", "return input.n * 2")]);
        let ran = run_in(
            Engine::builder().virtual_time(Some(1)),
            &json!({"workflows": [main, sub]}),
            Value::Null,
            vec![Message::new(Role::User, "hello")],
        );
        assert_eq!(ran.visible(), visible, "{mode}");
        assert_eq!(ran.report.output, json!(8), "{mode}");
        assert_eq!(
            (
                ran.of(EventType::SubgraphStarted).len(),
                ran.of(EventType::SubgraphCompleted).len()
            ),
            (1, 1)
        );
    }
}

#[test]
fn a_sub_agent_without_a_role_fails_before_its_first_node() {
    let main = line(
        "main",
        &[node(
            "call",
            "SUBGRAPH",
            json!({"subgraphId": "sub", "agent": {"id": "helper"}}),
        )],
    );
    let sub = line("sub", &[code("c", "return 1")]);
    let ran = run(&json!({"workflows": [main, sub]}), Value::Null);
    assert_eq!(ran.code(), "SUB_AGENT_ROLE_MISSING", "{:?}", ran.report.error);
    let worked = ran
        .of(EventType::NodeStarted)
        .iter()
        .any(|event| event.raised.fields["nodeId"] == "c");
    assert!(!worked);
}

#[test]
fn a_failure_in_a_called_workflow_fails_its_caller() {
    let main = line("main", &[node("call", "SUBGRAPH", json!({"subgraphId": "sub"}))]);
    let sub = line("sub", &[code("c", "throw new Error('inside')")]);
    let ran = run(&json!({"workflows": [main, sub]}), Value::Null);
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert!(format!("{:?}", ran.report.error).contains("inside"));
}

#[test]
fn a_wait_ends_with_an_event_of_its_run_or_times_out() {
    let wait_for = |event: &str| node("w", "WAIT", json!({"event": event, "timeout": 2}));
    let late = run(&line("main", &[wait_for("never")]), Value::Null);
    assert_eq!(late.code(), "NODE_TIMEOUT");
    assert_eq!(late.report.elapsed_ms, 2000);
    let bundle = pirn_tests::world::forked(
        &[
            vec![wait_for("VARIABLE_CHANGED")],
            vec![
                wait("d", 50),
                node("v", "VARIABLE", json!({"variableName": "x", "expression": "1"})),
            ],
        ],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    let heard = run(&bundle, Value::Null);
    assert_eq!(
        (heard.code(), heard.report.elapsed_ms),
        ("", 50),
        "{:?}",
        heard.report.error
    );
}

#[test]
fn a_node_is_retried_timed_out_and_handled_as_configured() {
    let with = |mut node: Value, extra: Value| {
        for (key, value) in extra.as_object().into_iter().flatten() {
            node[key] = value.clone();
        }
        node
    };
    let retry = json!({"retry": {"maxAttempts": 3, "initialDelayMs": 100, "backoff": 2, "maxDelayMs": 1000}});
    let ran = run(&line("main", &[with(code("c", "throw 1"), retry)]), Value::Null);
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(ran.report.nodes[1].attempts, 3);
    assert_eq!(ran.of(EventType::NodeFailed).len(), 3);
    let limited = run(
        &line("main", &[with(wait("w", 5000), json!({"timeoutMs": 20}))]),
        Value::Null,
    );
    assert_eq!((limited.code(), limited.report.elapsed_ms), ("NODE_TIMEOUT", 20));
    // Of the limit of a node and the `timeout` of a WAIT the shorter one counts.
    for (of_node, of_wait_s, expected) in [(60_000, 1, 1_000), (500, 1, 500)] {
        let waits = with(
            node("w", "WAIT", json!({"event": "go", "timeout": of_wait_s})),
            json!({"timeoutMs": of_node}),
        );
        let limited = run(&line("main", &[waits]), Value::Null);
        assert_eq!((limited.code(), limited.report.elapsed_ms), ("NODE_TIMEOUT", expected));
    }
    let mut bundle = line(
        "main",
        &[with(
            code("c", "throw new Error('x')"),
            json!({"onError": {"targetNodeId": "mend"}}),
        )],
    );
    if let Some(nodes) = bundle["nodes"].as_array_mut() {
        nodes.push(code("mend", "return 'mended'"));
    }
    if let Some(edges) = bundle["edges"].as_array_mut() {
        edges.push(json!({"from": "mend", "to": "end"}));
    }
    let ran = run(&bundle, Value::Null);
    assert_eq!((ran.code(), &ran.report.output), ("", &json!("mended")));
}

#[test]
fn a_node_retried_without_a_delay_is_ended_by_the_time_limit() {
    let mut bundle = line(
        "main",
        &[node(
            "v",
            "VARIABLE",
            json!({"variableName": "x", "expression": "input.no.such"}),
        )],
    );
    let retry = json!({"maxAttempts": u32::MAX, "initialDelayMs": 0, "maxDelayMs": 0});
    for node in bundle["nodes"].as_array_mut().into_iter().flatten() {
        if node["id"] == "v" {
            node["retry"] = retry.clone();
        }
    }
    bundle["config"] = json!({"timeoutMs": 200});
    let ran = run(&bundle, Value::Null);
    assert_eq!((ran.report.status, ran.report.elapsed_ms), (ThreadStatus::Timeout, 200));
}

/// Returns START > VARIABLE n=n+1 > back while n < limit, else END.
fn looping(until: u32) -> Value {
    let mut bundle = workflow(
        "loop",
        &[
            node("start", "START", json!({})),
            node("add", "VARIABLE", json!({"variableName": "n", "expression": "n + 1"})),
            node("end", "END", json!({"output": "n"})),
        ],
        &["start>add"],
    );
    bundle["variables"] = json!([{"name": "n", "type": "number", "value": 0}]);
    if let Some(edges) = bundle["edges"].as_array_mut() {
        edges.push(json!({"from": "add", "to": "add", "condition": format!("n < {until}"), "weight": 1}));
        edges.push(json!({"from": "add", "to": "end"}));
    }
    bundle
}

#[test]
fn a_loop_ends_by_its_condition_or_by_max_steps() {
    assert_eq!(run(&looping(6), Value::Null).report.output, json!(6), "M10");
    let runaway = run(&looping(100_000), Value::Null);
    assert_eq!(runaway.code(), "MAX_STEPS_EXCEEDED");
    let mut long = looping(20_000);
    long["config"] = json!({"maxSteps": 100_000});
    assert_eq!(
        run(&long, Value::Null).report.output,
        json!(20_000),
        "no stack is used up by a long way"
    );
}

#[test]
fn a_script_and_a_function_receive_equal_input() {
    let global = json!({"variableName": "output", "expression": "'a variable'", "scope": "global"});
    let own = json!({"variableName": "result", "expression": "'a variable'"});
    let befores = [
        (
            node("before", "VARIABLE", global),
            [("output", "a variable"), ("result", "given")],
        ),
        (
            node("before", "VARIABLE", own),
            [("output", "given"), ("result", "a variable")],
        ),
        (say("before", "a word"), [("output", "given"), ("result", "given")]),
    ];
    for (before, computed) in befores {
        let given = [
            (None, "the thread's"),
            (Some("input"), "the thread's"),
            (Some("'made'"), "made"),
        ];
        let computed = computed.map(|(text, value)| (Some(text), value));
        for (input, expected) in given.into_iter().chain(computed) {
            for does in [json!({"code": "return input"}), json!({"function": "same"})] {
                let mut config = does.clone();
                if let Some(input) = input {
                    config["input"] = json!(input);
                }
                let file = line(
                    "main",
                    &[
                        before.clone(),
                        code("gives", "return 'given'"),
                        node("work", "CODE", config),
                    ],
                );
                let engine = Engine::builder().virtual_time(Some(1));
                let engine = engine.function("same", |input| Ok(input.clone()));
                let ran = run_in(engine, &file, json!("the thread's"), Vec::new());
                assert_eq!(ran.report.output, json!(expected), "{before} {does} {input:?}");
            }
        }
    }
}

#[test]
fn a_workflow_can_be_started_by_the_end_of_another() {
    let mut main = line("main", &[code("a", "return 1")]);
    main["triggers"] = json!([{"id": "next", "type": "EVENT", "condition": {"eventType": "THREAD_COMPLETED"},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "after"}}}]);
    let after = line("after", &[node("told", "CODE", json!({"function": "told"}))]);
    let (sender, heard) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let engine = Engine::builder().virtual_time(Some(1)).function("told", move |_| {
        let sender = sender.lock().map_err(|error| error.to_string())?;
        sender.send(()).map_err(|error| error.to_string())?;
        Ok(Value::Null)
    });
    run_unrecorded(engine, &json!({"workflows": [main, after]}), Value::Null, Vec::new());
    assert_eq!(heard.iter().count(), 1);
}
