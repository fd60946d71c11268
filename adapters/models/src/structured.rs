//! Structured output: checks replies against an LLM node's `responseFormat` (a JSON Schema), and requests a correction once.
//!
//! A reply that was truncated, filtered or refused is not requested again: the result would be equal.

use std::borrow::Cow;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall, ModelSession};
use pirn_conversation::conversation::{Estimator, MessageRules, ModelRequest, message_cost};
use pirn_conversation::model_call::{CallBound, FailureKind, FinishReason, ModelFailure};
use pirn_core::thread::ModelReply;
use pirn_definition::error::RunError;
use pirn_definition::message::{Message, Role};
use serde_json::{Map, Value};

use crate::json_schema::fits;

/// The reply format that a node requires.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResponseFormat {
    /// The schema's name, for providers that require one.
    pub(super) name: String,
    /// JSON Schema, or `None` if any JSON is valid.
    pub(super) schema: Option<Value>,
}

impl ResponseFormat {
    /// Reads `responseFormat`: a JSON Schema, or OpenAI's notation `{type: "json_object"}` or `{type: "json_schema", json_schema:
    /// {name?, schema}}`.
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

    /// Returns the reply's JSON text, without the code fence that many models add.
    ///
    /// # Errors
    /// Fails if the reply does not fit; the message is written for the model.
    fn check<'a>(&self, content: &'a str) -> Result<Cow<'a, str>, String> {
        let text = unfenced(content);
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let Some(schema) = &self.schema else {
            return Ok(text.into());
        };
        match fits(schema, &value) {
            Ok(()) => Ok(text.into()),
            Err(fault) => {
                // A strict schema has no optional properties, so models send null for absent ones.
                let mut pruned = value.clone();
                remove_absent(schema, &[schema], &mut pruned);
                if pruned == value || fits(schema, &pruned).is_err() {
                    return Err(fault.reason);
                }
                Ok(pruned.to_string().into())
            }
        }
    }
}

/// Returns the JSON Schema in a node's `responseFormat`, or `None` if any JSON is valid.
pub fn reply_schema(written: &Value) -> Option<Value> {
    ResponseFormat::read(written).schema
}

