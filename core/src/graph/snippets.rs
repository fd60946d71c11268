//! The table of every text a graph evaluates; equal texts stand once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::diagnostics::{Diagnostics, child, too_deep};
use super::model::{Snippet, SnippetIx, SnippetKind, ValueSpec};
use super::syntax::{NoSyntax, Syntax, SyntaxFault};
use crate::definition::FaultCode;
use crate::definition::json::Step;

/// Characters an expression may have; beyond it is a CODE node's work.
const LONGEST_EXPRESSION: usize = 1000;

/// Collects texts, each checked when it first comes: what is wrong with it is told wherever it stands.
pub(super) struct Snippets<'a> {
    syntax: &'a dyn Syntax,
    all: Vec<Snippet>,
    known: [BTreeMap<Arc<str>, SnippetIx>; 3],
    wrong: BTreeMap<SnippetIx, SyntaxFault>,
}

impl<'a> Snippets<'a> {
    pub(super) fn new(syntax: &'a dyn Syntax) -> Self {
        Self::with(syntax, BTreeMap::new())
    }

    /// For texts of which is known what is wrong with them.
    pub(super) fn checked(wrong: BTreeMap<SnippetIx, SyntaxFault>) -> Self {
        Self::with(&NoSyntax, wrong)
    }

    fn with(syntax: &'a dyn Syntax, wrong: BTreeMap<SnippetIx, SyntaxFault>) -> Self {
        Self {
            syntax,
            all: Vec::new(),
            known: Default::default(),
            wrong,
        }
    }

    /// What is wrong with the texts so far, for one who accepted every one of them.
    pub(super) fn check(&self, syntax: &dyn Syntax) -> BTreeMap<SnippetIx, SyntaxFault> {
        let wrong = syntax.wrong_of(&self.all).into_iter();
        wrong.map(|(place, fault)| (place as SnippetIx, fault)).collect()
    }

    pub(super) fn into_table(self) -> Vec<Snippet> {
        self.all
    }

    pub(super) fn expression(
        &mut self,
        text: &str,
        pointer: impl Fn() -> Vec<Step>,
        report: &mut Diagnostics<'_>,
    ) -> SnippetIx {
        // a character has at least one byte
        let length = if text.len() > LONGEST_EXPRESSION {
            text.chars().count()
        } else {
            0
        };
        if length > LONGEST_EXPRESSION {
            let message = format!("the expression has {length} characters; at most {LONGEST_EXPRESSION} are read");
            report.fault_with_help(
                FaultCode::InvalidExpression,
                &pointer(),
                message,
                "put it into a CODE node",
            );
            // no graph is made where anything is wrong
            return SnippetIx::MAX;
        }
        self.text(SnippetKind::Expression, text, pointer, report)
    }

    pub(super) fn template(
        &mut self,
        text: &str,
        pointer: impl Fn() -> Vec<Step>,
        report: &mut Diagnostics<'_>,
    ) -> SnippetIx {
        self.text(SnippetKind::Template, text, pointer, report)
    }

    pub(super) fn script(
        &mut self,
        text: &str,
        pointer: impl Fn() -> Vec<Step>,
        report: &mut Diagnostics<'_>,
    ) -> SnippetIx {
        self.text(SnippetKind::Code, text, pointer, report)
    }

    /// Text is an expression, anything else is taken as it is with templates in its strings.
    pub(super) fn input(&mut self, value: &Value, pointer: &[Step], report: &mut Diagnostics<'_>) -> ValueSpec {
        match value {
            Value::String(text) => ValueSpec::Expression(self.expression(text, || pointer.to_vec(), report)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.value(value, pointer, report)
            }
        }
    }

    /// A value with templates in its strings.
    pub(super) fn value(&mut self, value: &Value, pointer: &[Step], report: &mut Diagnostics<'_>) -> ValueSpec {
        if too_deep(value) {
            report.fault(FaultCode::LimitExceeded, pointer, "the value is nested too deeply");
            return ValueSpec::Literal(Arc::new(Value::Null));
        }
        self.shallow(value, pointer, report)
    }

    fn shallow(&mut self, value: &Value, pointer: &[Step], report: &mut Diagnostics<'_>) -> ValueSpec {
        if !has_template(value) {
            return ValueSpec::Literal(Arc::new(value.clone()));
        }
        match value {
            Value::String(text) => ValueSpec::Template(self.template(text, || pointer.to_vec(), report)),
            Value::Array(items) => ValueSpec::List(
                items
                    .iter()
                    .enumerate()
                    .map(|(place, item)| self.shallow(item, &child(pointer, place), report))
                    .collect(),
            ),
            Value::Object(members) => ValueSpec::Object(
                members
                    .iter()
                    .map(|(key, item)| {
                        (
                            Arc::from(key.as_str()),
                            self.shallow(item, &child(pointer, key.as_str()), report),
                        )
                    })
                    .collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => ValueSpec::Literal(Arc::new(value.clone())),
        }
    }

    fn text(
        &mut self,
        kind: SnippetKind,
        text: &str,
        pointer: impl Fn() -> Vec<Step>,
        report: &mut Diagnostics<'_>,
    ) -> SnippetIx {
        let known = &mut self.known[kind as usize];
        let place = if let Some(place) = known.get(text) {
            *place
        } else {
            let place = self.all.len() as SnippetIx;
            let source: Arc<str> = Arc::from(text);
            known.insert(Arc::clone(&source), place);
            let snippet = Snippet { kind, source };
            if let Err(fault) = self.syntax.check(&snippet) {
                self.wrong.insert(place, fault);
            }
            self.all.push(snippet);
            place
        };
        if let Some(fault) = self.wrong.get(&place) {
            let code = match kind {
                SnippetKind::Expression | SnippetKind::Code => FaultCode::InvalidExpression,
                SnippetKind::Template => FaultCode::InvalidTemplate,
            };
            report.fault(code, &pointer(), fault.message.as_str());
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
