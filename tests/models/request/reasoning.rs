//! A model's reasoning is sent back to that model between the tool rounds of a turn, and to no other model.

use std::sync::Arc;

use pirn::{EngineBuilder, ThreadStatus};
use pirn_tests::wire::{Answer, End, Server, delta};
use pirn_tests::world::{Ran, line, node, run_in};
use serde_json::{Value, json};

use crate::models::{Weather, engine, profile};

/// An answer with these JSON values as server-sent events.
fn events(events: &[Value]) -> Answer {
    let piece = |event: &Value| {
        let kind = event["type"].as_str().map(|kind| format!("event: {kind}\n"));
        format!("{}data: {event}\n\n", kind.unwrap_or_default())
    };
    Answer::Stream {
        pieces: events.iter().map(piece).collect(),
        end: End::Finished,
    }
}

/// Thinks (signed, then redacted), then calls the weather tool.
fn anthropic_thinks() -> Answer {
    let block =
        |index: u8, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let piece = |index: u8, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u8| json!({"type": "content_block_stop", "index": index});
    events(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        piece(0, json!({"type": "thinking_delta", "thinking": "I should "})),
        piece(0, json!({"type": "thinking_delta", "thinking": "look."})),
        piece(0, json!({"type": "signature_delta", "signature": "sealed"})),
        stop(0),
        block(1, json!({"type": "redacted_thinking", "data": "hidden"})),
        stop(1),
        block(
            2,
            json!({"type": "tool_use", "id": "t1", "name": "weather", "input": {}}),
        ),
        piece(
            2,
            json!({"type": "input_json_delta", "partial_json": "{\"city\": \"Bern\"}"}),
        ),
        stop(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ])
}

fn anthropic_says(text: &str) -> Answer {
    events(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ])
}

fn gemini(part: &Value) -> Answer {
    events(&[json!({
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7},
    })])
}

/// Reasons, then calls the weather tool.
fn openai_thinks() -> Answer {
    let Answer::Stream { mut pieces, end } = Answer::calling(&[("weather", r#"{"city": "Bern"}"#)]) else {
        panic!("a stream");
    };
    pieces.insert(0, delta(&json!({"reasoning_content": "I should look."})));
    Answer::Stream { pieces, end }
}

/// Two turns: the first one calls a tool.
fn two_turns(builder: EngineBuilder) -> Ran {
    let ask = |id: &str| node(id, "LLM", json!({"prompt": id, "tools": ["weather"]}));
    let workflow = line("talk", &[ask("first"), ask("second")]);
    let ran = run_in(builder.tool(Arc::new(Weather)), &workflow, Value::Null, Vec::new());
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    ran
}

#[test]
fn anthropics_thinking_blocks_are_sent_back_whole_and_signed_within_the_turn() {
    let server = Server::answering([anthropic_thinks(), anthropic_says("fine"), anthropic_says("well")]);
    let more = json!({"provider": "anthropic", "parameters": {"thinking": {"type": "enabled", "budget_tokens": 1024}}});
    two_turns(engine([profile(&server, &more)]));
    let requests = server.requests();
    assert_eq!(requests[0].body["thinking"]["type"], "enabled");
    assert_eq!(
        requests[1].body["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "I should look.", "signature": "sealed"},
            {"type": "redacted_thinking", "data": "hidden"},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}},
        ])
    );
    let later = requests[2].body["messages"].to_string();
    assert!(!later.contains("thinking") && later.contains("tool_use"), "{later}");
}

#[test]
fn geminis_thought_signatures_are_sent_back_with_their_calls_within_the_turn() {
    let call = json!({"functionCall": {"name": "weather", "args": {"city": "Bern"}}, "thoughtSignature": "sealed"});
    let server = Server::answering([
        gemini(&call),
        gemini(&json!({"text": "fine"})),
        gemini(&json!({"text": "well"})),
    ]);
    two_turns(engine([profile(&server, &json!({"provider": "gemini"}))]));
    let requests = server.requests();
    assert_eq!(requests[1].body["contents"][1]["parts"], json!([call]));
    let later = requests[2].body["contents"].to_string();
    assert!(!later.contains("sealed") && later.contains("functionCall"), "{later}");
    let asked = requests[0].body.to_string();
    assert!(
        !asked.contains("includeThoughts"),
        "models without thoughts refuse it: {asked}"
    );
}

#[test]
fn reasoning_content_of_openais_protocol_is_sent_back_within_the_turn() {
    let server = Server::answering([openai_thinks(), Answer::saying(&["fine"]), Answer::saying(&["well"])]);
    two_turns(engine([profile(&server, &json!({}))]));
    let requests = server.requests();
    assert_eq!(requests[1].body["messages"][1]["reasoning_content"], "I should look.");
    let later = requests[2].body["messages"].to_string();
    assert!(
        !later.contains("I should look") && later.contains("tool_calls"),
        "{later}"
    );
}

#[test]
fn the_reasoning_of_an_unstreamed_reply_is_sent_back_too() {
    let call =
        json!({"id": "c0", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Bern\"}"}});
    let whole = |message: Value| Answer::Whole {
        status: 200,
        headers: Vec::new(),
        body: json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).to_string(),
    };
    let server = Server::answering([
        whole(
            json!({"role": "assistant", "content": null, "reasoning_content": "I should look.", "tool_calls": [call]}),
        ),
        whole(json!({"role": "assistant", "content": "fine"})),
        whole(json!({"role": "assistant", "content": "well"})),
    ]);
    two_turns(engine([profile(&server, &json!({"stream": false}))]));
    assert_eq!(
        server.requests()[1].body["messages"][1]["reasoning_content"],
        "I should look."
    );
}

#[test]
fn reasoning_is_never_sent_to_another_model() {
    let first = Server::answering([openai_thinks(), Answer::error(400, "no more")]);
    let second = Server::answering([Answer::saying(&["fine"]), Answer::saying(&["well"])]);
    let fallback = json!({"id": "n", "model": "another"});
    let profiles = [
        profile(&first, &json!({"fallback": ["n"]})),
        profile(&second, &fallback),
    ];
    two_turns(engine(profiles));
    let told = second.requests()[0].body["messages"].to_string();
    assert!(
        told.contains("fine in Bern") && !told.contains("I should look"),
        "{told}"
    );
}
