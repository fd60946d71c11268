//! Port to the parsers of expressions, templates and scripts; this crate has none.

use std::ops::Range;

use super::model::{Snippet, SnippetKind};
use crate::definition::{MAX_FAULTS, nearest};
use crate::script::place::line_and_column;
use crate::script::{AGENT_OPTIONS, FreeName, unknown_agent_option};

/// Parses snippets to find their faults.
pub trait Syntax {
    /// Checks a JavaScript expression, in which `{{path}}` is a value.
    fn expression(&self, text: &str) -> Result<(), SyntaxFault>;
    /// Checks a template.
    fn template(&self, text: &str) -> Result<(), SyntaxFault>;
    /// Checks the body of a JavaScript async function.
    fn script(&self, text: &str) -> Result<(), SyntaxFault>;

    /// Returns the free names of a snippet, except those in scope of every snippet of its kind. For a
    /// template, those of its plain tags.
    fn free_names(&self, _text: &Snippet) -> Vec<FreeName> {
        Vec::new()
    }

    /// Checks a snippet of any kind.
    fn check(&self, text: &Snippet) -> Result<(), SyntaxFault> {
        match text.kind {
            SnippetKind::Expression => self.expression(&text.source),
            SnippetKind::Template => self.template(&text.source),
            SnippetKind::Code => self.script(&text.source),
            SnippetKind::Workflow => self.script(&text.source).and_then(|()| known_options(&text.source)),
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

/// Checks the options of `agent` that a script workflow writes as a literal.
fn known_options(source: &str) -> Result<(), SyntaxFault> {
    let Some((at, name)) = unknown_agent_option(source) else {
        return Ok(());
    };
    let message = agent_option_fault(name).unwrap_or_default();
    let message = if source.contains('\n') {
        let (line, column) = line_and_column(source, at.start);
        format!("{message} (line {line}, column {column} of the text)")
    } else {
        message
    };
    Err(SyntaxFault { message, at: Some(at) })
}

/// Returns the fault of an option of `agent` that does not exist; `None` if it exists.
pub fn agent_option_fault(name: &str) -> Option<String> {
    if AGENT_OPTIONS.contains(&name) {
        return None;
    }
    let advice = match nearest(name, AGENT_OPTIONS.into_iter()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the options are {}", AGENT_OPTIONS.join(", ")),
    };
    Some(format!("agent: there is no option `{name}`: {advice}"))
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
