//! Finish reasons of replies, and the limit for models that call tools without end.

use pirn::{Role, RunErrorCode, ThreadStatus};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_tests::wire::{Answer, End, Server, delta};
use pirn_tests::world::{node, run_in, workflow};
use serde_json::{Value, json};

use super::failures::cause;
use super::{ask, engine, profile};

fn calls() -> Answer {
    Answer::calling(&[("weather", r#"{"city": "Bern"}"#)])
}

#[test]
fn a_model_that_calls_tools_without_end_fails_its_node_and_every_call_is_answered() {
    let server = Server::answering([calls(), calls(), calls()]);
    let ran = ask(
        &server,
        &json!({}),
        json!({"prompt": "go", "tools": ["weather"], "maxToolRounds": 2}),
    );
    let error = ran.report.error.as_ref().expect("an error");
    assert_eq!(error.code, RunErrorCode::ToolRoundsExceeded, "{error}");
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(server.requests().len(), 3);
    let (call, result) = (Role::Assistant, Role::Tool);
    assert_eq!(ran.roles(), [Role::User, call, result, call, result, call, result]);
    assert!(
        ran.visible()[6].contains("limit of 2 tool rounds"),
        "{:?}",
        ran.visible()
    );
    assert_eq!(ran.report.tokens.spent.total, 30);
}

#[test]
fn at_the_round_limit_a_final_reply_without_tools_is_requested_if_configured() {
    let server = Server::answering([calls(), calls(), Answer::saying(&["so be it"])]);
    let config = json!({"prompt": "go", "tools": ["weather"], "maxToolRounds": 1, "onLimit": "answer"});
    let ran = ask(&server, &json!({}), config.clone());
    assert_eq!(ran.report.output["content"], "so be it", "{:?}", ran.report.error);
    let requests = server.requests();
    let choices: Vec<&Value> = requests.iter().map(|request| &request.body["tool_choice"]).collect();
    assert_eq!(choices, [&Value::Null, &Value::Null, &json!("none")]);

    // A model that calls a tool in spite of `tool_choice: none` fails the node.
    let server = Server::answering([calls(), calls(), calls()]);
    let ran = ask(&server, &json!({}), config);
    assert_eq!(
        ran.report.error.as_ref().map(|error| error.code),
        Some(RunErrorCode::ToolRoundsExceeded)
    );
    assert_eq!(server.requests().len(), 3);
}

/// A reply of these pieces with this finish reason.
fn ending(pieces: &[&str], reason: &str) -> Answer {
    let mut events: Vec<String> = pieces.iter().map(|piece| delta(&json!({"content": piece}))).collect();
    let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    events.push(format!("data: {finish}\n\n"));
    Answer::Stream {
        pieces: events,
        end: End::Finished,
    }
}

#[test]
fn a_workflow_can_route_on_the_finish_reason() {
    for (reason, output) in [("stop", "whole"), ("length", "cut"), ("content_filter", "cut")] {
        let server = Server::answering([ending(&["half a sen"], reason)]);
        let routes = json!({"routes": [{"condition": "output.finishReason == 'stop'", "targetNodeId": "whole"}], "defaultTargetNodeId": "cut"});
        let says = |word: &str| json!({"variableName": "end", "expression": format!("'{word}'")});
        let flow = workflow(
            "asks",
            &[
                node("start", "START", json!({})),
                node("ask", "LLM", json!({"prompt": "go"})),
                node("which", "ROUTE", routes),
                node("whole", "VARIABLE", says("whole")),
                node("cut", "VARIABLE", says("cut")),
                node("end", "END", json!({})),
            ],
            &["start>ask>which", "whole>end", "cut>end"],
        );
        let ran = run_in(engine([profile(&server, &json!({}))]), &flow, Value::Null, Vec::new());
        assert_eq!(ran.report.output, output, "{reason}: {:?}", ran.report.error);
    }
}

#[test]
fn truncated_structured_output_is_an_error_and_is_not_retried() {
    for (reason, words) in [
        ("length", "maxTokens"),
        ("content_filter", "filter"),
        ("refusal", "refused"),
    ] {
        let server = Server::answering([ending(&["12"], reason), Answer::saying(&["123"])]);
        let ran = ask(
            &server,
            &json!({}),
            json!({"prompt": "how many?", "responseFormat": {"type": "integer"}}),
        );
        let cause = cause(&ran);
        assert_eq!(
            ModelFailure::of(cause).kind,
            FailureKind::BadFormat,
            "{reason}: {cause}"
        );
        assert!(cause.message.contains(words), "{reason}: {cause}");
        assert_eq!(
            cause.details.as_ref().map(|details| &details["finishReason"]),
            Some(&json!(reason))
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_reply_that_ends_for_tool_calls_and_has_none_is_retried() {
    let server = Server::answering([ending(&[], "tool_calls"), Answer::saying(&["good"])]);
    let ran = ask(&server, &json!({}), json!({"prompt": "go", "tools": ["weather"]}));
    assert_eq!(ran.report.output["content"], "good", "{:?}", ran.report.error);
    assert_eq!(server.requests().len(), 2);
}
