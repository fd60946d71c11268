//! Valid replies: whole, streamed, with tools.

use pirn::{EventType, Role, ThreadStatus};
use pirn_tests::wire::{Answer, End, Server, delta};
use serde_json::{Value, json};

use super::ask;

#[test]
fn a_streamed_reply_raises_events_and_counts_the_reported_tokens() {
    let server = Server::answering([Answer::saying(&["good ", "morning", " 你好"])]);
    let ran = ask(
        &server,
        &json!({"parameters": {"temperature": 0.5}}),
        json!({"prompt": "hi", "system": "be kind"}),
    );
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    assert_eq!(ran.report.output["content"], "good morning 你好");
    let pieces: Vec<&str> = ran
        .of(EventType::LlmToken)
        .iter()
        .filter_map(|event| event.raised.fields["text"].as_str())
        .collect();
    assert_eq!(pieces, ["good ", "morning", " 你好"]);
    assert_eq!(ran.report.tokens.spent.total, 10);

    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path, "/v1/chat/completions");
    let body = &requests[0].body;
    assert_eq!(
        (&body["model"], &body["temperature"]),
        (&json!("some-model"), &json!(0.5))
    );
    assert_eq!(
        body["messages"],
        json!([{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}])
    );
}

#[test]
fn a_reply_is_not_streamed_if_the_profile_disables_streams() {
    let body = json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    });
    let server = Server::answering([Answer::Whole {
        status: 200,
        headers: Vec::new(),
        body: body.to_string(),
    }]);
    let ran = ask(&server, &json!({"stream": false}), json!({"prompt": "hi"}));
    assert_eq!(ran.report.output["content"], "whole");
    assert_eq!(ran.report.tokens.spent.total, 3);
    assert_eq!(server.requests()[0].body["stream"], false);
}

#[test]
fn parallel_tool_calls_of_a_reply_are_answered_together() {
    let server = Server::answering([
        Answer::calling(&[("weather", r#"{"city": "Bern"}"#), ("weather", r#"{"city": "Rome"}"#)]),
        Answer::saying(&["fine everywhere"]),
    ]);
    let ran = ask(&server, &json!({}), json!({"prompt": "weather?", "tools": ["weather"]}));
    assert_eq!(ran.report.output["content"], "fine everywhere");
    let requests = server.requests();
    assert_eq!(requests[0].body["tools"][0]["function"]["name"], "weather");
    let sent: Vec<(&str, &str)> = requests[1].body["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| Some((message["tool_call_id"].as_str()?, message["content"].as_str()?)))
        .collect();
    assert_eq!(sent, [("c0", "fine in Bern"), ("c1", "fine in Rome")]);
    assert_eq!(
        ran.roles(),
        [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Assistant]
    );
    assert_eq!(ran.report.tokens.spent.total, 20);
}

#[test]
fn tool_arguments_that_are_invalid_json_are_answered_and_sent_back_as_valid_json() {
    let server = Server::answering([
        Answer::calling(&[("weather", r#"{"city": "#)]),
        Answer::saying(&["sorry"]),
    ]);
    let ran = ask(&server, &json!({}), json!({"prompt": "weather?", "tools": ["weather"]}));
    assert_eq!(ran.report.output["content"], "sorry");
    let again = &server.requests()[1].body["messages"][1]["tool_calls"][0]["function"]["arguments"];
    let again: Value = serde_json::from_str(again.as_str().expect("text")).expect("JSON");
    assert!(again.is_object(), "{again}");
}

#[test]
fn a_reply_with_a_finish_reason_is_complete_without_the_done_line() {
    let finish = |reason: &str| {
        let choice = json!({"index": 0, "delta": {}, "finish_reason": reason});
        let usage = json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10});
        format!("data: {}\n\n", json!({"choices": [choice], "usage": usage}))
    };
    let call = |index: u8, city: &str| {
        let part = |fields: Value| delta(&json!({"tool_calls": [fields]}));
        [
            part(
                json!({"index": index, "id": format!("c{index}"), "function": {"name": "weather", "arguments": "{\"city\": "}}),
            ),
            part(json!({"index": index, "function": {"arguments": format!("\"{city}\"}}")}})),
        ]
    };
    let calls = [call(0, "Bern"), call(1, "Rome")].concat();
    let server = Server::answering([
        Answer::Stream {
            pieces: [calls, vec![finish("tool_calls")]].concat(),
            end: End::Finished,
        },
        Answer::Stream {
            pieces: vec![delta(&json!({"content": "fine"})), finish("stop")],
            end: End::Finished,
        },
    ]);
    let ran = ask(&server, &json!({}), json!({"prompt": "weather?", "tools": ["weather"]}));
    assert_eq!(ran.report.output["content"], "fine", "{:?}", ran.report.error);
    assert_eq!(server.requests().len(), 2, "nothing was asked twice");
    let results: Vec<&str> = ran.visible()[2..4].to_vec();
    assert_eq!(results, ["fine in Bern", "fine in Rome"]);
    assert_eq!(ran.report.tokens.spent.total, 20);
}

#[test]
fn data_after_the_done_line_and_a_leading_byte_order_mark_are_ignored() {
    let more = delta(&json!({"content": "more"}));
    let piece = format!(
        "\u{feff}{}data: [DONE]\n\n{}",
        delta(&json!({"content": "fine"})),
        more.repeat(3)
    );
    let server = Server::answering([Answer::Stream {
        pieces: vec![piece],
        end: End::Finished,
    }]);
    let ran = ask(&server, &json!({}), json!({"prompt": "hi"}));
    assert_eq!(ran.report.output["content"], "fine", "{:?}", ran.report.error);
}

#[test]
fn a_models_name_is_sent_as_the_user_wrote_it() {
    for provider in ["openai", "anthropic", "gemini", "ollama"] {
        for name in ["some-model-high", "some-model-max", "some-model-none"] {
            let server = Server::answering([]);
            let more = json!({"provider": provider, "model": name, "retry": {"maxAttempts": 1}});
            ask(&server, &more, json!({"prompt": "hi"}));
            let request = &server.requests()[0];
            let named = request.body["model"] == name || request.path.contains(&format!("/{name}:"));
            assert!(named, "{provider}: {} {}", request.path, request.body);
            let body = request.body.to_string();
            for word in ["effort", "thinking", "\"think\""] {
                assert!(!body.contains(word), "{provider} {name}: nobody asked for it: {body}");
            }
        }
    }
    let server = Server::answering([]);
    let more =
        json!({"model": "some-model-high", "parameters": {"reasoningEffort": "low"}, "retry": {"maxAttempts": 1}});
    ask(&server, &more, json!({"prompt": "hi"}));
    let body = &server.requests()[0].body;
    assert_eq!(
        (&body["model"], &body["reasoning_effort"]),
        (&json!("some-model-high"), &json!("low"))
    );
}