/// Removes nulls of properties that are optional in `schemas`, parts of `root`.
fn remove_absent<'a>(root: &'a Value, schemas: &[&'a Value], value: &mut Value) {
    // One list for all, so that a branch of several schemas is followed once.
    let mut matching = Vec::new();
    for schema in schemas {
        add_matching(root, schema, value, &mut matching);
    }
    let matching = || matching.iter().copied();
    match value {
        Value::Object(fields) => {
            let is_optional = |name: &str| {
                matching().any(|schema| property(schema, name).is_some())
                    && !matching().any(|schema| required(schema).any(|one| one == name))
            };
            fields.retain(|name, field| !field.is_null() || !is_optional(name));
            for (name, field) in fields.iter_mut() {
                let inner: Vec<&Value> = matching().filter_map(|schema| property(schema, name)).collect();
                remove_absent(root, &inner, field);
            }
        }
        Value::Array(list) => {
            for (place, item) in list.iter_mut().enumerate() {
                let inner: Vec<&Value> = matching().filter_map(|schema| item_at(schema, place)).collect();
                remove_absent(root, &inner, item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Adds the schemas that apply to the value: `schema`, the target of its `$ref` and its branches, unless the value cannot match them.
fn add_matching<'a>(root: &'a Value, schema: &'a Value, value: &Value, matching: &mut Vec<&'a Value>) {
    // A reference may lead back to its schema.
    if matching.iter().any(|known| std::ptr::eq(*known, schema)) || !may_match(schema, value) {
        return;
    }
    matching.push(schema);
    let target = schema.get("$ref").and_then(Value::as_str);
    let target = target.and_then(|target| root.pointer(target.strip_prefix('#')?));
    let branches = ["anyOf", "oneOf", "allOf"].into_iter();
    let branches = branches.filter_map(|word| schema.get(word)?.as_array()).flatten();
    for inner in target.into_iter().chain(branches) {
        add_matching(root, inner, value, matching);
    }
}

/// Returns whether the value may match the schema if optional properties may be null, by its types, constants and required properties.
fn may_match(schema: &Value, value: &Value) -> bool {
    let is_type = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("number" | "integer") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some(_) | None => true,
    };
    let has_type = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(is_type),
        kind => kind.is_none_or(is_type),
    };
    let is_listed = schema.get("const").is_none_or(|only| only == value)
        && schema
            .get("enum")
            .and_then(Value::as_array)
            .is_none_or(|list| list.contains(value));
    let Some(fields) = value.as_object().filter(|_| has_type && is_listed) else {
        return has_type && is_listed;
    };
    let mut own = fields.iter().filter(|(_, field)| !field.is_null());
    required(schema).all(|name| fields.contains_key(name))
        && own.all(|(name, field)| property(schema, name).is_none_or(|inner| may_match(inner, field)))
}

/// Returns the names of the required properties.
fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let list = schema.get("required").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get("properties")?.get(name)
}

/// Returns the schema of the list's item at `place`.
fn item_at(schema: &Value, place: usize) -> Option<&Value> {
    let mut tuples = ["prefixItems", "items"].into_iter();
    let listed = tuples.find_map(|word| schema.get(word)?.as_array()?.get(place));
    listed.or_else(|| schema.get("items"))
}

/// Checks a model's replies against the node's `responseFormat`. A reply that does not fit is sent back once with its fault;
/// neither becomes part of the conversation. Replies with tool calls are not final, and are not checked.
pub(super) struct StructuredOutputModel {
    inner: Arc<dyn Model>,
}

impl StructuredOutputModel {
    pub(super) fn around(inner: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(Self { inner })
    }
}

impl Model for StructuredOutputModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let Some(written) = call.response_format.clone() else {
            return self.inner.call(call);
        };
        let inner = Arc::clone(&self.inner);
        // Call the model now rather than when the future is polled: scripted models answer in the order of the calls.
        let first = inner.call(call.clone());
        async move {
            let format = ResponseFormat::read(&written);
            let first = whole(first.await?)?;
            let fault = match fitting(&format, first.clone()) {
                Ok(reply) => return Ok(reply),
                Err(fault) => fault,
            };
            call.tokens.begin_anew();
            let request = asked_again(&call.request, &first.content, &fault, &format);
            let request = Arc::new(request);
            let key_part = format!("{}-again", call.key_part);
            let second = ModelCall {
                request,
                key_part,
                ..call
            };
            let second = inner.call(second).await;
            let mut second = second.map_err(|mut error| {
                // A script that ends here has replies enough for its author, who did not count the repetition.
                if error
                    .details
                    .as_ref()
                    .is_some_and(|details| details["noResponseLeft"] == true)
                {
                    error.message = format!(
                        "a reply does not fit `responseFormat`: {fault}; it is requested once more, and {}",
                        error.message
                    );
                }
                let mut spent = ModelFailure::of(&error).spent;
                spent.add(first.usage);
                ModelFailure::spending(error, spent)
            })?;
            second.usage.add(first.usage);
            let spent = second.usage;
            let second = whole(second)?;
            fitting(&format, second).map_err(|fault| {
                let message = format!("two replies did not match `responseFormat`: {fault}");
                let failure = ModelFailure::new(FailureKind::BadFormat);
                ModelFailure { spent, ..failure }.into_error(message)
            })
        }
        .boxed()
    }

    fn answered(&self, request: &ModelRequest, session: &ModelSession) {
        self.inner.answered(request, session);
    }

    fn is_external(&self) -> bool {
        self.inner.is_external()
    }

    fn call_bound(&self, request: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        self.inner.call_bound(request, parameters)
    }

    fn message_rules(&self) -> MessageRules {
        self.inner.message_rules()
    }
}

/// Returns the reply, or an error if it ended before its JSON did.
fn whole(reply: ModelReply) -> Result<ModelReply, RunError> {
    /// Maximum characters of a displayed refusal.
    const SHOWN: usize = 400;
    if !reply.tool_calls.is_empty() || reply.finish_reason.is_whole() {
        return Ok(reply);
    }
    let refusal: String = reply.content.chars().take(SHOWN).collect();
    let why = match reply.finish_reason {
        FinishReason::Length => "the reply was cut before its JSON was complete: raise `maxTokens`".to_owned(),
        FinishReason::ContentFilter => "the provider's filter cut the reply before its JSON was complete".to_owned(),
        FinishReason::Refusal => format!("the model refused: {refusal}"),
        FinishReason::Pause => "the provider stopped the reply before its JSON was complete".to_owned(),
        FinishReason::Malformed | FinishReason::Stop | FinishReason::ToolCalls => {
            "the reply ended before its JSON was complete".to_owned()
        }
    };
    let failure = ModelFailure {
        spent: reply.usage,
        ..ModelFailure::new(FailureKind::BadFormat)
    };
    Err(failure.into_error_ended(reply.finish_reason, why))
}

fn fitting(format: &ResponseFormat, mut reply: ModelReply) -> Result<ModelReply, String> {
    if reply.tool_calls.is_empty() {
        reply.content = format.check(&reply.content)?.into_owned();
    }
    Ok(reply)
}

