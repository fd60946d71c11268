//! OpenAI's chat completions API and compatible servers: gateways, local servers, other providers.

use pirn_actors::ports::ToolSpec;
use pirn_conversation::model_call::{FailureKind, FinishReason};
use pirn_core::thread::ModelReply;
use serde_json::{Value, json};

use super::failure::{Failure, of_body};
use super::reply_builder::{CallPiece, RawUsage, ReplyBuilder};
use super::request::parameters::{Names, ToolChoice};
use super::request::provider_request::ProviderRequest;
use super::request::schema::{in_object, out_of_object, strict};
use crate::formats::{FormatError, openai};
use crate::structured::{ResponseFormat, unfenced};

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
    let mut parameters = tool.parameters.clone();
    // OpenAI refuses an object schema without this field.
    if parameters["type"] == "object" && parameters.get("properties").is_none() {
        parameters["properties"] = json!({});
    }
    json!({"name": tool.name, "description": tool.description, "parameters": parameters})
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
    let written = format.schema.as_ref()?;
    let wrapped = in_object(written);
    let schema = wrapped.as_ref().unwrap_or(written);
    let strict = strict(schema);
    let is_strict = strict.is_some();
    Some(json!({"name": format.name, "strict": is_strict, "schema": strict.as_ref().unwrap_or(schema)}))
}

/// Removes the object around a value whose schema is not one of an object.
pub(super) fn unwrap(format: Option<&ResponseFormat>, reply: &mut ModelReply) {
    let is_wrapped =
        format.is_some_and(|format| format.schema.as_ref().is_some_and(|schema| in_object(schema).is_some()));
    // A server without strict schemas may reply with the value itself.
    if let Some(value) = out_of_object(unfenced(&reply.content)).filter(|_| is_wrapped && reply.tool_calls.is_empty()) {
        reply.content = value.to_owned();
    }
}

/// Returns the name of the parameter: newer models of OpenAI reject the old name.
fn max_tokens(model: &str) -> &'static str {
    if is_new(model) {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

/// Returns whether the model is of OpenAI's o series, or GPT-5 or later.
fn is_new(model: &str) -> bool {
    // One digit: a deployment of GPT-3.5 may be named `gpt-35-turbo`.
    let number = |rest: &str| -> Option<u8> { rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok() };
    model.strip_prefix('o').and_then(number).is_some()
        || model
            .strip_prefix("gpt-")
            .and_then(number)
            .is_some_and(|version| (5..10).contains(&version))
}

/// Returns whether the model is one of OpenAI's reasoning models.
pub(super) fn reasons(model: &str) -> bool {
    // A gateway's name for the model starts with that of the company.
    let model = model.rsplit('/').next().unwrap_or(model);
    is_new(model) && !model.starts_with("gpt-5-chat")
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
    // Reasoning is sent back in the field in which it arrived. Servers that send it as `reasoning` or as parts of the content do not
    // accept it back, or send `reasoning_details` as well.
    reply.reasoning(0, text("reasoning_content"), "");
    for detail in delta
        .get("reasoning_details")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if part == "delta" {
            reply.reasoning_detail(detail);
        } else {
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
            is_whole: part == "message",
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

/// Adds a piece of list content, which Mistral's reasoning models send. Their thinking parts have no `text`.
fn content_part(part: &Value, reply: &mut ReplyBuilder) {
    reply.text(part.get("text").and_then(Value::as_str).unwrap_or_default());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pirn_definition::message::{Message, Role};

    use super::*;
    use crate::formats::reasoning::for_model;
    use crate::providers::key::Key;
    use crate::providers::request::parameters::Parameters;

    /// Returns the fields of the message in which a reply with these messages or deltas is sent back.
    fn sent_back(part: &str, pieces: &[Value]) -> Value {
        let mut builder = ReplyBuilder::default();
        for piece in pieces {
            choice(&json!({"choices": [{ part: piece }]}), part, &mut builder).expect("a reply");
        }
        builder.call(&CallPiece {
            id: "c",
            name: "t",
            is_whole: true,
            ..CallPiece::default()
        });
        builder.finished(FinishReason::ToolCalls);
        let reply = builder.reply("openai", "m", &Key::none()).expect("a reply");
        let message = Arc::new(Message {
            tool_calls: reply.tool_calls,
            metadata: reply.metadata,
            ..Message::new(Role::Assistant, reply.content)
        });
        let written = openai::write(&[message], |message| for_model(message, "openai", "m")).expect("a request");
        let mut written = written[0].clone();
        let fields = written.as_object_mut().expect("a message");
        fields.retain(|name, _| name.starts_with("reasoning"));
        written
    }

    #[test]
    fn reasoning_is_sent_back_only_in_the_field_in_which_it_arrived() {
        let signed = json!({"type": "reasoning.text", "text": "look", "signature": "s", "index": 0});
        let sealed = json!({"type": "reasoning.encrypted", "data": "d", "index": 0});
        let thinking = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "look"}]}]);
        for (message, expected) in [
            (
                json!({"reasoning_content": "look"}),
                json!({"reasoning_content": "look"}),
            ),
            (json!({"reasoning": "look"}), json!({})),
            (json!({ "content": thinking }), json!({})),
            (
                json!({"reasoning": "look", "reasoning_details": [signed, sealed]}),
                json!({"reasoning_details": [signed, sealed]}),
            ),
        ] {
            assert_eq!(
                sent_back("message", std::slice::from_ref(&message)),
                expected,
                "{message}"
            );
        }
        let pieces = [
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "lo", "signature": null, "index": 0}]}),
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "ok", "index": 0}]}),
            json!({"reasoning_details": [{"type": "reasoning.text", "signature": "s", "index": 0}]}),
            json!({"reasoning_details": [sealed]}),
            json!({"reasoning_details": [sealed]}),
        ];
        assert_eq!(
            sent_back("delta", &pieces),
            json!({"reasoning_details": [signed, sealed, sealed]})
        );
    }

    #[test]
    fn an_object_schema_of_a_tool_has_properties() {
        let parameters = Parameters::default();
        for (schema, expected) in [
            (json!({"type": "object"}), json!({"type": "object", "properties": {}})),
            (
                json!({"type": "object", "properties": {"a": {}}}),
                json!({"type": "object", "properties": {"a": {}}}),
            ),
        ] {
            let tool = ToolSpec {
                name: "t".to_owned(),
                description: String::new(),
                parameters: schema,
            };
            let tools = [tool];
            let request = ProviderRequest::of_model("m", &parameters, &tools);
            let chat = body(&request).expect("a body");
            assert_eq!(chat["tools"][0]["function"]["parameters"], expected);
            let responses = crate::providers::responses::body(&request);
            assert_eq!(responses["tools"][0]["parameters"], expected);
        }
    }
}
