//! The port to whatever reads expressions, templates and scripts; this crate reads none of them.

use std::ops::Range;

use super::model::{Snippet, SnippetKind};
use crate::definition::MAX_FAULTS;
use crate::script::FreeName;

/// Parses texts, for their faults only.
pub trait Syntax {
    /// A JavaScript expression; `{{path}}` stands for a value in it.
    fn expression(&self, text: &str) -> Result<(), SyntaxFault>;
    /// A template.
    fn template(&self, text: &str) -> Result<(), SyntaxFault>;
    /// The body of a JavaScript async function.
    fn script(&self, text: &str) -> Result<(), SyntaxFault>;

    /// The names that a text takes from outside of itself, besides what every text of its kind can use. None for a template.
    fn free_names(&self, _text: &Snippet) -> Vec<FreeName> {
        Vec::new()
    }

    /// A text of any kind.
    fn check(&self, text: &Snippet) -> Result<(), SyntaxFault> {
        match text.kind {
            SnippetKind::Expression => self.expression(&text.source),
            SnippetKind::Template => self.template(&text.source),
            SnippetKind::Code => self.script(&text.source),
        }
    }

    /// Many texts: the places of those that do not parse, ascending. In no order of its own, so that it may be shared among
    /// threads.
    fn wrong_of(&self, texts: &[Snippet]) -> Vec<(usize, SyntaxFault)> {
        let checked = texts.iter().map(|text| self.check(text)).enumerate();
        checked
            .filter_map(|(place, checked)| Some((place, checked.err()?)))
            // No more are reported.
            .take(MAX_FAULTS + 1)
            .collect()
    }
}

/// Why a text does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxFault {
    /// One sentence for a person.
    pub message: String,
    /// The bytes of the text that are wrong, where they are known.
    pub at: Option<Range<usize>>,
}

/// Accepts every text: for tests, and where no engine is at hand.
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
