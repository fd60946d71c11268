//! Tests of `scripted`.

use pirn_definition::error::RunErrorCode;
use serde_json::{Value, json};

use super::{Caller, profile};
use crate::{ProfileFault, Scripted};
use pirn_actors::ports::{Model, ModelSession};
use pirn_definition::message::{Message, Role};

fn read(responses: &Value) -> Result<Scripted, Vec<ProfileFault>> {
    Scripted::new(&profile(
        json!({"id": "s", "provider": "scripted", "responses": responses}),
    ))
}

fn scripted(responses: &Value) -> Scripted {
    read(responses).expect("good responses")
}

#[test]
fn responses_are_used_in_order_within_a_thread() {
    let model = scripted(&json!([{"content": "1"}, {"content": "2"}, {"content": "3"}]));
    let (one, other) = (Caller::saying("x"), Caller::saying("x"));
    assert_eq!(one.content(&model), "1");
    assert_eq!(other.content(&model), "1");
    assert_eq!(one.content(&model), "2");
    assert_eq!(other.content(&model), "2");
    assert_eq!(one.content(&model), "3");
}

#[test]
fn a_response_is_used_when_a_message_matches() {
    let model = scripted(&json!([
        {"content": "refund", "match": "(?i)money"}, {"content": "any"}, {"content": "digits", "match": r"^\d+$"},
    ]));
    let mut caller = Caller::saying("hello");
    assert_eq!(caller.content(&model), "any");
    caller.messages.push(Message::new(Role::User, "42"));
    assert_eq!(caller.content(&model), "digits");
    caller.messages.push(Message::new(Role::User, "my MONEY"));
    assert_eq!(caller.content(&model), "refund");
}

#[test]
fn a_match_considers_only_the_last_user_message() {
    let model =
        scripted(&json!([{"content": "a", "match": "old"}, {"content": "b", "match": "pinned"}, {"content": "c"}]));
    let mut caller = Caller::saying("old");
    caller.messages.push(Message::new(Role::User, "new"));
    caller.messages.push(Message::new(Role::User, "pinned"));
    caller.messages.push(Message::new(Role::Assistant, "old"));
    caller.pinned = Some((2, 1));
    assert_eq!(caller.content(&model), "c");

    let silent = Caller::new();
    let any = scripted(&json!([{"content": "a", "match": ".*"}, {"content": "b"}]));
    assert_eq!(silent.content(&any), "b");
}

#[test]
fn running_out_of_responses_is_a_model_error() {
    let model = scripted(&json!([{"content": "1"}, {"content": "2", "match": "never"}]));
    let caller = Caller::saying("x");
    assert_eq!(caller.content(&model), "1");
    let error = caller.call(&model).expect_err("nothing left");
    assert_eq!(error.code, RunErrorCode::ModelError);
    assert!(error.message.contains("`s`"), "{error}");
    assert!(caller.call(&scripted(&json!([]))).is_err());
}

#[test]
fn an_error_in_the_script_is_a_model_error_and_is_used_once() {
    let model =
        scripted(&json!([{"error": "rate limited"}, {"error": {"message": "down", "status": 503}}, {"content": "ok"}]));
    let caller = Caller::saying("x");
    let first = caller.call(&model).expect_err("an error");
    assert_eq!(
        (first.code, first.message.as_str()),
        (RunErrorCode::ModelError, "rate limited")
    );
    let second = caller.call(&model).expect_err("an error");
    assert_eq!(
        (second.message.as_str(), &second.details.as_ref().unwrap()["status"]),
        ("down", &json!(503))
    );
    assert_eq!(caller.content(&model), "ok");
}

#[test]
fn a_delay_advances_the_clock_of_the_host() {
    let model = scripted(&json!([{"content": "late", "delayMs": 3_600_000}, {"error": "late", "delayMs": 500}]));
    let caller = Caller::saying("x");
    assert_eq!(caller.content(&model), "late");
    assert_eq!(caller.host.host().now(), 3_600_000);
    assert!(caller.call(&model).is_err());
    assert_eq!(caller.host.host().now(), 3_600_500);
}

#[test]
fn responses_are_consumed_in_call_order() {
    let model = scripted(&json!([{"content": "1", "delayMs": 10}, {"content": "2"}]));
    let caller = Caller::saying("x");
    let call = || caller.model_call(pirn_actors::ports::TokenSink::closed());
    let (first, second) = (model.call(call()), model.call(call()));
    let both = caller
        .host
        .block_on(async { (second.await, first.await) })
        .expect("they end");
    assert_eq!(
        (both.1.unwrap().content, both.0.unwrap().content),
        ("1".into(), "2".into())
    );
}

#[test]
fn tool_calls_without_an_id_get_a_unique_id() {
    let calls = json!([{"name": "a"}, {"id": "mine", "name": "b", "arguments": {"x": 1}}]);
    let model = scripted(&json!([{"toolCalls": calls}, {"content": "c", "toolCalls": calls}]));
    let caller = Caller::saying("x");
    let first = caller.call(&model).expect("a reply").tool_calls;
    let second = caller.call(&model).expect("a reply").tool_calls;
    assert_eq!(
        (first[0].arguments.clone(), first[1].arguments.clone()),
        (json!({}), json!({"x": 1}))
    );
    assert_eq!(first[1].id, "mine");
    assert_ne!(first[0].id, second[0].id);
}

#[test]
fn every_bad_response_is_a_fault_with_a_location() {
    let faults = read(&json!([
        {"content": "fine"}, {"match": "("}, {"contents": "typo"}, "text", {"delayMs": -1}, {"toolCalls": [{"id": "x"}]},
    ]))
    .expect_err("faults");
    let found: Vec<(&str, &str)> = faults
        .iter()
        .map(|fault| (fault.profile.as_str(), fault.pointer.as_str()))
        .collect();
    let places = [
        "/responses/1/match",
        "/responses/2",
        "/responses/3",
        "/responses/4",
        "/responses/5",
    ];
    assert_eq!(found, places.map(|place| ("s", place)));
    assert!(faults[1].message.contains("contents"), "{}", faults[1]);

    for bad in [json!("text"), json!({"content": "x"}), json!(null)] {
        assert_eq!(read(&bad).expect_err("no list")[0].pointer, "/responses", "{bad}");
    }
    let none = Scripted::new(&profile(json!({"id": "s", "provider": "scripted"}))).expect_err("no responses");
    assert_eq!(none[0].pointer, "/responses");
}

#[test]
fn a_new_session_starts_at_the_first_response() {
    let model = scripted(&json!([{"content": "1"}]));
    let mut caller = Caller::saying("x");
    assert_eq!(caller.content(&model), "1");
    caller.session = ModelSession::default();
    assert_eq!(caller.content(&model), "1");
}
