//! The tokens that count as spent: everything the provider reported, also for attempts that failed.

use pirn::{RunErrorCode, ThreadStatus};
use pirn_tests::wire::{Answer, End, Server};
use serde_json::{Value, json};

use crate::models::ask;

/// A reply that reports its tokens with every piece and breaks off.
fn half_a_reply() -> Answer {
    let mut piece: Value = json!({"choices": [{"index": 0, "delta": {"content": "half"}}]});
    piece["usage"] = json!({"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6});
    Answer::Stream {
        pieces: vec![format!("data: {piece}\n\n")],
        end: End::Cut,
    }
}

#[test]
fn tokens_of_an_interrupted_attempt_count_as_spent() {
    let server = Server::answering([half_a_reply(), Answer::error(500, "oops"), Answer::saying(&["good"])]);
    let ran = ask(&server, &json!({}), json!({"prompt": "hi"}));
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    assert_eq!(ran.report.tokens.spent.total, 16, "6 of the first, 10 of the last");
    assert_eq!(ran.report.output["usage"]["total"], 16);
}

#[test]
fn input_tokens_of_an_interrupted_anthropic_reply_count_as_spent() {
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
fn the_tokens_of_a_failed_call_are_those_of_all_its_attempts() {
    let server = Server::answering([half_a_reply(), half_a_reply(), half_a_reply()]);
    let ran = ask(&server, &json!({}), json!({"prompt": "hi"}));
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(ran.report.tokens.spent.total, 18);
}

#[test]
fn tokens_of_replies_that_violate_the_schema_count_as_spent() {
    let server = Server::answering([Answer::saying(&["no"]), Answer::saying(&["JSON"])]);
    let ran = ask(
        &server,
        &json!({}),
        json!({"prompt": "hi", "responseFormat": {"type": "object"}}),
    );
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(ran.report.tokens.spent.total, 20);
}

#[test]
fn every_protocols_usage_is_mapped_to_one_set_of_token_kinds() {
    let chat = |usage: Value| {
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"});
        json!({"choices": [choice], "usage": usage})
    };
    let text = json!({"type": "message", "content": [{"type": "output_text", "text": "hi"}]});
    let spoken = |provider: &str, api: Option<&str>| json!({"provider": provider, "api": api, "stream": false});
    let openai = || spoken("openai", None);
    let kinds = |input, read, write, output, reasoning, total| json!({"input": input, "cachedRead": read, "cachedWrite": write, "output": output, "reasoning": reasoning, "total": total});
    let cases = [
        (
            openai(),
            chat(
                json!({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
                "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 30}}),
            ),
            kinds(15, 80, 5, 20, 30, 150),
        ),
        // Reasoning that is not included in the output tokens, and another name for the cached ones.
        (
            openai(),
            chat(
                json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 150,
                "prompt_cache_hit_tokens": 60, "completion_tokens_details": {"reasoning_tokens": 30}}),
            ),
            kinds(40, 60, 0, 20, 30, 150),
        ),
        (
            spoken("openai", Some("responses")),
            json!({"status": "completed", "output": [text], "usage": {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150,
                "input_tokens_details": {"cached_tokens": 80}, "output_tokens_details": {"reasoning_tokens": 30}}}),
            kinds(20, 80, 0, 20, 30, 150),
        ),
        (
            spoken("anthropic", None),
            json!({"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 15, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5, "output_tokens": 50}}),
            kinds(15, 80, 5, 50, 0, 150),
        ),
        (
            spoken("gemini", None),
            json!({"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 90, "toolUsePromptTokenCount": 10, "cachedContentTokenCount": 80,
                    "candidatesTokenCount": 20, "thoughtsTokenCount": 30, "totalTokenCount": 150}}),
            kinds(20, 80, 0, 20, 30, 150),
        ),
        (
            spoken("ollama", None),
            json!({"message": {"role": "assistant", "content": "hi"}, "done": true, "prompt_eval_count": 100, "eval_count": 50}),
            kinds(100, 0, 0, 50, 0, 150),
        ),
    ];
    for (more, reply, expected) in cases {
        let server = Server::answering([Answer::Whole {
            status: 200,
            headers: Vec::new(),
            body: reply.to_string(),
        }]);
        let ran = ask(&server, &more, json!({"prompt": "hi"}));
        assert_eq!(
            ran.report.status,
            ThreadStatus::Completed,
            "{more}: {:?}",
            ran.report.error
        );
        assert_eq!(ran.report.output["usage"], expected, "{more}");
    }
}
