//! Parts of a request that profiles and messages define: headers, addresses, parameters, images.

use pirn::{Message, Part, Role};
use pirn_tests::wire::{Answer, Server};
use pirn_tests::world::run_in;
use serde_json::{Value, json};

use crate::models::{ask, asking, engine, profile};

/// The body of the one request that is made.
fn sent(more: &Value, node: Value) -> Value {
    let server = Server::answering([]);
    let mut more = more.clone();
    more["retry"] = json!({"maxAttempts": 1});
    ask(&server, &more, node);
    server.requests()[0].body.clone()
}

#[test]
fn headers_and_query_reach_the_server() {
    let server = Server::answering([Answer::saying(&["hi"])]);
    let more = json!({
        "headers": {"X-Tenant": "garden"}, "headersEnv": {"X-Home": "at ${PATH}"},
        "query": {"api-version": "2024-10-21", "deployment": "a b"},
    });
    let ran = ask(&server, &more, json!({"prompt": "hi"}));
    assert_eq!(ran.report.output["content"], "hi", "{:?}", ran.report.error);
    let request = &server.requests()[0];
    assert_eq!(
        request.path,
        "/v1/chat/completions?api-version=2024-10-21&deployment=a+b"
    );
    assert_eq!(request.headers["x-tenant"], "garden");
    assert!(request.headers["x-home"].starts_with("at /"), "{:?}", request.headers);
}

#[test]
fn geminis_stream_parameter_is_added_to_the_profiles_query() {
    let server = Server::answering([]);
    let more = json!({"provider": "gemini", "query": {"tenant": "g"}, "retry": {"maxAttempts": 1}});
    ask(&server, &more, json!({"prompt": "hi"}));
    assert_eq!(
        server.requests()[0].path,
        "/v1/models/some-model:streamGenerateContent?tenant=g&alt=sse"
    );
}

#[test]
fn parameters_of_ollama_are_sent_in_its_options() {
    let parameters =
        json!({"numCtx": 8192, "topK": 20, "min_p": 0.1, "keep_alive": "10m", "maxTokens": 7, "temperature": 0.5});
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let body = sent(
        &json!({"provider": "ollama", "parameters": parameters}),
        json!({"prompt": "hi", "responseFormat": schema}),
    );
    assert_eq!(body["keep_alive"], "10m");
    assert_eq!(
        body["options"],
        json!({"temperature": 0.5, "top_k": 20, "num_ctx": 8192, "min_p": 0.1, "num_predict": 7})
    );
    assert_eq!(body["format"], schema, "it takes a schema");
}

