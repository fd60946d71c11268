//! Checks and compiles USER_INTERACTION nodes.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::compiler::NodeCompiler;
use crate::definition::{FaultCode, OnTimeout, TimeoutWord, UserInteractionConfig};
use crate::graph::diagnostics::{child, pointer};
use crate::graph::model::{InteractionNode, NodeKind, QuestionTimeout};

impl NodeCompiler<'_, '_> {
    pub(super) fn interaction(&mut self, place: usize, config: &UserInteractionConfig) -> NodeKind {
        let pointer = pointer!["nodes", place, "config"];
        if let Some(name) = &config.assign_to {
            self.report.variable_name(name, &child(&pointer, "assignTo"));
        }
        // A field that is absent because of a fault of its own is no reason to report the others.
        let is_whole = !self.report.origin.is_incomplete(&pointer);
        let mut fault = |key: &str, message: &str| {
            self.report
                .fault(FaultCode::InvalidValue, &child(&pointer, key), message);
        };
        if config.question.trim().is_empty() {
            fault("question", "a question needs a text that is not empty");
        }
        if config.choices.as_ref().is_some_and(Vec::is_empty) {
            fault("choices", "`choices` needs at least one answer");
        }
        let is_timed = config.timeout_ms.is_some_and(|after_ms| after_ms > 0);
        if config.on_timeout.is_some() && !is_timed && is_whole {
            fault("onTimeout", "`onTimeout` requires `timeoutMs`");
        }
        let wants_default = config.on_timeout == Some(OnTimeout::Word(TimeoutWord::Default));
        match (&config.default, &config.choices) {
            (None, _) if wants_default => fault("onTimeout", "`default` is missing"),
            (Some(default), Some(choices)) if !choices.contains(default) => {
                fault("default", "the default is not one of `choices`");
            }
            (Some(_), _) if !wants_default && is_whole => {
                fault("default", "`default` requires `onTimeout: \"default\"`");
            }
            (None | Some(_), _) => {}
        }
        if let Some(schema) = &config.schema {
            let choices = config.choices.iter().flatten().enumerate();
            let choices = choices.map(|(number, choice)| (child(&child(&pointer, "choices"), number), choice));
            let default = config
                .default
                .as_ref()
                .map(|default| (child(&pointer, "default"), default));
            for (pointer, answer) in choices.chain(default).filter(|(_, answer)| !may_fit(schema, answer)) {
                let message = format!("the answer {answer} does not match `schema`: it would be rejected");
                self.report.fault(FaultCode::InvalidValue, &pointer, message);
            }
        }
        let timeout_ms = self
            .report
            .milliseconds(config.timeout_ms, || child(&pointer, "timeoutMs"));
        let on_timeout = match &config.on_timeout {
            None | Some(OnTimeout::Word(TimeoutWord::Fail)) => QuestionTimeout::Fail,
            Some(OnTimeout::Word(TimeoutWord::Default)) => {
                QuestionTimeout::Default(Arc::new(config.default.clone().unwrap_or_default()))
            }
            Some(OnTimeout::Target(target)) => match self.adjacency.find(&target.target_node_id) {
                Some(target) => QuestionTimeout::GoTo(target),
                // The fault is reported already.
                None => QuestionTimeout::Fail,
            },
        };
        NodeKind::UserInteraction(Box::new(InteractionNode {
            question: self.template(&config.question, place, "question"),
            assignee: config
                .assignee
                .as_deref()
                .map(|text| self.template(text, place, "assignee")),
            schema: config.schema.clone().map(Arc::new),
            choices: config.choices.clone().map(Arc::new),
            assign_to: config.assign_to.as_deref().map(Arc::from),
            timeout_ms,
            on_timeout,
        }))
    }
}

/// True unless the `type` or the `enum` of a schema excludes a value. The other keywords need a validator.
fn may_fit(schema: &Map<String, Value>, value: &Value) -> bool {
    let is_of = |kind: &Value| match (kind.as_str(), value) {
        (Some("integer"), Value::Number(number)) => number.as_f64().is_none_or(|number| number.fract() == 0.0),
        (Some(kind), value) => {
            let own = match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            kind == own
        }
        // The validator reports the schema.
        (None, _) => true,
    };
    let has_type = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(is_of),
        Some(kind) => is_of(kind),
        None => true,
    };
    let listed = schema.get("enum").and_then(Value::as_array);
    has_type && listed.is_none_or(|listed| listed.contains(value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::may_fit;

    #[test]
    fn only_the_type_and_the_list_of_a_schema_exclude_a_value() {
        for (schema, value, fits) in [
            (json!({"type": "number"}), json!("yes"), false),
            (json!({"type": "number"}), json!(1), true),
            (json!({"type": "integer"}), json!(1.5), false),
            (json!({"type": "integer"}), json!(2.0), true),
            (json!({"type": ["string", "null"]}), json!(null), true),
            (json!({"type": ["string", "null"]}), json!(1), false),
            (json!({"enum": ["a", "b"]}), json!("c"), false),
            (json!({"type": "string", "enum": ["a", "b"]}), json!("a"), true),
            (json!({"minLength": 9}), json!("a"), true),
            (json!({"type": 1}), json!("a"), true),
        ] {
            let Value::Object(schema) = schema else { continue };
            assert_eq!(may_fit(&schema, &value), fits, "{schema:?} {value}");
        }
    }
}
