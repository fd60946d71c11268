//! The table of every text a graph evaluates; equal texts stand once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::model::{Snippet, SnippetIx, SnippetKind, ValueSpec};
use super::site::{Site, and, too_deep};
use super::syntax::Syntax;
use crate::definition::FaultCode;
use crate::definition::json::Step;

/// Characters an expression may have; beyond it is a CODE node's work.
const LONGEST_EXPRESSION: usize = 1000;

/// Collects texts, each checked when it first comes.
pub(super) struct Snippets<'a> {
    syntax: &'a dyn Syntax,
    all: Vec<Snippet>,
    known: BTreeMap<(u8, Arc<str>), SnippetIx>,
}

impl<'a> Snippets<'a> {
    pub(super) fn new(syntax: &'a dyn Syntax) -> Self {
        Self {
            syntax,
            all: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    pub(super) fn into_table(self) -> Vec<Snippet> {
        self.all
    }

    pub(super) fn expression(&mut self, text: &str, way: impl Fn() -> Vec<Step>, site: &mut Site<'_>) -> SnippetIx {
        let length = text.chars().count();
        if length > LONGEST_EXPRESSION {
            let message = format!("the expression has {length} characters; at most {LONGEST_EXPRESSION} are read");
            site.fault_with_help(FaultCode::InvalidExpression, &way(), message, "put it into a CODE node");
        } else if let Err(fault) = self.syntax.expression(text) {
            site.fault(FaultCode::InvalidExpression, &way(), fault.message);
        }
        self.place(SnippetKind::Expression, text)
    }

    pub(super) fn template(&mut self, text: &str, way: impl Fn() -> Vec<Step>, site: &mut Site<'_>) -> SnippetIx {
        if let Err(fault) = self.syntax.template(text) {
            site.fault(FaultCode::InvalidTemplate, &way(), fault.message);
        }
        self.place(SnippetKind::Template, text)
    }

    pub(super) fn script(&mut self, text: &str, way: impl Fn() -> Vec<Step>, site: &mut Site<'_>) -> SnippetIx {
        if let Err(fault) = self.syntax.script(text) {
            site.fault(FaultCode::InvalidExpression, &way(), fault.message);
        }
        self.place(SnippetKind::Code, text)
    }

    /// Text is an expression, anything else is taken as it is with templates in its strings.
    pub(super) fn input(&mut self, value: &Value, way: &[Step], site: &mut Site<'_>) -> ValueSpec {
        match value {
            Value::String(text) => ValueSpec::Expression(self.expression(text, || way.to_vec(), site)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.value(value, way, site)
            }
        }
    }

    /// A value with templates in its strings.
    pub(super) fn value(&mut self, value: &Value, way: &[Step], site: &mut Site<'_>) -> ValueSpec {
        if too_deep(value) {
            site.fault(FaultCode::LimitExceeded, way, "the value is nested too deeply");
            return ValueSpec::Literal(Arc::new(Value::Null));
        }
        self.shallow(value, way, site)
    }

    fn shallow(&mut self, value: &Value, way: &[Step], site: &mut Site<'_>) -> ValueSpec {
        if !has_template(value) {
            return ValueSpec::Literal(Arc::new(value.clone()));
        }
        match value {
            Value::String(text) => ValueSpec::Template(self.template(text, || way.to_vec(), site)),
            Value::Array(items) => ValueSpec::List(
                items
                    .iter()
                    .enumerate()
                    .map(|(place, item)| self.shallow(item, &and(way, place), site))
                    .collect(),
            ),
            Value::Object(members) => ValueSpec::Object(
                members
                    .iter()
                    .map(|(key, item)| {
                        (
                            Arc::from(key.as_str()),
                            self.shallow(item, &and(way, key.as_str()), site),
                        )
                    })
                    .collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => ValueSpec::Literal(Arc::new(value.clone())),
        }
    }

    fn place(&mut self, kind: SnippetKind, text: &str) -> SnippetIx {
        let source: Arc<str> = Arc::from(text);
        let next = self.all.len() as SnippetIx;
        let place = *self.known.entry((kind as u8, Arc::clone(&source))).or_insert(next);
        if place == next {
            self.all.push(Snippet { kind, source });
        }
        place
    }
}

fn has_template(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("{{"),
        Value::Array(items) => items.iter().any(has_template),
        Value::Object(members) => members.values().any(has_template),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
