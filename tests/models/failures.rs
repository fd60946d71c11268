//! Faults of a provider: refused, late, cut off or malformed replies. The call is retried or fails as the profile defines; the
//! conversation stays consistent.

use std::time::Duration;

use pirn::{Engine, EventType, Role, RunError, ThreadStatus};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_tests::wire::{Answer, End, Server, delta};
use pirn_tests::world::{Ran, run_in};
use serde_json::{Value, json};

use super::{ask, asking, engine, profile};

fn prompt() -> Value {
    json!({"prompt": "hi", "tools": ["weather"]})
}

/// The model's error, which is the cause of the node's error.
pub(crate) fn cause(ran: &Ran) -> &RunError {
    let error = ran.report.error.as_ref().expect("an error");
    let mut deepest = error;
    while deepest.code != pirn::RunErrorCode::ModelError {
        deepest = deepest
            .cause
            .as_ref()
            .unwrap_or_else(|| panic!("no MODEL_ERROR in {error:?}"));
    }
    deepest
}

#[track_caller]
fn fails_with(ran: &Ran, kind: FailureKind) {
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(ModelFailure::of(cause(ran)).kind, kind, "{:?}", ran.report.error);
    assert_eq!(
        ran.roles(),
        [Role::User],
        "nothing of a failed reply stands in the conversation"
    );
}

#[track_caller]
fn assert_reply(ran: &Ran, content: &str) {
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    assert_eq!(ran.report.output["content"], content);
    assert_eq!(ran.roles(), [Role::User, Role::Assistant]);
}

#[test]
fn transient_failures_are_retried() {
    let cut = Answer::breaking_off(&["half a"], End::Cut);
    let nonsense = Answer::Stream {
        pieces: vec![
            delta(&json!({"content": "half"})),
            "data: {\"choices\": [{\n\n".to_owned(),
        ],
        end: End::Finished,
    };
    let no_end = Answer::breaking_off(&["half"], End::Finished);
    for (bad, attempts) in [
        (vec![Answer::error(500, "oops")], 2),
        (vec![Answer::error(503, "busy"), Answer::error(529, "busy")], 3),
        (
            vec![Answer::error(429, "slow down").with_header("Retry-After", "0.01")],
            2,
        ),
        (vec![Answer::HangUp], 2),
        (vec![cut], 2),
        (vec![nonsense], 2),
        (vec![no_end], 2),
    ] {
        let said = format!("{bad:?}");
        let server = Server::answering(bad.into_iter().chain([Answer::saying(&["good"])]));
        let ran = ask(&server, &json!({}), prompt());
        assert_reply(&ran, "good");
        assert_eq!(server.requests().len(), attempts, "{said}");
        let bodies: Vec<Value> = server.requests().into_iter().map(|request| request.body).collect();
        assert!(
            bodies.iter().all(|body| *body == bodies[0]),
            "the same request each time"
        );
    }
}

#[test]
fn permanent_failures_fail_at_once_with_their_kind() {
    for (status, kind) in [
        (400, FailureKind::Rejected),
        (401, FailureKind::Key),
        (403, FailureKind::Key),
        (404, FailureKind::Rejected),
    ] {
        let server = Server::answering([Answer::error(status, "not like this")]);
        let ran = ask(&server, &json!({}), prompt());
        fails_with(&ran, kind);
        assert_eq!(server.requests().len(), 1);
        assert!(cause(&ran).message.contains("not like this"), "{}", cause(&ran));
    }
}

#[test]
fn a_call_fails_after_its_last_attempt() {
    let server = Server::answering((0..9).map(|_| Answer::error(500, "oops")));
    let ran = ask(&server, &json!({}), prompt());
    fails_with(&ran, FailureKind::Provider);
    assert_eq!(server.requests().len(), 3);
    assert!(cause(&ran).message.contains("(3 attempts)"), "{}", cause(&ran));
}

#[test]
fn every_kind_of_broken_stream_fails_with_its_kind() {
    let once = json!({"retry": {"maxAttempts": 1}});
    let stream = |pieces: &[&str]| Answer::Stream {
        pieces: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
        end: End::Finished,
    };
    for (answer, kind) in [
        (Answer::HangUp, FailureKind::Dropped),
        (Answer::breaking_off(&["half"], End::Cut), FailureKind::Dropped),
        (Answer::breaking_off(&["half"], End::Finished), FailureKind::Dropped),
        (stream(&["data: nonsense\n\n"]), FailureKind::Malformed),
        (stream(&["data: null\n\n", "data: [DONE]\n\n"]), FailureKind::Malformed),
        (
            stream(&["data: {\"error\": {\"message\": \"overloaded\"}}\n\n"]),
            FailureKind::Provider,
        ),
        (
            stream(&["data: {\"error\": {\"type\": \"invalid_request_error\"}}\n\n"]),
            FailureKind::Rejected,
        ),
    ] {
        let said = format!("{answer:?}");
        let server = Server::answering([answer]);
        let ran = ask(&server, &once, prompt());
        assert_eq!(
            ModelFailure::of(cause(&ran)).kind,
            kind,
            "{said}: {:?}",
            ran.report.error
        );
        fails_with(&ran, kind);
    }
}

