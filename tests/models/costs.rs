//! The tokens that count as spent: everything the provider reported, also of attempts that came to nothing.

use pirn::{RunErrorCode, ThreadStatus};
use pirn_tests::wire::{Answer, End, Server};
use serde_json::{Value, json};

use crate::ask;

/// A reply that reports its tokens with every piece, and breaks off.
fn half_a_reply() -> Answer {
    let mut piece: Value = json!({"choices": [{"index": 0, "delta": {"content": "half"}}]});
    piece["usage"] = json!({"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6});
    Answer::Stream {
        pieces: vec![format!("data: {piece}\n\n")],
        end: End::Cut,
    }
}

#[test]
fn tokens_of_an_attempt_that_broke_off_are_spent() {
    let server = Server::answering([half_a_reply(), Answer::error(500, "oops"), Answer::saying(&["good"])]);
    let ran = ask(&server, &json!({}), json!({"prompt": "hi"}));
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    assert_eq!(ran.report.tokens.spent.total, 16, "6 of the first, 10 of the last");
    assert_eq!(ran.report.output["usage"]["total"], 16);
}

#[test]
fn anthropic_says_what_the_input_cost_before_anything_else() {
    let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}});
    let broken = Answer::Stream {
        pieces: vec![format!("event: message_start\ndata: {start}\n\n")],
        end: End::Cut,
    };
    let server = Server::answering([broken]);
    let more = json!({"provider": "anthropic", "retry": {"maxAttempts": 1}});
    let ran = ask(&server, &more, json!({"prompt": "hi"}));
    assert_eq!(ran.code(), RunErrorCode::ModelError.as_str(), "{:?}", ran.report.error);
    assert_eq!(ran.report.tokens.spent.total, 26);
}

#[test]
fn a_call_that_fails_for_good_has_cost_what_its_attempts_cost() {
    let server = Server::answering([half_a_reply(), half_a_reply(), half_a_reply()]);
    let ran = ask(&server, &json!({}), json!({"prompt": "hi"}));
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(ran.report.tokens.spent.total, 18);
}

#[test]
fn replies_that_do_not_fit_are_spent_when_none_does() {
    let server = Server::answering([Answer::saying(&["no"]), Answer::saying(&["JSON"])]);
    let ran = ask(
        &server,
        &json!({}),
        json!({"prompt": "hi", "responseFormat": {"type": "object"}}),
    );
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(ran.report.tokens.spent.total, 20);
}
