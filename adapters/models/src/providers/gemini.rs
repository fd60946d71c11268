//! Gemini's generateContent.

use pirn_actors::ports::ToolSpec;
use pirn_conversation::model_call::{FailureKind, FinishReason};
use serde_json::{Value, json};

use super::failure::Failure;
use super::openai::merge;
use super::reply_builder::{CallPiece, RawUsage, ReplyBuilder};
use super::request::parameters::{Effort, Names, ToolChoice};
use super::request::provider_request::ProviderRequest;
use crate::formats::{FormatError, gemini};

const NAMES: Names = Names {
    temperature: "temperature",
    top_p: "topP",
    top_k: Some("topK"),
    seed: Some("seed"),
    stop: Some("stopSequences"),
};

pub(super) fn body(request: &ProviderRequest<'_>) -> Result<Value, FormatError> {
    let parameters = request.parameters;
    let mut body = Value::Object(gemini::write(request.messages, request.recall("gemini"))?);
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters});
        let functions: Value = request.tools.iter().map(tool).collect();
        body["tools"] = json!([{ "functionDeclarations": functions }]);
        if let Some(choice) = &parameters.tool_choice {
            let config = match choice {
                ToolChoice::Auto => json!({"mode": "AUTO"}),
                ToolChoice::None => json!({"mode": "NONE"}),
                ToolChoice::Required => json!({"mode": "ANY"}),
                ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
            };
            body["toolConfig"] = json!({ "functionCallingConfig": config });
        }
    }
    let mut config = json!({});
    parameters.put(&mut config, &NAMES);
    if let Some(most) = parameters.max_tokens {
        config["maxOutputTokens"] = most.into();
    }
    if let Some(thinking) = parameters.effort.and_then(|effort| thinking(effort, request.model)) {
        config["thinkingConfig"] = thinking;
    }
    if let Some(format) = request.format {
        config["responseMimeType"] = json!("application/json");
        if let Some(schema) = &format.schema {
            config["responseJsonSchema"] = schema.clone();
        }
    }
    if config.as_object().is_some_and(|config| !config.is_empty()) {
        body["generationConfig"] = config;
    }
    merge(&mut body, &parameters.rest);
    Ok(body)
}

/// Returns the thinking setting: newer models take a level, older ones a number of tokens.
fn thinking(effort: Effort, model: &str) -> Option<Value> {
    let takes_level = ["gemini-3", "gemma-4"].iter().any(|name| model.contains(name));
    if !takes_level {
        return Some(json!({ "thinkingBudget": effort.budget() }));
    }
    let level = match effort {
        Effort::None => return None,
        Effort::Minimal => "MINIMAL",
        Effort::Low => "LOW",
        Effort::Medium => "MEDIUM",
        Effort::High | Effort::XHigh | Effort::Max => "HIGH",
    };
    Some(json!({ "thinkingLevel": level }))
}

/// Reads a frame of a stream or a whole reply, which have one format.
pub(super) fn parse_chunk(frame: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
    if let Some(usage) = frame.get("usageMetadata") {
        let of = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        let reasoning = of("thoughtsTokenCount");
        reply.spent(RawUsage {
            input: of("promptTokenCount").saturating_add(of("toolUsePromptTokenCount")),
            cached_read: of("cachedContentTokenCount"),
            reports_cache: usage.get("cachedContentTokenCount").is_some_and(Value::is_u64),
            // Candidate tokens exclude thoughts.
            output: of("candidatesTokenCount").saturating_add(reasoning),
            reasoning,
            total: of("totalTokenCount"),
            ..RawUsage::default()
        });
    }
    if let Some(reason) = frame.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
        let message = format!("the provider blocked the request: {reason}");
        return Err(Failure::new(FailureKind::Rejected, message).with_finish(FinishReason::ContentFilter));
    }
    let Some(candidate) = frame.pointer("/candidates/0") else {
        return Ok(());
    };
    let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
    for part in parts.into_iter().flatten() {
        let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
        let signature = part.get("thoughtSignature").and_then(Value::as_str);
        if let Some(call) = part.get("functionCall") {
            let field = |name: &str| call.get(name).and_then(Value::as_str).unwrap_or_default();
            reply.call(&CallPiece {
                id: field("id"),
                name: field("name"),
                arguments: Some(call.get("args").unwrap_or(&json!({}))),
                signature,
                is_whole: true,
                ..CallPiece::default()
            });
        } else if part.get("thought").and_then(Value::as_bool) != Some(true) {
            reply.text(text);
        }
    }
    if let Some(reason) = candidate.get("finishReason").and_then(Value::as_str) {
        let finish = finish(reason);
        let message = candidate.get("finishMessage").and_then(Value::as_str);
        if finish == FinishReason::Malformed {
            let message = message.unwrap_or(reason);
            let message = format!("the model wrote an invalid tool call: {message}");
            return Err(Failure::malformed(message).with_finish(finish));
        }
        reply.finished(finish);
    }
    Ok(())
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "LANGUAGE"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => FinishReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" => FinishReason::Malformed,
        _ => FinishReason::Stop,
    }
}
