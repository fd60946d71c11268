//! Mistakes that appear only when a workflow runs.

use serde_json::{Value, json};

use super::{assert_reported, flow, with, with_node, with_profile};
use crate::command::{pirn_in, pirn_with};
use crate::folder::Folder;

#[test]
fn every_mistake_in_a_run_is_reported_with_node_and_remedy() {
    let ask = |prompt: &str| with_node("LLM", &json!({"prompt": prompt}));
    for (name, file, code, parts) in [
        (
            "a path that the input does not have",
            ask("Hi {{input.naem}}"),
            1,
            &[
                "TEMPLATE_ERROR",
                "`input.naem` does not exist",
                "(node work)",
                "--> -:1:",
                "/nodes/1/config/prompt",
                "--input",
            ][..],
        ),
        (
            "a clock",
            with_node("CODE", &json!({"code": "return new Date()"})),
            1,
            &[
                "SCRIPT_ERROR",
                "there is no clock here",
                "(node work)",
                "pass the time as input",
            ],
        ),
        (
            "chance",
            with_node("CODE", &json!({"code": "return Math.random()"})),
            1,
            &["SCRIPT_ERROR", "needs a seed", "(node work)"],
        ),
        (
            "a name that is made up as it runs",
            with_node(
                "CODE",
                &json!({"code": "return typeof wrk == 'undefined' ? wrk + 1 : 0"}),
            ),
            1,
            &[
                "UNKNOWN_NAME",
                "unknown name `wrk`: did you mean `work`?",
                "(node work)",
            ],
        ),
        (
            "an exception in a script",
            with_node("CODE", &json!({"code": "const a = null;\n// why\nreturn a.b"})),
            1,
            &[
                "SCRIPT_ERROR: TypeError: cannot read property 'b' of null (node work)",
                "--> -:1:",
                "/nodes/1/config/code",
            ],
        ),
        (
            "an exception in an expression",
            with_node("VARIABLE", &json!({"variableName": "n", "expression": "1 + input.a.b"})),
            1,
            &["SCRIPT_ERROR: TypeError", "--> -:1:", "/nodes/1/config/expression"],
        ),
        (
            "no route",
            with_node(
                "ROUTE",
                &json!({"routes": [{"condition": "output != null", "targetNodeId": "end"}]}),
            ),
            1,
            &["NO_ROUTE_MATCHED", "(node work)", "defaultTargetNodeId"],
        ),
        (
            "no edge",
            with(flow(), "/edges/1/condition", json!("output != 1")),
            1,
            &["NO_EDGE_SATISFIED", "(node work)", "an edge without `condition`"],
        ),
        (
            "a loop without end",
            {
                let mut flow = with_node("VARIABLE", &json!({"variableName": "n", "expression": "1"}));
                flow["edges"][1]["condition"] = json!("n != 1");
                let edges = flow["edges"].as_array_mut().expect("a list");
                edges.push(json!({"from": "work", "to": "work"}));
                flow
            },
            1,
            &["MAX_STEPS_EXCEEDED", "(node work)", "config.maxSteps"],
        ),
        (
            "a script without a response that fits",
            with_profile(
                ask("hello"),
                json!({"id": "a", "provider": "scripted", "responses": [{"match": "bye", "content": "x"}]}),
            ),
            1,
            &["MODEL_ERROR", "profile `a` has no response left", "(node work)"],
        ),
        (
            "another type",
            with_node(
                "VARIABLE",
                &json!({"variableName": "n", "expression": "'abc'", "variableType": "number"}),
            ),
            1,
            &["NODE_FAILED", "variable n holds a number", "(node work)"],
        ),
        (
            "a read-only variable",
            with(
                with_node("VARIABLE", &json!({"variableName": "n", "expression": "2"})),
                "/variables",
                json!([{"name": "n", "value": 1, "readonly": true}]),
            ),
            1,
            &[
                "READONLY_VARIABLE",
                "variable n is read-only",
                "(node work)",
                "assign another variable",
            ],
        ),
        (
            "a function that only a program has",
            with_node("CODE", &json!({"function": "shout"})),
            1,
            &[
                "UNKNOWN_FUNCTION",
                "/nodes/1/config/function",
                "unknown function `shout`",
            ],
        ),
        (
            "a profile that is not there",
            with_profile(
                with_node("LLM", &json!({"prompt": "hi", "profileId": "asistant"})),
                json!({"id": "assistant", "provider": "echo"}),
            ),
            1,
            &[
                "UNKNOWN_PROFILE",
                "unknown profile `asistant`",
                "did you mean `assistant`?",
            ],
        ),
        (
            "a profile where there is none",
            with_node("LLM", &json!({"prompt": "hi", "profileId": "assistant"})),
            1,
            &["MODEL_ERROR", "no profile has the id `assistant`"],
        ),
        (
            "a tool that nobody gives",
            with_node("LLM", &json!({"prompt": "hi", "tools": ["serch"]})),
            0,
            &["node work names the unknown tool serch"],
        ),
    ] {
        let ended = pirn_with(file.to_string().as_bytes(), &["run", "-"]);
        assert_reported(name, &ended, code, parts);
    }
}

