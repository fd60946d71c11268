//! A node's parameters as the provider's: the common ones by their usual names, the rest passed on as they are.

use genai::chat::{ChatOptions, ChatResponseFormat, JsonSpec, ReasoningEffort, ToolChoice};
use pirn_core::error::RunError;
use pirn_core::model_call::{FailureKind, ModelFailure};
use serde_json::{Map, Value};

use super::super::structured::ResponseFormat;
use super::protocol::Protocol;

/// Reads parameters (`temperature`, `maxTokens`, `topP`, `stop`, `seed`, `reasoningEffort`, `toolChoice`; in either
/// `camelCase` or `snake_case`) and the response format.
///
/// # Errors
/// `MODEL_ERROR` that names the parameter: of the wrong kind, or unknown where the protocol can not pass it on.
pub(super) fn options(
    protocol: Protocol,
    parameters: &Map<String, Value>,
    format: Option<&ResponseFormat>,
) -> Result<ChatOptions, RunError> {
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        .with_capture_content(false)
        .with_capture_tool_calls(true)
        .with_capture_reasoning_content(protocol.keeps_reasoning());
    let mut rest = Map::new();
    for (name, value) in parameters {
        match name.as_str() {
            "temperature" => options.temperature = Some(number(name, value)?),
            "topP" | "top_p" => options.top_p = Some(number(name, value)?),
            "maxTokens" | "max_tokens" => {
                let most = whole(name, value)?;
                options.max_tokens = Some(u32::try_from(most).unwrap_or(u32::MAX));
            }
            "seed" => options.seed = Some(whole(name, value)?),
            "stop" | "stopSequences" | "stop_sequences" => options.stop_sequences = texts(name, value)?,
            "reasoningEffort" | "reasoning_effort" => {
                let effort = value.as_str().and_then(ReasoningEffort::from_keyword);
                let message = "must be one of none, minimal, low, medium, high";
                options.reasoning_effort = Some(effort.ok_or_else(|| wrong(name, message))?);
            }
            "toolChoice" | "tool_choice" => options.tool_choice = Some(tool_choice(name, value)?),
            _ if protocol.takes_any_parameter() => {
                rest.insert(name.clone(), value.clone());
            }
            _ => return Err(wrong(name, &format!("can not be passed on to {}", protocol.name()))),
        }
    }
    if !rest.is_empty() {
        options.extra_body = Some(Value::Object(rest));
    }
    options.response_format = format.map(|format| match &format.schema {
        Some(schema) if protocol.takes_schema() => JsonSpec::new(format.name.clone(), schema.clone()).into(),
        Some(_) | None => ChatResponseFormat::JsonMode,
    });
    Ok(options)
}

fn number(name: &str, value: &Value) -> Result<f64, RunError> {
    value.as_f64().ok_or_else(|| wrong(name, "must be a number"))
}

fn whole(name: &str, value: &Value) -> Result<u64, RunError> {
    value.as_u64().ok_or_else(|| wrong(name, "must be a whole number"))
}

fn texts(name: &str, value: &Value) -> Result<Vec<String>, RunError> {
    let one = |value: &Value| value.as_str().map(str::to_owned);
    let list = match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(list) => list.iter().map(one).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    list.ok_or_else(|| wrong(name, "must be a text or a list of texts"))
}

fn tool_choice(name: &str, value: &Value) -> Result<ToolChoice, RunError> {
    match (value.as_str(), value.get("name").and_then(Value::as_str)) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (_, Some(tool)) => Ok(ToolChoice::tool(tool)),
        _ => Err(wrong(name, "must be auto, none, required or {name}")),
    }
}

fn wrong(name: &str, message: &str) -> RunError {
    ModelFailure::new(FailureKind::Rejected).into_error(format!("parameter `{name}` {message}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(protocol: Protocol, parameters: &Value) -> Result<ChatOptions, RunError> {
        options(protocol, parameters.as_object().unwrap(), None)
    }

    #[test]
    fn common_parameters_have_either_spelling_and_the_rest_is_passed_on() {
        for parameters in [
            json!({"temperature": 0, "topP": 0.5, "maxTokens": 7, "stop": "x", "presence_penalty": 1}),
            json!({"temperature": 0, "top_p": 0.5, "max_tokens": 7, "stop_sequences": ["x"], "presence_penalty": 1}),
        ] {
            let options = read(Protocol::OpenAi, &parameters).unwrap();
            assert_eq!(
                (options.temperature, options.top_p, options.max_tokens),
                (Some(0.0), Some(0.5), Some(7))
            );
            assert_eq!(options.stop_sequences, ["x"]);
            assert_eq!(options.extra_body, Some(json!({"presence_penalty": 1})));
        }
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        for (parameters, name) in [
            (json!({"temperature": "hot"}), "temperature"),
            (json!({"maxTokens": -1}), "maxTokens"),
            (json!({"stop": [1]}), "stop"),
            (json!({"toolChoice": 1}), "toolChoice"),
            (json!({"mirostat": 1}), "mirostat"),
        ] {
            let error = read(Protocol::Ollama, &parameters).unwrap_err();
            assert!(error.message.contains(&format!("`{name}`")), "{error}");
            assert_eq!(ModelFailure::of(&error).kind, FailureKind::Rejected);
        }
    }
}