#[test]
fn a_truncated_reply_is_a_failure_in_every_protocol() {
    let anthropic = concat!(
        "event: content_block_start\ndata: {\"index\": 0, \"content_block\": {\"type\": \"text\"}}\n\n",
        "event: content_block_delta\ndata: {\"index\": 0, \"delta\": {\"text\": \"half\"}}\n\n",
    );
    let gemini =
        "data: {\"candidates\": [{\"content\": {\"role\": \"model\", \"parts\": [{\"text\": \"half\"}]}}]}\n\n";
    let ollama = "{\"message\": {\"role\": \"assistant\", \"content\": \"half\"}, \"done\": false}\n";
    for (provider, piece) in [("anthropic", anthropic), ("gemini", gemini), ("ollama", ollama)] {
        let server = Server::answering([Answer::Stream {
            pieces: vec![piece.to_owned()],
            end: End::Finished,
        }]);
        let ran = ask(
            &server,
            &json!({"provider": provider, "retry": {"maxAttempts": 1}}),
            prompt(),
        );
        assert_eq!(
            ran.of(EventType::LlmToken).len(),
            1,
            "{provider}: {:?}",
            ran.report.error
        );
        fails_with(&ran, FailureKind::Dropped);
    }
}

#[test]
fn a_stall_and_a_late_first_token_have_different_errors() {
    for (answer, words) in [
        (Answer::breaking_off(&[], End::Stall), "first token"),
        (Answer::breaking_off(&["half"], End::Stall), "next token"),
    ] {
        let server = Server::answering([answer]);
        let more = json!({"retry": {"maxAttempts": 1}, "timeouts": {"firstTokenMs": 300, "idleMs": 200}});
        let ran = ask(&server, &more, prompt());
        fails_with(&ran, FailureKind::Stalled);
        assert!(cause(&ran).message.contains(words), "{}", cause(&ran));
        assert!(server.client_left(), "the connection is closed");
    }
}

#[test]
fn comments_do_not_extend_the_time_limits_of_a_stream() {
    for (pieces, words) in [(&[][..], "first token"), (&["half"], "next token")] {
        let server = Server::answering([Answer::breaking_off(pieces, End::Comments)]);
        let more =
            json!({"retry": {"maxAttempts": 1}, "timeouts": {"firstTokenMs": 300, "idleMs": 200, "totalMs": 60_000}});
        let ran = ask(&server, &more, prompt());
        fails_with(&ran, FailureKind::Stalled);
        assert!(cause(&ran).message.contains(words), "{}", cause(&ran));
        assert!(server.client_left(), "the connection is closed");
    }
}

#[test]
fn a_refused_connection_is_reported_as_unreachable() {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let nobody = format!("http://{}/v1/", port.expect("a port"));
    let server = Server::answering([]);
    let ran = ask(&server, &json!({"endpoint": nobody}), prompt());
    fails_with(&ran, FailureKind::Unreachable);
}

#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = Server::answering([Answer::saying(&["caught"])]);
    let away = Answer::error(307, "over there").with_header("Location", &elsewhere.url("/v1/chat/completions"));
    let server = Server::answering([away]);
    let ran = ask(&server, &json!({}), prompt());
    fails_with(&ran, FailureKind::Rejected);
    assert_eq!(elsewhere.requests().len(), 0, "the key went nowhere");
}

#[test]
fn a_fallback_profile_answers_if_the_first_fails() {
    let first = Server::answering([Answer::error(401, "no")]);
    let second = Server::answering([Answer::saying(&["from ", "the second"])]);
    let profiles = [
        profile(&first, &json!({"fallback": ["n"]})),
        profile(&second, &json!({"id": "n", "model": "other-model"})),
    ];
    let ran = run_in(
        engine(profiles),
        &asking(json!({"prompt": "hi", "profileId": "m"})),
        Value::Null,
        Vec::new(),
    );
    assert_reply(&ran, "from the second");
    assert_eq!(second.requests()[0].body["model"], "other-model");
}

#[test]
fn a_retry_discards_the_tokens_of_the_failed_attempt() {
    let server = Server::answering([Answer::breaking_off(&["ha"], End::Cut), Answer::saying(&["good"])]);
    let ran = ask(&server, &json!({}), prompt());
    let pieces: Vec<(&Value, bool)> = ran
        .of(EventType::LlmToken)
        .iter()
        .map(|event| {
            (
                &event.raised.fields["text"],
                event.raised.fields.contains_key("restart"),
            )
        })
        .collect();
    assert_eq!(
        pieces,
        [(&json!("ha"), false), (&json!(""), true), (&json!("good"), false)]
    );
}

#[test]
fn a_cancel_drops_the_request_at_once() {
    let server = Server::answering([Answer::breaking_off(&["half"], End::Stall)]);
    let engine = Engine::builder()
        .profiles([profile(&server, &json!({}))])
        .workflows(asking(prompt()).to_string())
        .build()
        .expect("valid");
    let mut prepared = engine.run("asks");
    let mut tokens = prepared.blocking_events(&[EventType::LlmToken], 16);
    let run = prepared.start().expect("admitted");
    assert!(tokens.next().is_some(), "the reply has begun");
    run.cancel("enough");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
    assert!(server.client_left(), "the connection is closed");
    engine.shutdown_blocking(Duration::from_secs(5));
}
