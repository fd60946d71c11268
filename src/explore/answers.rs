//! Possible answers to questions during an exploration.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pirn_core::run::check_answer;
use pirn_core::thread::Interaction;
use pirn_models::json_schema::fits;
use serde_json::{Map, Value, json};

/// The configured answers, by node.
#[derive(Default)]
pub(crate) struct Answers(BTreeMap<String, Vec<GivenAnswer>>);

/// A configured answer.
struct GivenAnswer {
    answer: Value,
    /// True if a question has accepted it.
    is_accepted: AtomicBool,
    /// Reason of the first question that refused it.
    refusal: OnceLock<String>,
}

impl GivenAnswer {
    /// Returns whether the question accepts the answer.
    fn is_accepted_by(&self, question: &Interaction) -> bool {
        match check_answer(question, &self.answer, fits) {
            Ok(()) => self.is_accepted.store(true, Ordering::Relaxed),
            Err(why) => {
                self.refusal.get_or_init(|| why.to_string());
                return false;
            }
        }
        true
    }
}

impl Answers {
    pub(crate) fn add(&mut self, node_id: String, answer: Value) {
        self.0.entry(node_id).or_default().push(GivenAnswer {
            answer,
            is_accepted: AtomicBool::new(false),
            refusal: OnceLock::new(),
        });
    }

    /// Returns a configured answer that questions have refused and none has accepted: its node, and the reason.
    pub(crate) fn refused(&self) -> Option<(&str, &str)> {
        let each = self.0.iter();
        let mut each = each.flat_map(|(node, given)| given.iter().map(move |given| (node, given)));
        each.find_map(|(node, given)| {
            let refusal = given.refusal.get()?;
            (!given.is_accepted.load(Ordering::Relaxed)).then_some((node.as_str(), refusal.as_str()))
        })
    }

    /// Returns the possible answers of a question: those configured that it accepts, or those that the question implies.
    pub(crate) fn to(&self, question: &Interaction) -> Vec<Value> {
        // Configured answers come first: they are also the only way to answer a question with an open schema.
        if let Some(given) = self.0.get(&*question.node_id) {
            let accepted = given.iter().filter(|given| given.is_accepted_by(question));
            return accepted.map(|given| given.answer.clone()).collect();
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
