//! OpenAI's Responses API without stored state: every request contains the whole conversation, and reasoning is sent and received
//! in encrypted form.

use pirn_actors::ports::ToolSpec;
use pirn_conversation::model_call::{FailureKind, FinishReason};
use serde_json::{Value, json};

use super::failure::{Failure, of_body};
use super::openai::{function, json_schema, merge, reasons, tool_choice};
use super::reply_builder::{CallPiece, RawUsage, ReplyBuilder};
use super::request::parameters::Names;
use super::request::provider_request::ProviderRequest;
use crate::formats::responses;

const NAMES: Names = Names {
    temperature: "temperature",
    top_p: "top_p",
    top_k: None,
    seed: None,
    stop: None,
};

pub(super) fn body(request: &ProviderRequest<'_>) -> Value {
    let parameters = request.parameters;
    let mut body = json!({
        "model": request.model, "stream": request.streams, "store": false,
        "input": responses::write(request.messages, request.recall("openai")),
    });
    // Other models refuse it.
    if parameters.effort.is_some() || reasons(request.model) {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| {
            let mut tool = function(tool);
            tool["type"] = json!("function");
            tool["strict"] = json!(false);
            tool
        };
        body["tools"] = request.tools.iter().map(tool).collect();
        if let Some(choice) = &parameters.tool_choice {
            body["tool_choice"] = tool_choice(choice, |name| json!({"type": "function", "name": name}));
        }
    }
    parameters.put(&mut body, &NAMES);
    if let Some(most) = parameters.max_tokens {
        body["max_output_tokens"] = most.into();
    }
    if let Some(effort) = parameters.effort {
        body["reasoning"] = json!({ "effort": effort.word() });
    }
    if let Some(format) = request.format {
        let format = match json_schema(format) {
            Some(mut schema) => {
                schema["type"] = json!("json_schema");
                schema
            }
            None => json!({"type": "json_object"}),
        };
        body["text"] = json!({ "format": format });
    }
    if let Some(cache) = request.cache {
        body["prompt_cache_key"] = json!(cache.key);
    }
    merge(&mut body, &parameters.rest);
    body
}

pub(super) fn parse_chunk(event: Option<&str>, frame: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    let kind = frame.get("type").and_then(Value::as_str).or(event).unwrap_or_default();
    match kind {
        "response.output_text.delta" | "response.refusal.delta" => {
            reply.text(frame.get("delta").and_then(Value::as_str).unwrap_or_default());
        }
        // The text has already arrived in deltas.
        "response.output_item.done" => item(frame.get("item").unwrap_or(&Value::Null), false, reply),
        "response.completed" | "response.incomplete" | "response.failed" => {
            ended(frame.get("response").unwrap_or(&Value::Null), reply)?;
            reply.over();
        }
        "error" => return Err(of_body(frame)),
        _ => {}
    }
    Ok(())
}

pub(super) fn parse_response(body: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    let items = body.get("output").and_then(Value::as_array);
    let items = items.ok_or_else(|| Failure::malformed("the reply does not follow the protocol: it has no output"))?;
    for one in items {
        item(one, true, reply);
    }
    ended(body, reply)
}

fn item(item: &Value, with_text: bool, reply: &mut ReplyBuilder) {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    match item.get("type").and_then(Value::as_str) {
        Some("message") => {
            let parts = item.get("content").and_then(Value::as_array);
            for part in parts.into_iter().flatten() {
                let is_refusal = part.get("type").and_then(Value::as_str) == Some("refusal");
                let name = if is_refusal { "refusal" } else { "text" };
                if with_text {
                    reply.text(&text(part, name));
                }
                if is_refusal {
                    reply.refused();
                }
            }
        }
        Some("function_call") => reply.call(&CallPiece {
            id: &text(item, "call_id"),
            name: &text(item, "name"),
            written: &text(item, "arguments"),
            is_whole: true,
            ..CallPiece::default()
        }),
        // With neither, only its id remains, which the provider does not know without stored state.
        Some("reasoning") if item["encrypted_content"].is_string() || item["content"].is_array() => {
            reply.reasoning_block(item);
        }
        _ => {}
    }
}

fn ended(response: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    let of = |pointer: &str| response.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    reply.spent(RawUsage {
        input: of("/usage/input_tokens"),
        cached_read: of("/usage/input_tokens_details/cached_tokens"),
        cached_write: of("/usage/input_tokens_details/cache_write_tokens"),
        reports_cache: response.pointer("/usage/input_tokens_details/cached_tokens").is_some(),
        output: of("/usage/output_tokens"),
        reasoning: of("/usage/output_tokens_details/reasoning_tokens"),
        total: of("/usage/total_tokens"),
    });
    let status = response.get("status").and_then(Value::as_str).unwrap_or("completed");
    let why = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
    match (status, why) {
        ("failed", _) => return Err(of_body(response)),
        ("cancelled", _) => return Err(Failure::new(FailureKind::Provider, "the provider cancelled the reply")),
        ("incomplete", Some("content_filter")) => reply.finished(FinishReason::ContentFilter),
        ("incomplete", _) => reply.finished(FinishReason::Length),
        _ => reply.finished(FinishReason::Stop),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::key::Key;
    use crate::providers::request::parameters::Parameters;

    #[test]
    fn encrypted_reasoning_is_requested_from_reasoning_models() {
        let included = |model: &str, parameters: Value| {
            let parameters = Parameters::read(parameters.as_object().expect("parameters")).expect("valid ones");
            body(&ProviderRequest::of_model(model, &parameters, &[]))
                .get("include")
                .cloned()
        };
        let encrypted = || Some(json!(["reasoning.encrypted_content"]));
        for model in ["o1", "o4-mini", "gpt-5", "gpt-5.2-mini", "gpt-6", "openai/gpt-5"] {
            assert_eq!(included(model, json!({})), encrypted(), "{model}");
        }
        for model in ["gpt-4o", "gpt-4.1-mini", "gpt-35-turbo", "gpt-5-chat-latest", "olmo"] {
            assert_eq!(included(model, json!({})), None, "{model}");
        }
        assert_eq!(included("a-deployment", json!({"reasoningEffort": "low"})), encrypted());
        assert_eq!(included("gpt-5", json!({"include": []})), Some(json!([])));
    }

    #[test]
    fn reasoning_without_content_is_not_sent_back() {
        for (item, is_kept) in [
            (json!({"type": "reasoning", "id": "rs_1", "summary": []}), false),
            (
                json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "e"}),
                true,
            ),
        ] {
            let call = json!({"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"});
            let mut reply = ReplyBuilder::default();
            parse_response(&json!({"output": [item, call]}), &mut reply).expect("a body");
            let reply = reply.reply("openai", "m", &Key::none()).expect("a reply");
            assert_eq!(reply.metadata.is_some(), is_kept, "{item}");
        }
    }
}
