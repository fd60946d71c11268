//! Ollama's native chat API.

use std::sync::Arc;

use pirn_actors::ports::ToolSpec;
use pirn_conversation::model_call::{FailureKind, FinishReason};
use pirn_definition::message::{Message, Part, Role};
use serde_json::{Value, json};

use super::failure::Failure;
use super::openai::{function, merge};
use super::reply_builder::{CallPiece, RawUsage, ReplyBuilder};
use super::request::parameters::{Effort, Names, Parameters};
use super::request::provider_request::ProviderRequest;
use crate::formats::{FormatError, arguments, data_of};

const NAMES: Names = Names {
    temperature: "temperature",
    top_p: "top_p",
    top_k: Some("top_k"),
    seed: Some("seed"),
    stop: Some("stop"),
};

/// Model parameters that the request contains in `options`.
const OPTIONS: [&str; 20] = [
    "num_ctx",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "penalize_newline",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "num_keep",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "use_mmap",
    "low_vram",
    "numa",
    "num_predict",
];

/// Top-level parameters of a request.
const FIELDS: [&str; 4] = ["keep_alive", "think", "truncate", "shift"];

pub(super) fn body(request: &ProviderRequest<'_>) -> Result<Value, FormatError> {
    let parameters = request.parameters;
    let mut body = json!({"model": request.model, "stream": request.streams});
    // The protocol has no option that forbids tools, so leave them out.
    if !request.tools.is_empty() && !parameters.forbids_tools() {
        let tool = |tool: &ToolSpec| json!({"type": "function", "function": function(tool)});
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["messages"] = messages(request.messages)?.into();
    let mut options = json!({});
    parameters.put(&mut options, &NAMES);
    if let Some(most) = parameters.max_tokens {
        options["num_predict"] = most.into();
    }
    if let Some(effort) = parameters.effort {
        // Only gpt-oss has levels: other models refuse them.
        let has_levels = request.model.contains("gpt-oss");
        body["think"] = match effort {
            Effort::None => json!(false),
            _ if !has_levels => json!(true),
            Effort::Minimal | Effort::Low => json!("low"),
            Effort::Medium => json!("medium"),
            Effort::High | Effort::XHigh | Effort::Max => json!("high"),
        };
    }
    if let Some(format) = request.format {
        body["format"] = format.schema.clone().unwrap_or_else(|| json!("json"));
    }
    for (name, value) in &parameters.rest {
        let name = snake(name);
        if name == "options"
            && let Value::Object(more) = value
        {
            merge(&mut options, more);
        } else if FIELDS.contains(&name.as_str()) {
            body[name] = value.clone();
        } else {
            options[name] = value.clone();
        }
    }
    if options.as_object().is_some_and(|options| !options.is_empty()) {
        body["options"] = options;
    }
    Ok(body)
}

/// Rejects unknown parameters, because Ollama ignores them silently.
pub(super) fn check(parameters: &Parameters) -> Result<(), (String, String)> {
    for name in parameters.rest.keys() {
        let plain = snake(name);
        let is_known = plain == "options" || OPTIONS.contains(&plain.as_str()) || FIELDS.contains(&plain.as_str());
        if !is_known {
            let near = pirn_definition::definition::nearest(&plain, OPTIONS.iter().chain(&FIELDS).copied());
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err((name.clone(), format!("is not an option of ollama{meant}")));
        }
    }
    Ok(())
}

/// Converts `numCtx` to `num_ctx`.
fn snake(name: &str) -> String {
    name.chars().fold(String::new(), |mut plain, c| {
        if c.is_ascii_uppercase() {
            plain.push('_');
        }
        plain.push(c.to_ascii_lowercase());
        plain
    })
}

fn messages(messages: &[Arc<Message>]) -> Result<Vec<Value>, FormatError> {
    let mut written = Vec::with_capacity(messages.len());
    let mut names: Vec<(&str, &str)> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let mut one = json!({"role": message.role.as_str(), "content": message.content});
        match message.role {
            Role::Assistant if message.is_blank() && message.tool_calls.is_empty() => continue,
            Role::Assistant if !message.tool_calls.is_empty() => {
                names = message
                    .tool_calls
                    .iter()
                    .map(|call| (call.id.as_str(), call.name.as_str()))
                    .collect();
                let calls = message.tool_calls.iter();
                one["tool_calls"] = calls
                    .map(|call| json!({"function": {"name": call.name, "arguments": arguments(&call.arguments)}}))
                    .collect();
            }
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                if let Some((_, name)) = names.iter().find(|(known, _)| *known == id) {
                    one["tool_name"] = json!(name);
                }
            }
            Role::System | Role::User | Role::Assistant => {}
        }
        let mut images = Vec::new();
        for part in message.parts.iter() {
            match part {
                Part::Text { .. } => {}
                Part::Image { url, .. } if data_of(url).is_some() => images.extend(data_of(url).map(|(_, data)| data)),
                Part::Image { url, .. } | Part::File { url, .. } => {
                    let message = format!("ollama accepts images as `data:` URLs, and no files: {url}");
                    return Err(FormatError::new(format!("/{place}/content"), message));
                }
            }
        }
        if !images.is_empty() {
            one["images"] = json!(images);
        }
        written.push(one);
    }
    Ok(written)
}

/// Reads a line of a stream or a whole reply, which have one format.
pub(super) fn parse_chunk(line: &Value, reply: &mut ReplyBuilder) {
    let message = line.get("message").unwrap_or(&Value::Null);
    let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    reply.text(text("content"));
    let calls = message.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        let field = |pointer: &str| call.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let arguments = call.pointer("/function/arguments");
        reply.call(&CallPiece {
            id: field("/id"),
            name: field("/function/name"),
            written: arguments.and_then(Value::as_str).unwrap_or_default(),
            arguments: arguments.filter(|arguments| !arguments.is_string()),
            is_whole: true,
            ..CallPiece::default()
        });
    }
    let count = |name: &str| line.get(name).and_then(Value::as_u64).unwrap_or(0);
    reply.spent(RawUsage {
        input: count("prompt_eval_count"),
        output: count("eval_count"),
        ..RawUsage::default()
    });
    if line.get("done").and_then(Value::as_bool) == Some(true) {
        reply.finished(match line.get("done_reason").and_then(Value::as_str) {
            Some("length") => FinishReason::Length,
            _ => FinishReason::Stop,
        });
        reply.over();
    }
}

/// Classifies an error in a stream, caused by the model or its memory: a retry would fail again.
pub(super) fn said_error(failure: Failure) -> Failure {
    if failure.cause.kind == FailureKind::Provider {
        failure.of_kind(FailureKind::Rejected)
    } else {
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gpt_oss_gets_a_level_of_thinking() {
        for (model, effort, expected) in [
            ("gpt-oss:20b", Effort::High, json!("high")),
            ("qwen3:8b", Effort::High, json!(true)),
            ("qwen3:8b", Effort::None, json!(false)),
        ] {
            let parameters = Parameters {
                effort: Some(effort),
                ..Parameters::default()
            };
            let body = body(&ProviderRequest::of_model(model, &parameters, &[])).expect("a body");
            assert_eq!(body["think"], expected, "{model}");
        }
    }
}
