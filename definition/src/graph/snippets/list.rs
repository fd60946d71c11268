//! Table of all snippets of a graph, without duplicates.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde_json::Value;

use super::known_names::KnownNames;
use super::text_fault::TextFault;
use crate::definition::FaultCode;
use crate::definition::json::{MAX_DEFINITION_DEPTH, Step, too_deep_definition};
use crate::graph::diagnostics::{Diagnostics, child};
use crate::graph::model::{Snippet, SnippetIx, SnippetKind, ValueSpec};
use crate::graph::syntax::{NoSyntax, Syntax};
use crate::value::levels_up_to;

/// Maximum length of an expression, in characters. Longer code needs a CODE node.
const LONGEST_EXPRESSION: usize = 1000;

/// Collects snippets. Each is checked at its first occurrence, and its faults are reported at every occurrence.
pub(in crate::graph) struct Snippets<'a> {
    syntax: &'a dyn Syntax,
    all: Vec<Snippet>,
    known: [BTreeMap<Arc<str>, SnippetIx>; 4],
    wrong: WrongTexts,
    names: KnownNames<'a>,
    /// Additional names in the scope of the snippets that are being added.
    here: Vec<String>,
}

/// Faults by snippet.
pub(super) type WrongTexts = BTreeMap<SnippetIx, Vec<TextFault>>;

impl<'a> Snippets<'a> {
    pub(in crate::graph) fn new(syntax: &'a dyn Syntax, names: KnownNames<'a>) -> Self {
        Self::with(syntax, names, BTreeMap::new())
    }

    /// Creates a table that accepts every snippet.
    pub(in crate::graph) fn unchecked() -> Self {
        Self::with(&NoSyntax, KnownNames::default(), BTreeMap::new())
    }

    /// Creates a table for snippets with known faults.
    pub(in crate::graph) fn checked(wrong: WrongTexts) -> Self {
        Self::with(&NoSyntax, KnownNames::default(), wrong)
    }

    fn with(syntax: &'a dyn Syntax, names: KnownNames<'a>, wrong: WrongTexts) -> Self {
        Self {
            syntax,
            all: Vec::new(),
            known: Default::default(),
            wrong,
            names,
            here: Vec::new(),
        }
    }

    /// Adds snippets that have these additional names in scope.
    pub(in crate::graph) fn over<R>(&mut self, names: &[&str], take_in: impl FnOnce(&mut Self) -> R) -> R {
        self.here = names.iter().map(|name| (*name).to_owned()).collect();
        let taken = take_in(self);
        self.here.clear();
        taken
    }

    /// Returns the faults of the snippets of a table that was created with [`Self::unchecked`].
    pub(in crate::graph) fn check(&self, syntax: &dyn Syntax, names: &KnownNames<'_>) -> WrongTexts {
        let mut wrong: WrongTexts = syntax
            .wrong_of(&self.all)
            .into_iter()
            .map(|(place, fault)| (place as SnippetIx, vec![TextFault::of_syntax(&self.all[place], fault)]))
            .collect();
        for (place, text) in self.all.iter().enumerate() {
            if let Entry::Vacant(entry) = wrong.entry(place as SnippetIx) {
                let unknown = names.unknown_in(text, syntax);
                if !unknown.is_empty() {
                    entry.insert(unknown);
                }
            }
        }
        wrong
    }

    pub(in crate::graph) fn into_table(self) -> Vec<Snippet> {
        self.all
    }

    pub(in crate::graph) fn expression(
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
            let message = format!("the expression has {length} characters; the limit is {LONGEST_EXPRESSION}");
            report.fault_with_help(
                FaultCode::InvalidExpression,
                &pointer(),
                message,
                "put it into a CODE node",
            );
            // a workflow with faults has no graph, so the index is never used
            return SnippetIx::MAX;
        }
        self.text(SnippetKind::Expression, text, pointer, report)
    }

    pub(in crate::graph) fn template(
        &mut self,
        text: &str,
        pointer: impl Fn() -> Vec<Step>,
        report: &mut Diagnostics<'_>,
    ) -> SnippetIx {
        self.text(SnippetKind::Template, text, pointer, report)
    }

    pub(in crate::graph) fn script(
        &mut self,
        text: &str,
        pointer: impl Fn() -> Vec<Step>,
        report: &mut Diagnostics<'_>,
    ) -> SnippetIx {
        self.text(SnippetKind::Code, text, pointer, report)
    }

    pub(in crate::graph) fn workflow(
        &mut self,
        text: &str,
        pointer: impl Fn() -> Vec<Step>,
        report: &mut Diagnostics<'_>,
    ) -> SnippetIx {
        self.text(SnippetKind::Workflow, text, pointer, report)
    }

    /// Adds an input: text is an expression, anything else is used literally, with templates in its strings.
    pub(in crate::graph) fn input(
        &mut self,
        value: &Value,
        pointer: &[Step],
        report: &mut Diagnostics<'_>,
    ) -> ValueSpec {
        match value {
            Value::String(text) => ValueSpec::Expression(self.expression(text, || pointer.to_vec(), report)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.value(value, pointer, report)
            }
        }
    }

    /// Adds a value with templates in its strings.
    pub(in crate::graph) fn value(
        &mut self,
        value: &Value,
        pointer: &[Step],
        report: &mut Diagnostics<'_>,
    ) -> ValueSpec {
        // The loader has checked files, but not the definitions that Rust code builds.
        if pointer.len() + levels_up_to(MAX_DEFINITION_DEPTH, value) > MAX_DEFINITION_DEPTH {
            report.fault(FaultCode::LimitExceeded, pointer, too_deep_definition());
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
        let place = self.add(kind, text);
        let is_known = |fault: &TextFault| fault.name.as_ref().is_some_and(|name| self.here.contains(name));
        let wrong = self.wrong.get(&place).into_iter().flatten();
        for fault in wrong.filter(|fault| !is_known(fault)) {
            fault.report(&pointer(), report);
        }
        place
    }

    fn add(&mut self, kind: SnippetKind, text: &str) -> SnippetIx {
        if let Some(place) = self.known[kind as usize].get(text) {
            return *place;
        }
        let place = self.all.len() as SnippetIx;
        let source: Arc<str> = Arc::from(text);
        self.known[kind as usize].insert(Arc::clone(&source), place);
        let snippet = Snippet { kind, source };
        let wrong = match self.syntax.check(&snippet) {
            Err(fault) => vec![TextFault::of_syntax(&snippet, fault)],
            Ok(()) => self.names.unknown_in(&snippet, self.syntax),
        };
        if !wrong.is_empty() {
            self.wrong.insert(place, wrong);
        }
        self.all.push(snippet);
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
