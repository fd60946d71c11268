//! Structured output: an LLM node's `responseFormat`.

use serde_json::Value;

/// What a node wants its reply to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResponseFormat {
    /// The schema's name, for providers that want one.
    pub(super) name: String,
    /// JSON Schema; none where any JSON will do.
    pub(super) schema: Option<Value>,
}

impl ResponseFormat {
    /// Reads `responseFormat`: a JSON Schema; or, as OpenAI writes it, `{type: "json_object"}` or
    /// `{type: "json_schema", json_schema: {name?, schema}}`.
    pub(super) fn read(written: &Value) -> Self {
        let kind = written.get("type").and_then(Value::as_str);
        let inner = written.get("json_schema").or_else(|| written.get("jsonSchema"));
        let named = inner.unwrap_or(written);
        let name = match named.get("name").and_then(Value::as_str) {
            Some(name) if kind == Some("json_schema") => name,
            Some(_) | None => "reply",
        };
        let schema = match kind {
            Some("json_object") => None,
            Some("json_schema") => named.get("schema").cloned(),
            Some(_) | None => Some(written.clone()),
        };
        Self {
            name: name.to_owned(),
            schema,
        }
    }
}
