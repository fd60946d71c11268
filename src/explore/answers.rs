//! Possible answers to questions during an exploration.

use std::collections::BTreeMap;

use pirn_core::thread::Interaction;
use serde_json::{Map, Value, json};

/// The configured answers, by node.
#[derive(Default)]
pub(crate) struct Answers(BTreeMap<String, Vec<Value>>);

impl Answers {
    pub(crate) fn add(&mut self, node_id: String, answer: Value) {
        self.0.entry(node_id).or_default().push(answer);
    }

    /// Returns the possible answers of a question: those configured, or those that the question implies.
    pub(crate) fn to(&self, question: &Interaction) -> Vec<Value> {
        // Configured answers come first: they are also the only way to answer a question with an open schema.
        if let Some(given) = self.0.get(&*question.node_id) {
            return given.clone();
        }
        // A question for consent has no choices of its own, and both decisions lead to different outcomes.
        if question.tool.is_some() {
            return vec![json!("allow"), json!("refuse")];
        }
        match (&question.choices, &question.schema) {
            // Choices before the schema: an answer must be one of them in any case.
            (Some(choices), _) => choices.to_vec(),
            (None, Some(schema)) => named(schema),
            (None, None) => vec![json!("answer")],
        }
    }
}

/// Returns the values that a schema enumerates, or an empty list.
fn named(schema: &Map<String, Value>) -> Vec<Value> {
    if let Some(Value::Array(values)) = schema.get("enum") {
        return values.clone();
    }
    if let Some(value) = schema.get("const") {
        return vec![value.clone()];
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => vec![json!(true), json!(false)],
        Some("null") => vec![Value::Null],
        // A type such as `string` has no finite list of values, so the question stays open.
        _ => Vec::new(),
    }
}
