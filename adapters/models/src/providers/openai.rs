//! OpenAI's chat completions API and compatible servers: gateways, local servers, other providers.

use pirn_actors::ports::ToolSpec;
use pirn_conversation::model_call::{FailureKind, FinishReason};
use serde_json::{Value, json};

use super::failure::{Failure, of_body};
use super::parameters::{Names, ToolChoice};
use super::provider_request::ProviderRequest;
use super::reply_builder::{CallPiece, RawUsage, ReplyBuilder};
use super::schema::strict;
use crate::formats::{FormatError, openai};
use crate::structured::ResponseFormat;

const NAMES: Names = Names {
    temperature: "temperature",
    top_p: "top_p",
    top_k: Some("top_k"),
    seed: Some("seed"),
    stop: Some("stop"),
};

pub(super) fn body(request: &ProviderRequest<'_>) -> Result<Value, FormatError> {
    let parameters = request.parameters;
    let mut body = json!({"model": request.model, "stream": request.streams});
    if request.streams {
        body["stream_options"] = json!({"include_usage": true});
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| json!({"type": "function", "function": function(tool)});
        body["tools"] = request.tools.iter().map(tool).collect();
        if let Some(choice) = &parameters.tool_choice {
            body["tool_choice"] = tool_choice(choice, |name| json!({"type": "function", "function": {"name": name}}));
        }
    }
    body["messages"] = openai::write(request.messages, request.recall("openai"))?.into();
    parameters.put(&mut body, &NAMES);
    if let Some(most) = parameters.max_tokens {
        body[max_tokens(request.model)] = most.into();
    }
    if let Some(effort) = parameters.effort {
        body["reasoning_effort"] = effort.word().into();
    }
    if let Some(format) = request.format {
        body["response_format"] = match json_schema(format) {
            Some(schema) => json!({"type": "json_schema", "json_schema": schema}),
            None => json!({"type": "json_object"}),
        };
    }
    if let Some(cache) = request.cache {
        body["prompt_cache_key"] = json!(cache.key);
    }
    merge(&mut body, &parameters.rest);
    Ok(body)
}

pub(super) fn function(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
}

pub(super) fn tool_choice(choice: &ToolChoice, one: impl Fn(&str) -> Value) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => one(name),
    }
}

/// Returns `{name, strict, schema}`, or `None` if any JSON is valid.
pub(super) fn json_schema(format: &ResponseFormat) -> Option<Value> {
    let schema = format.schema.as_ref()?;
    let strict = strict(schema);
    let is_strict = strict.is_some();
    Some(json!({"name": format.name, "strict": is_strict, "schema": strict.as_ref().unwrap_or(schema)}))
}

/// Returns the name of the parameter: newer models of OpenAI reject the old name.
fn max_tokens(model: &str) -> &'static str {
    let is_new = ["gpt-5", "gpt-6", "o1", "o3", "o4"]
        .iter()
        .any(|name| model.starts_with(name));
    if is_new { "max_completion_tokens" } else { "max_tokens" }
}

/// Merges provider-specific parameters into the request; objects are merged field by field.
pub(super) fn merge(body: &mut Value, rest: &serde_json::Map<String, Value>) {
    for (name, value) in rest {
        match (&mut body[name], value) {
            (known @ Value::Object(_), Value::Object(more)) => merge(known, more),
            (known, value) => *known = value.clone(),
        }
    }
}

/// `[DONE]`.
pub(super) fn done(reply: &mut ReplyBuilder) {
    reply.finished(FinishReason::Stop);
    reply.over();
}

pub(super) fn parse_chunk(frame: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    // Gateways may report usage in a chunk that also has a choice.
    usage(frame, reply);
    choice(frame, "delta", reply)
}

pub(super) fn parse_response(body: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    usage(body, reply);
    if body.pointer("/choices/0/message").is_none() {
        return Err(Failure::malformed(
            "the reply does not follow the protocol: it has no message",
        ));
    }
    choice(body, "message", reply)
}