#[test]
fn optional_properties_remain_optional_in_a_strict_schema() {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]});
    let server = Server::answering([Answer::saying(&["{\"a\": \"x\", \"b\": null}"])]);
    let ran = ask(&server, &json!({}), json!({"prompt": "hi", "responseFormat": schema}));
    assert_eq!(ran.report.output["content"], "{\"a\":\"x\"}", "{:?}", ran.report.error);
    let sent = &server.requests()[0].body["response_format"]["json_schema"];
    assert_eq!(sent["strict"], true);
    assert_eq!(
        sent["schema"]["properties"]["b"],
        json!({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    );

    let open = json!({"type": "object"});
    let body = sent_format(&open);
    assert_eq!((&body["strict"], &body["schema"]), (&json!(false), &open));
}

#[test]
fn a_format_that_is_no_object_is_sent_in_one_and_its_value_returned() {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let chat = || Answer::saying(&["{\"value\":", " [1, 2]}"]);
    let text = json!({"type": "output_text", "text": "{\"value\": [1, 2]}"});
    let body = json!({"output": [{"type": "message", "content": [text]}], "status": "completed"});
    let responses = Answer::Whole {
        status: 200,
        headers: Vec::new(),
        body: body.to_string(),
    };
    for (answer, more, place) in [
        (chat(), json!({}), "/response_format/json_schema"),
        (responses, json!({"api": "responses", "stream": false}), "/text/format"),
    ] {
        let server = Server::answering([answer]);
        let ran = ask(&server, &more, json!({"prompt": "hi", "responseFormat": list}));
        assert_eq!(ran.report.output["content"], "[1, 2]", "{:?}", ran.report.error);
        let sent = server.requests().remove(0).body;
        let sent = sent.pointer(place).expect("a format");
        assert_eq!(
            (&sent["strict"], &sent["schema"]["type"]),
            (&json!(true), &json!("object"))
        );
        assert_eq!(sent["schema"]["properties"], json!({"value": list}));
    }
    // A server that does not enforce the format may send the value itself.
    let server = Server::answering([Answer::saying(&["[3]"])]);
    let ran = ask(&server, &json!({}), json!({"prompt": "hi", "responseFormat": list}));
    assert_eq!(ran.report.output["content"], "[3]", "{:?}", ran.report.error);
}

#[test]
fn a_parameter_of_the_node_overrides_the_profiles_in_any_spelling() {
    for (of_profile, of_node, sent_as) in [
        ("max_tokens", "maxTokens", "max_tokens"),
        ("maxTokens", "max_tokens", "max_tokens"),
        ("stop_sequences", "stop", "stop"),
        ("top_k", "topK", "top_k"),
    ] {
        let value = |n: u64| {
            if sent_as == "stop" {
                json!([n.to_string()])
            } else {
                json!(n)
            }
        };
        let body = sent(
            &json!({"parameters": {of_profile: value(9)}}),
            json!({"prompt": "hi", "parameters": {of_node: value(7)}}),
        );
        assert_eq!(body[sent_as], value(7), "{of_node} over {of_profile}");
    }
}

fn sent_format(schema: &Value) -> Value {
    let body = sent(&json!({}), json!({"prompt": "hi", "responseFormat": schema}));
    body["response_format"]["json_schema"].clone()
}

#[test]
fn a_thinking_budget_as_large_as_the_token_limit_is_refused_before_the_request() {
    let parameters = json!({"thinking": {"type": "enabled", "budget_tokens": 4000}, "maxTokens": 4000});
    let server = Server::answering([]);
    let ran = ask(
        &server,
        &json!({"provider": "anthropic"}),
        json!({"prompt": "hi", "parameters": parameters}),
    );
    let error = format!("{:?}", ran.report.error);
    assert!(error.contains("must leave room for the reply"), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn empty_text_of_a_message_with_tool_calls_is_null() {
    let server = Server::answering([
        Answer::calling(&[("weather", r#"{"city": "Bern"}"#)]),
        Answer::saying(&["fine"]),
    ]);
    ask(&server, &json!({}), json!({"prompt": "go", "tools": ["weather"]}));
    let asks = &server.requests()[1].body["messages"][1];
    assert_eq!((&asks["role"], &asks["content"]), (&json!("assistant"), &Value::Null));
}

#[test]
fn images_and_files_are_sent_in_each_providers_format() {
    let picture = "data:image/png;base64,iVBORw0=";
    let said = Message::of_parts(
        Role::User,
        vec![
            Part::text("look {{not a template}}"),
            Part::image(picture),
            Part::file("data:application/pdf;base64,JVBE"),
        ],
    );
    for (more, expected) in [
        (
            json!({}),
            json!([
                {"type": "text", "text": "look {{not a template}}"},
                {"type": "image_url", "image_url": {"url": picture}},
                {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,JVBE"}},
            ]),
        ),
        (
            json!({"provider": "anthropic"}),
            json!([
                {"type": "text", "text": "look {{not a template}}"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
            ]),
        ),
        (
            json!({"provider": "gemini"}),
            json!([
                {"text": "look {{not a template}}"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}},
                {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}},
            ]),
        ),
        (
            json!({"api": "responses"}),
            json!([
                {"type": "input_text", "text": "look {{not a template}}"},
                {"type": "input_image", "image_url": picture, "detail": "auto"},
                {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,JVBE"},
            ]),
        ),
    ] {
        let server = Server::answering([]);
        let mut fields = more.clone();
        fields["retry"] = json!({"maxAttempts": 1});
        run_in(
            engine([profile(&server, &fields)]),
            &asking(json!({})),
            Value::Null,
            vec![said.clone()],
        );
        let body = &server.requests()[0].body;
        let content = ["/messages/0/content", "/contents/0/parts", "/input/0/content"]
            .into_iter()
            .find_map(|at| body.pointer(at));
        assert_eq!(content, Some(&expected), "{more}: {body:#}");
    }
    let server = Server::answering([]);
    let ran = run_in(
        engine([profile(&server, &json!({"provider": "ollama"}))]),
        &asking(json!({})),
        Value::Null,
        vec![said],
    );
    let error = format!("{:?}", ran.report.error);
    assert!(error.contains("and no files"), "{error}");
    assert_eq!(server.requests().len(), 0);
}
