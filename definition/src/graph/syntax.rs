//! Port to the parsers of expressions, templates and scripts; this crate has none.

use std::ops::Range;

use super::model::{Snippet, SnippetKind};
use crate::definition::MAX_FAULTS;
use crate::script::FreeName;

/// Parses snippets to find their faults.
pub trait Syntax {
    /// Checks a JavaScript expression, in which `{{path}}` is a value.
    fn expression(&self, text: &str) -> Result<(), SyntaxFault>;
    /// Checks a template.
    fn template(&self, text: &str) -> Result<(), SyntaxFault>;
    /// Checks the body of a JavaScript async function.
    fn script(&self, text: &str) -> Result<(), SyntaxFault>;

    /// Returns the free names of a snippet, except those in scope of every snippet of its kind. Empty for a template.
    fn free_names(&self, _text: &Snippet) -> Vec<FreeName> {
        Vec::new()
    }

    /// Checks a snippet of any kind.
    fn check(&self, text: &Snippet) -> Result<(), SyntaxFault> {
        match text.kind {
            SnippetKind::Expression => self.expression(&text.source),
            SnippetKind::Template => self.template(&text.source),
            SnippetKind::Code => self.script(&text.source),
        }
    }

    /// Returns the indices of the snippets that do not parse, ascending. The checks are independent, so an implementation may
    /// distribute them over threads.
    fn wrong_of(&self, texts: &[Snippet]) -> Vec<(usize, SyntaxFault)> {
        let checked = texts.iter().map(|text| self.check(text)).enumerate();
        checked
            .filter_map(|(place, checked)| Some((place, checked.err()?)))
            // No more faults are reported.
            .take(MAX_FAULTS + 1)
            .collect()
    }
}

/// Reason why a snippet does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxFault {
    /// Description in one sentence, for display.
    pub message: String,
    /// Byte range of the fault, if it can be determined.
    pub at: Option<Range<usize>>,
}

/// Accepts every snippet: for tests, and for builds without a script engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSyntax;

impl Syntax for NoSyntax {
    fn expression(&self, _: &str) -> Result<(), SyntaxFault> {
        Ok(())
    }
    fn template(&self, _: &str) -> Result<(), SyntaxFault> {
        Ok(())
    }
    fn script(&self, _: &str) -> Result<(), SyntaxFault> {
        Ok(())
    }
}