/// Records usage from the protocol's fields or from those of its dialects.
fn usage(frame: &Value, reply: &mut ReplyBuilder) {
    for place in ["/usage", "/x_groq/usage"] {
        let Some(usage) = frame.pointer(place) else { continue };
        let of = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let most = |pointers: &[&str]| pointers.iter().map(|pointer| of(pointer)).max().unwrap_or(0);
        let (input, output, total) = (of("/prompt_tokens"), of("/completion_tokens"), of("/total_tokens"));
        let read = [
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cache_read_input_tokens",
            "/cached_tokens",
        ];
        let reasoning = of("/completion_tokens_details/reasoning_tokens");
        // Some servers exclude reasoning from the output count: then the total is at least the sum of all three.
        let is_beside = total >= input.saturating_add(output).saturating_add(reasoning);
        reply.spent(RawUsage {
            input,
            cached_read: most(&read),
            reports_cache: read
                .into_iter()
                .any(|pointer| usage.pointer(pointer).is_some_and(Value::is_u64)),
            cached_write: most(&[
                "/prompt_tokens_details/cache_write_tokens",
                "/cache_creation_input_tokens",
            ]),
            output: if is_beside {
                output.saturating_add(reasoning)
            } else {
                output
            },
            reasoning,
            total,
        });
    }
}

fn choice(frame: &Value, part: &str, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    let Some(choice) = frame.pointer("/choices/0") else {
        return Ok(());
    };
    if choice.get("error").is_some_and(Value::is_object) {
        return Err(of_body(choice));
    }
    let delta = choice.get(part).unwrap_or(&Value::Null);
    let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
    let reasoning = ["reasoning_content", "reasoning"].map(text);
    reply.reasoning(
        0,
        reasoning.into_iter().find(|text| !text.is_empty()).unwrap_or_default(),
        "",
    );
    for detail in delta
        .get("reasoning_details")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        // Reasoning in other formats is also in `reasoning`.
        if detail.get("type").and_then(Value::as_str) == Some("reasoning.encrypted") {
            reply.reasoning_block(detail);
        }
    }
    match delta.get("content") {
        Some(Value::String(text)) => reply.text(text),
        Some(Value::Array(parts)) => parts.iter().for_each(|part| content_part(part, reply)),
        _ => {}
    }
    let refusal = text("refusal");
    if !refusal.is_empty() {
        reply.text(refusal);
        reply.refused();
    }
    let calls = delta.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        let function = call.get("function").unwrap_or(&Value::Null);
        let text = |value: &'_ Value, name: &str| -> String {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let arguments = function.get("arguments");
        reply.call(&CallPiece {
            place: call.get("index").and_then(Value::as_u64),
            id: &text(call, "id"),
            name: &text(function, "name"),
            written: arguments.and_then(Value::as_str).unwrap_or_default(),
            arguments: arguments.filter(|arguments| arguments.is_object()),
            // Sent by Google's endpoint for this protocol.
            signature: call
                .pointer("/extra_content/google/thought_signature")
                .and_then(Value::as_str),
        });
    }
    // Some servers send "" until there is a reason.
    let reason = choice.get("finish_reason").and_then(Value::as_str);
    match reason.filter(|reason| !reason.is_empty()) {
        Some("error") => Err(Failure::new(
            FailureKind::Provider,
            "the provider reported that the reply failed",
        )),
        Some(reason) => {
            reply.finished(finish(reason));
            Ok(())
        }
        None => Ok(()),
    }
}

/// Adds a piece of list content, which Mistral's reasoning models send.
fn content_part(part: &Value, reply: &mut ReplyBuilder) {
    match part.get("type").and_then(Value::as_str) {
        Some("thinking") => {
            let inner = part.get("thinking");
            let texts = inner.and_then(Value::as_array).into_iter().flatten();
            let texts = texts.filter_map(|text| text.get("text")?.as_str());
            let text = inner
                .and_then(Value::as_str)
                .map_or_else(|| texts.collect::<String>(), str::to_owned);
            reply.reasoning(0, &text, "");
        }
        _ => reply.text(part.get("text").and_then(Value::as_str).unwrap_or_default()),
    }
}

/// Maps finish reasons of the protocol and of its dialects.
fn finish(reason: &str) -> FinishReason {
    let reason = reason.to_ascii_lowercase();
    if reason.contains("malformed_function_call") {
        return FinishReason::Malformed;
    }
    match reason.split(':').next().unwrap_or_default() {
        "length" | "max_tokens" | "model_length" => FinishReason::Length,
        "content_filter" | "safety" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        "tool_calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "pause" | "pause_turn" => FinishReason::Pause,
        _ => FinishReason::Stop,
    }
}