#[test]
fn a_failed_expression_of_a_trigger_is_shown_once_with_its_line() {
    let completed = |expression: &str| json!({"eventType": "NODE_COMPLETED", "expression": expression});
    let set = |expression: &str| json!({"type": "SET_VARIABLE", "parameters": {"variableName": "v", "expression": expression}});
    let notify = |message: &str| json!({"type": "SEND_NOTIFICATION", "parameters": {"message": message}});
    let sub = |code: &str| {
        json!({"id": "sub", "nodes": [{"id": "from", "type": "START_FROM_TRIGGER"},
            {"id": "breaks", "type": "CODE", "config": {"code": code}}, {"id": "back", "type": "CONTINUE_FROM_TRIGGER"}],
            "edges": [{"from": "from", "to": "breaks"}, {"from": "breaks", "to": "back"}]})
    };
    let starts = json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}});
    let error = "TypeError: cannot read property 'b' of undefined";
    for (condition, action, message, pointer) in [
        (completed("1 + event.a.b > 0"), set("1"), error, "condition/expression"),
        (
            completed("true"),
            set("1 + event.a.b"),
            error,
            "action/parameters/expression",
        ),
        (
            completed("true"),
            notify("{{event.naem}} ended"),
            "`event.naem` does not exist",
            "action/parameters/message",
        ),
        (
            completed("true"),
            notify("{{#if event.nodeId}}{{event.naem}}{{/if}} ended"),
            "`event.naem` does not exist",
            "action/parameters/message",
        ),
        (completed("event.nodeId == 'work'"), starts, error, ""),
    ] {
        let trigger = json!({"id": "t", "type": "EVENT", "condition": condition, "action": action});
        let mut inside = flow();
        inside["triggers"] = json!([trigger]);
        let inside = json!({"workflows": [inside, sub("return input.a.b")]});
        let outside = json!({"workflows": [flow(), sub("return input.a.b")], "triggers": [trigger]});
        for (file, at) in [(inside, "/workflows/0/triggers/0/"), (outside, "/triggers/0/")] {
            let at = if pointer.is_empty() {
                "/workflows/1/nodes/1/config/code"
            } else {
                at
            };
            let ended = pirn_with(file.to_string().as_bytes(), &["run", "-"]);
            let place = format!("{at}{pointer}");
            assert_reported(&place, &ended, 0, &["trigger t failed: ", message, "--> -:1:", &place]);
            assert_eq!(ended.stderr.matches("--> ").count(), 1, "{place}: {}", ended.stderr);
        }
    }
}

#[test]
fn log_lines_of_a_script_are_shown_and_raised_as_events() {
    let code =
        "console.log('a', {b: 1}); console.error('wrong'); for (let i = 0; i < 500; i++) console.log(i); return 1";
    let file = with_node("CODE", &json!({ "code": code }));
    let folder = Folder::new("script-log").with("flow.json", &file.to_string());
    let ended = pirn_in(folder.path(), &["run", "flow.json", "--events", "events.jsonl"], &[]);
    assert_reported(
        "logs",
        &ended,
        0,
        &[
            "work log: a {\"b\":1}",
            "work error: wrong",
            "402 more lines are left out",
        ],
    );
    let events = std::fs::read_to_string(folder.path().join("events.jsonl")).expect("events");
    let logged: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|event: &Value| event["type"] == "SCRIPT_LOG")
        .collect();
    assert_eq!(logged.len(), 101);
    assert_eq!(
        (&logged[0]["nodeId"], &logged[0]["level"], &logged[0]["message"]),
        (&json!("work"), &json!("log"), &json!("a {\"b\":1}"))
    );
    assert_eq!(logged[100]["dropped"], 402);
}
