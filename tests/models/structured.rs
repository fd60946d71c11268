//! `responseFormat`: the reply is checked, and requested once more if it does not fit.

use pirn::{Role, ThreadStatus};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_tests::wire::{Answer, Server};
use serde_json::{Value, json};

use super::ask;

fn node() -> Value {
    json!({"prompt": "how many?", "responseFormat": {
        "type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"], "additionalProperties": false}})
}

#[test]
fn a_valid_reply_is_accepted_without_its_code_fence() {
    let server = Server::answering([Answer::saying(&["```json\n", "{\"n\": 3}", "\n```"])]);
    let ran = ask(&server, &json!({}), node());
    assert_eq!(ran.report.output["content"], "{\"n\": 3}");
    let format = &server.requests()[0].body["response_format"];
    assert_eq!(format["type"], "json_schema");
    assert_eq!(format["json_schema"]["schema"]["required"], json!(["n"]));
}

#[test]
fn an_invalid_reply_is_requested_again_with_its_errors() {
    let server = Server::answering([Answer::saying(&["{\"n\": 0}"]), Answer::saying(&["{\"n\": 1}"])]);
    let ran = ask(&server, &json!({}), node());
    assert_eq!(ran.report.output["content"], "{\"n\": 1}");
    assert_eq!(ran.report.tokens.spent.total, 20, "both count");

    let requests = server.requests();
    let again = requests[1].body["messages"].as_array().expect("messages");
    assert_eq!(again.len(), 3);
    assert_eq!(again[1], json!({"role": "assistant", "content": "{\"n\": 0}"}));
    let complaint = again[2]["content"].as_str().expect("text");
    assert!(
        complaint.contains("at /n") && complaint.contains("minimum"),
        "{complaint}"
    );
    assert_eq!(
        ran.roles(),
        [Role::User, Role::Assistant],
        "none of that stands in the conversation"
    );
}

#[test]
fn a_retry_has_the_idempotency_key_of_its_request_and_a_changed_request_a_new_one() {
    let server = Server::answering([
        Answer::error(500, "busy"),
        Answer::saying(&["{\"n\": 0}"]),
        Answer::error(500, "busy"),
        Answer::saying(&["{\"n\": 1}"]),
    ]);
    let ran = ask(&server, &json!({}), node());
    assert_eq!(ran.report.output["content"], "{\"n\": 1}");
    let requests = server.requests();
    let keys: Vec<&String> = requests
        .iter()
        .map(|request| &request.headers["idempotency-key"])
        .collect();
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(keys[0], keys[1]);
    assert_eq!(requests[2].body, requests[3].body);
    assert_eq!(keys[2], keys[3]);
    assert_ne!(keys[1], keys[2]);
}

#[test]
fn a_second_invalid_reply_fails_the_node() {
    let server = Server::answering([
        Answer::saying(&["three"]),
        Answer::saying(&["3"]),
        Answer::saying(&["{\"n\": 3}"]),
    ]);
    let ran = ask(&server, &json!({}), node());
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    let mut error = ran.report.error.as_ref().expect("an error");
    while let Some(cause) = error.cause.as_ref() {
        error = cause;
    }
    assert_eq!(ModelFailure::of(error).kind, FailureKind::BadFormat, "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn replies_with_tool_calls_are_not_checked_against_the_schema() {
    let server = Server::answering([
        Answer::calling(&[("weather", r#"{"city": "Bern"}"#)]),
        Answer::saying(&["{\"n\": 9}"]),
    ]);
    let mut node = node();
    node["tools"] = json!(["weather"]);
    let ran = ask(&server, &json!({}), node);
    assert_eq!(ran.report.output["content"], "{\"n\": 9}");
    assert_eq!(server.requests().len(), 2);
}
