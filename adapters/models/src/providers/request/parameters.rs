//! Parsed parameters of a node: common ones by their usual names, all others unchanged.

use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_definition::error::RunError;
use serde_json::{Map, Number, Value};

/// Parameters in either `camelCase` or `snake_case`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::providers) struct Parameters {
    pub(in crate::providers) temperature: Option<Number>,
    pub(in crate::providers) top_p: Option<Number>,
    pub(in crate::providers) top_k: Option<u64>,
    pub(in crate::providers) max_tokens: Option<u64>,
    pub(in crate::providers) seed: Option<u64>,
    pub(in crate::providers) stop: Vec<String>,
    pub(in crate::providers) effort: Option<Effort>,
    pub(in crate::providers) tool_choice: Option<ToolChoice>,
    /// Provider-specific parameters.
    pub(in crate::providers) rest: Map<String, Value>,
}

/// Effort of a model's thinking before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::providers) enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

impl Effort {
    const ALL: [(Self, &'static str); 7] = [
        (Self::None, "none"),
        (Self::Minimal, "minimal"),
        (Self::Low, "low"),
        (Self::Medium, "medium"),
        (Self::High, "high"),
        (Self::XHigh, "xhigh"),
        (Self::Max, "max"),
    ];

    pub(in crate::providers) fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(effort, _)| *effort == self)
            .map_or("none", |(_, word)| word)
    }

    /// Returns a thinking budget in tokens, for models that require one.
    pub(in crate::providers) fn budget(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Minimal | Self::Low => 1024,
            Self::Medium => 8_000,
            Self::High | Self::XHigh | Self::Max => 24_000,
        }
    }
}

/// Tools that a model may call, among those offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::providers) enum ToolChoice {
    Auto,
    None,
    Required,
    Tool(String),
}

impl Parameters {
    /// Reads the parameters.
    ///
    /// # Errors
    /// The first parameter of a wrong type, and a description of the fault.
    pub(in crate::providers) fn read(written: &Map<String, Value>) -> Result<Self, (String, String)> {
        let mut read = Self::default();
        for (name, value) in written {
            let wrong = |message: &str| (name.clone(), message.to_owned());
            let number = || match value {
                Value::Number(number) => Ok(Some(number.clone())),
                _ => Err(wrong("must be a number")),
            };
            let whole = || value.as_u64().map(Some).ok_or_else(|| wrong("must be a whole number"));
            match name.as_str() {
                "temperature" => read.temperature = number()?,
                "topP" | "top_p" => read.top_p = number()?,
                "topK" | "top_k" => read.top_k = whole()?,
                "maxTokens" | "max_tokens" => read.max_tokens = whole()?,
                "seed" => read.seed = whole()?,
                "stop" | "stopSequences" | "stop_sequences" => {
                    read.stop = texts(value).ok_or_else(|| wrong("must be a text or a list of texts"))?;
                }
                "reasoningEffort" | "reasoning_effort" => {
                    let known = Effort::ALL.iter().find(|(_, word)| value.as_str() == Some(word));
                    let effort =
                        known.ok_or_else(|| wrong("must be one of none, minimal, low, medium, high, xhigh, max"))?;
                    read.effort = Some(effort.0);
                }
                "toolChoice" | "tool_choice" => {
                    let choice = tool_choice(value);
                    read.tool_choice = Some(choice.ok_or_else(|| wrong("must be auto, none, required or {name}"))?);
                }
                _ => {
                    read.rest.insert(name.clone(), value.clone());
                }
            }
        }
        Ok(read)
    }

    /// Writes the common parameters into `body`, by the protocol's names.
    pub(in crate::providers) fn put(&self, body: &mut Value, names: &Names) {
        let mut put = |name: Option<&str>, value: Option<Value>| {
            if let (Some(name), Some(value)) = (name, value) {
                body[name] = value;
            }
        };
        put(Some(names.temperature), self.temperature.clone().map(Value::Number));
        put(Some(names.top_p), self.top_p.clone().map(Value::Number));
        put(names.top_k, self.top_k.map(Value::from));
        put(names.seed, self.seed.map(Value::from));
        let stop = (!self.stop.is_empty()).then(|| Value::from(self.stop.clone()));
        put(names.stop, stop);
    }

    /// Returns whether the model may not call tools.
    pub(in crate::providers) fn forbids_tools(&self) -> bool {
        self.tool_choice == Some(ToolChoice::None)
    }
}

/// A protocol's names for the common parameters; `None`: not supported.
pub(in crate::providers) struct Names {
    pub(in crate::providers) temperature: &'static str,
    pub(in crate::providers) top_p: &'static str,
    pub(in crate::providers) top_k: Option<&'static str>,
    pub(in crate::providers) seed: Option<&'static str>,
    pub(in crate::providers) stop: Option<&'static str>,
}

/// Returns the `MODEL_ERROR` for an invalid parameter.
pub(in crate::providers) fn wrong((name, message): (String, String)) -> RunError {
    ModelFailure::new(FailureKind::Rejected).into_error(format!("parameter `{name}` {message}"))
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| value.as_str().map(str::to_owned);
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(list) => list.iter().map(one).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn tool_choice(value: &Value) -> Option<ToolChoice> {
    match (value.as_str(), value.get("name").and_then(Value::as_str)) {
        (Some("auto"), _) => Some(ToolChoice::Auto),
        (Some("none"), _) => Some(ToolChoice::None),
        (Some("required"), _) => Some(ToolChoice::Required),
        (_, Some(tool)) => Some(ToolChoice::Tool(tool.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(written: Value) -> Result<Parameters, (String, String)> {
        let Value::Object(written) = written else {
            panic!("an object")
        };
        Parameters::read(&written)
    }

    #[test]
    fn camel_case_and_snake_case_parameters_are_equivalent() {
        let camel = json!({"temperature": 0.5, "topP": 0.9, "topK": 3, "maxTokens": 7, "stop": "x", "reasoningEffort": "low", "toolChoice": {"name": "t"}});
        let snake = json!({"temperature": 0.5, "top_p": 0.9, "top_k": 3, "max_tokens": 7, "stop_sequences": ["x"], "reasoning_effort": "low", "tool_choice": {"name": "t"}});
        assert_eq!(read(camel).unwrap(), read(snake).unwrap());
        assert_eq!(read(json!({"other": 1})).unwrap().rest["other"], 1);
    }

    #[test]
    fn an_invalid_parameter_is_named() {
        for (name, value, words) in [
            ("temperature", json!("hot"), "a number"),
            ("maxTokens", json!(-1), "whole number"),
            ("stop", json!([1]), "list of texts"),
            ("reasoningEffort", json!("most"), "one of none"),
            ("toolChoice", json!("any"), "required"),
        ] {
            let (named, message) = read(json!({ name: value })).unwrap_err();
            assert_eq!(named, name);
            assert!(message.contains(words), "{message}");
        }
    }
}
