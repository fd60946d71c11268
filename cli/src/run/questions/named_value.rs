//! Parser of `NAME=VALUE` arguments.

use std::collections::BTreeSet;
use std::sync::Arc;

use pirn::Interaction;
use pirn_definition::definition::{JsonErrorKind, json_from_str};
use pirn_definition::graph::{Graph, NodeKind};
use serde_json::{Map, Value};

use crate::output::failure::Failure;

/// Parses `NAME=VALUE`, where the value is JSON or plain text.
pub(crate) fn named_value(text: &str) -> Result<(String, Value), String> {
    let (name, value) = named(text)?;
    Ok((name.to_owned(), json_or_text(value)?))
}

fn named(text: &str) -> Result<(&str, &str), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        Some(_) => Err("the name before the `=` is missing".to_owned()),
        None => Err("the `=` is missing".to_owned()),
    }
}

/// Parses JSON, or else returns the text as a string. JSON that would be read with a changed value is an error.
pub(crate) fn json_or_text(text: &str) -> Result<Value, String> {
    match json_from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if error.kind() == JsonErrorKind::Syntax => Ok(Value::from(text)),
        Err(error) => Err(error.to_string()),
    }
}

/// An answer as it was written: JSON, or the text itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WrittenAnswer {
    value: Value,
    text: String,
}

impl WrittenAnswer {
    /// Parses an answer by the rules of [`json_or_text`].
    pub(in crate::run) fn of(text: &str) -> Result<Self, String> {
        Ok(Self {
            value: json_or_text(text)?,
            text: text.to_owned(),
        })
    }

    /// Returns the answer to a question: the JSON value, or the text if the question accepts only that, such as `1` for the
    /// choice `"1"`.
    pub(in crate::run) fn to(&self, question: &Interaction) -> Value {
        let choices = question.choices.as_deref().map(Vec::as_slice);
        self.fitting(choices, question.schema.as_deref())
    }

    /// Returns the answer to the questions of a node, like [`Self::to`].
    pub(crate) fn to_node(&self, node_id: &str, graphs: &[Arc<Graph>]) -> Value {
        let nodes = graphs.iter().flat_map(|graph| &graph.nodes);
        let asking = nodes
            .filter(|node| *node.id == *node_id)
            .find_map(|node| match &node.kind {
                NodeKind::UserInteraction(asking) => Some(asking),
                _other => None,
            });
        // Other nodes create their questions during the run.
        asking.map_or_else(
            || self.value.clone(),
            |asking| self.fitting(asking.choices.as_deref().map(Vec::as_slice), asking.schema.as_deref()),
        )
    }

    fn fitting(&self, choices: Option<&[Value]>, schema: Option<&Map<String, Value>>) -> Value {
        let text = || Value::from(self.text.as_str());
        let in_list = |values: &[Value]| !values.contains(&self.value) && values.contains(&text());
        let is_text = match (choices, schema) {
            (Some(choices), _) => in_list(choices),
            (None, Some(schema)) => match schema.get("enum") {
                Some(Value::Array(values)) => in_list(values),
                Some(_) | None => !self.value.is_string() && schema.get("type").is_some_and(|kind| kind == "string"),
            },
            (None, None) => false,
        };
        if is_text { text() } else { self.value.clone() }
    }
}

/// Parses `NODE=ANSWER`, where the answer is JSON or plain text.
pub(crate) fn named_answer(text: &str) -> Result<(String, WrittenAnswer), String> {
    let (name, value) = named(text)?;
    Ok((name.to_owned(), WrittenAnswer::of(value)?))
}

/// Refuses an option with two values for one name.
pub(in crate::run) fn said_once<T>(option: &str, given: &[(String, T)], help: &str) -> Result<(), Failure> {
    let mut names = BTreeSet::new();
    match given.iter().find(|(name, _)| !names.insert(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("{option} {name}= is given twice");
            Err(Failure::usage("USAGE", message).with_help(help))
        }
    }
}

/// Refuses two answers to one node.
pub(in crate::run) fn answered_once(given: &[(String, WrittenAnswer)]) -> Result<(), Failure> {
    let help = "a node has one answer, which each of its questions gets: give the option once for each node";
    said_once("--answer", given, help)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_parsed_as_json_or_taken_as_a_string() {
        for (text, name, value) in [
            ("tenant=acme", "tenant", json!("acme")),
            ("a=b=c", "a", json!("b=c")),
            ("n=7", "n", json!(7)),
            (r#"n="7""#, "n", json!("7")),
            (r#"user={"id": 1}"#, "user", json!({"id": 1})),
            ("empty=", "empty", json!("")),
        ] {
            assert_eq!(named_value(text), Ok((name.to_owned(), value)), "{text}");
        }
        let twice = named_value(r#"a={"x": 1, "x": 2}"#).unwrap_err();
        assert!(twice.starts_with("/x: the key `x` is given twice"), "{twice}");
        assert_eq!(named_value("tenant"), Err("the `=` is missing".to_owned()));
        assert_eq!(
            named_value("=acme"),
            Err("the name before the `=` is missing".to_owned())
        );
    }

    #[test]
    fn an_answer_that_is_no_choice_as_json_is_taken_as_text() {
        let mut question = Interaction {
            id: "r.0.1".to_owned(),
            node_id: "ask".into(),
            thread_id: "r.0".into(),
            question: "Which?".into(),
            assignee: None,
            schema: None,
            choices: Some(Arc::new(vec![json!("1"), json!(2), json!("true")])),
            timeout_ms: None,
            tool: None,
            client_tool: None,
        };
        let to = |question: &Interaction, text: &str| WrittenAnswer::of(text).expect("parses").to(question);
        assert_eq!(to(&question, "1"), json!("1"));
        assert_eq!(to(&question, "2"), json!(2));
        assert_eq!(to(&question, "true"), json!("true"));
        assert_eq!(to(&question, "3"), json!(3), "neither is a choice");
        question.choices = None;
        assert_eq!(to(&question, "1"), json!(1), "any answer is accepted");
        let schema = |schema: Value| schema.as_object().cloned().map(Arc::new);
        question.schema = schema(json!({"type": "string"}));
        assert_eq!(to(&question, "true"), json!("true"));
        assert_eq!(to(&question, "\"true\""), json!("true"));
        question.schema = schema(json!({"enum": ["1", 2]}));
        assert_eq!(to(&question, "1"), json!("1"));
        assert_eq!(to(&question, "2"), json!(2));
        question.schema = schema(json!({"type": "number"}));
        assert_eq!(to(&question, "1"), json!(1));
    }
}