/// Returns the request with the invalid reply and its fault appended.
fn asked_again(request: &ModelRequest, reply: &str, fault: &str, format: &ResponseFormat) -> ModelRequest {
    let mut request = request.clone();
    let form = match &format.schema {
        Some(schema) => format!("JSON that matches this schema: {schema}"),
        None => "JSON".to_owned(),
    };
    let complaint = format!("That reply cannot be used: {fault}. Answer again, with only {form}");
    let said = (!reply.is_empty()).then(|| Message::new(Role::Assistant, reply));
    for message in said.into_iter().chain([Message::new(Role::User, complaint)]) {
        request.tokens = request.tokens.saturating_add(message_cost(&message, &Estimator));
        request.messages.push(Arc::new(message));
    }
    request
}

/// Returns the text between code fences, if the content has no other text.
pub(super) fn unfenced(content: &str) -> &str {
    let text = content.trim();
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    match inner.and_then(|inner| inner.split_once('\n')) {
        Some((_, inner)) => inner.trim(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_format_is_a_schema_or_an_openai_wrapper_of_a_schema() {
        let schema = json!({"type": "object"});
        let read = |written: Value| ResponseFormat::read(&written);
        assert_eq!(read(schema.clone()).schema, Some(schema.clone()));
        let wrapped = read(json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}));
        assert_eq!((wrapped.name.as_str(), wrapped.schema), ("n", Some(schema)));
        assert_eq!(read(json!({"type": "json_object"})).schema, None);
    }

    #[test]
    fn a_code_fence_is_stripped_from_the_reply() {
        let any = ResponseFormat::read(&json!({"type": "json_object"}));
        for content in [
            "{\"a\": 1}",
            " {\"a\": 1}\n",
            "```json\n{\"a\": 1}\n```",
            "```\n{\"a\": 1}```\n",
        ] {
            assert_eq!(any.check(content).as_deref(), Ok("{\"a\": 1}"), "{content}");
        }
        assert!(any.check("Sure! {}").is_err());
        assert!(any.check("``````").is_err());
    }

    #[test]
    #[cfg(feature = "schema")]
    fn nulls_of_optional_properties_are_removed_behind_references_and_branches() {
        let object = |required: &str, more: Value| {
            let mut object = json!({"type": "object", "required": [required], "properties": more});
            object["additionalProperties"] = json!(false);
            object
        };
        let text = json!({"type": "string"});
        let node = object(
            "name",
            json!({"name": {"type": ["string", "null"]}, "next": {"$ref": "#/$defs/node"}}),
        );
        let (cat, dog) = (
            object("kind", json!({"kind": {"const": "cat"}, "name": text})),
            json!({"type": "object", "required": ["kind", "name"],
                "properties": {"kind": {"const": "dog"}, "name": {"type": ["string", "null"]}, "age": text}}),
        );
        let pet = json!({"anyOf": [cat, dog]});
        let pair = json!({"type": "array", "prefixItems": [text, node], "items": pet});
        for (schema, reply, expected) in [
            (
                json!({"$ref": "#/$defs/node"}),
                json!({"name": null, "next": {"name": "b", "next": null}}),
                json!({"name": null, "next": {"name": "b"}}),
            ),
            (
                json!({"anyOf": [pair, {"type": "null"}]}),
                json!(["a", {"name": "b", "next": null}, {"kind": "cat", "name": null},
                    {"kind": "dog", "name": null, "age": null}]),
                json!(["a", {"name": "b"}, {"kind": "cat"}, {"kind": "dog", "name": null}]),
            ),
            // A property that the schema does not name is not absent.
            (
                json!({"type": "object", "properties": {"a": text}}),
                json!({"a": null, "b": null}),
                json!({"b": null}),
            ),
        ] {
            let mut schema = schema;
            schema["$defs"] = json!({ "node": node });
            let format = ResponseFormat::read(&schema);
            assert_eq!(
                format.check(&reply.to_string()).as_deref(),
                Ok(&*expected.to_string()),
                "{schema}"
            );
        }
        // Without an end.
        let endless = json!({"anyOf": [{"$ref": "#"}], "type": "object", "required": ["a"]});
        assert!(ResponseFormat::read(&endless).check("{\"b\": null}").is_err());
    }

    #[test]
    #[cfg(feature = "schema")]
    fn a_schema_violation_is_reported_with_its_location() {
        let format = ResponseFormat::read(&json!({
            "type": "object", "properties": {"n": {"type": "integer", "minimum": 1}, "m": {"type": "string"}}, "required": ["n"],
        }));
        assert_eq!(format.check("{\"n\": 2}").as_deref(), Ok("{\"n\": 2}"));
        assert_eq!(
            format.check("{\"n\": 2, \"m\": null}").as_deref(),
            Ok("{\"n\":2}"),
            "a property that is absent"
        );
        let fault = format.check("{\"n\": 0}").expect_err("too small");
        assert!(fault.contains("at /n"), "{fault}");
        assert!(format.check("{}").is_err());
    }
}
