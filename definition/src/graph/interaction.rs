//! Checks and compiles USER_INTERACTION nodes.

use std::sync::Arc;

use super::diagnostics::{child, pointer};
use super::model::{InteractionNode, NodeKind, QuestionTimeout};
use super::nodes::NodeCompiler;
use crate::definition::{FaultCode, OnTimeout, TimeoutWord, UserInteractionConfig};

impl NodeCompiler<'_, '_> {
    pub(super) fn interaction(&mut self, place: usize, config: &UserInteractionConfig) -> NodeKind {
        let pointer = pointer!["nodes", place, "config"];
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
        if config.assign_to.as_deref() == Some("") {
            fault("assignTo", "a variable needs a name that is not empty");
        }
        let is_timed = config.timeout_ms.is_some_and(|after_ms| after_ms > 0);
        if config.on_timeout.is_some() && !is_timed {
            fault("onTimeout", "`onTimeout` requires `timeoutMs`");
        }
        let wants_default = config.on_timeout == Some(OnTimeout::Word(TimeoutWord::Default));
        match (&config.default, &config.choices) {
            (None, _) if wants_default => fault("onTimeout", "`default` is missing"),
            (Some(default), Some(choices)) if !choices.contains(default) => {
                fault("default", "the default is not one of `choices`");
            }
            (Some(_), _) if !wants_default => fault("default", "`default` requires `onTimeout: \"default\"`"),
            (None | Some(_), _) => {}
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
