//! Checks texts when a workflow is loaded; nothing runs.

use pirn_core::graph::{Syntax, SyntaxFault};

use super::template::Template;

/// Why a text does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFault {
    /// One sentence for a person.
    pub message: String,
    /// Line in the text, from 1, where the parser says so.
    pub line: Option<u32>,
    /// Column in the line, from 1.
    pub column: Option<u32>,
}

/// Checks expressions, scripts and templates. It compiles in one context, made when the first text needs it, so
/// thousands of texts cost little. Not `Send`: make one for each loading.
#[derive(Default)]
pub struct TextSyntax {
    #[cfg(feature = "javascript")]
    parser: std::cell::RefCell<Option<super::parser::Parser>>,
}

impl TextSyntax {
    /// Whether `text` is one expression (with `{{path}}` for a value).
    ///
    /// # Errors
    /// Why not, and where.
    pub fn check_expression(&self, text: &str) -> Result<(), TextFault> {
        if Self::is_plain(text) {
            return Ok(());
        }
        self.script_expression(text)
    }

    /// Whether `text` is one expression for certain, told without QuickJS.
    pub(super) fn is_plain(text: &str) -> bool {
        pirn_core::script::Plain::read(text).is_some()
    }

    /// Whether `text` is the body of an async function.
    ///
    /// # Errors
    /// Why not, and where.
    pub fn check_script(&self, text: &str) -> Result<(), TextFault> {
        self.script_body(text)
    }

    /// Whether `text` is a template.
    ///
    /// # Errors
    /// Why not, and where.
    #[allow(clippy::unused_self)] // beside its siblings
    pub fn check_template(&self, text: &str) -> Result<(), TextFault> {
        Template::check(text)
    }
}

impl Syntax for TextSyntax {
    fn expression(&self, text: &str) -> Result<(), SyntaxFault> {
        self.check_expression(text).map_err(SyntaxFault::from)
    }
    fn template(&self, text: &str) -> Result<(), SyntaxFault> {
        self.check_template(text).map_err(SyntaxFault::from)
    }
    fn script(&self, text: &str) -> Result<(), SyntaxFault> {
        self.check_script(text).map_err(SyntaxFault::from)
    }
}

impl From<TextFault> for SyntaxFault {
    fn from(fault: TextFault) -> Self {
        let message = match (fault.line, fault.column) {
            (Some(line), Some(column)) => format!("{} (line {line}, column {column} of the text)", fault.message),
            _ => fault.message,
        };
        Self { message }
    }
}

impl std::fmt::Debug for TextSyntax {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextSyntax").finish_non_exhaustive()
    }
}

#[cfg(feature = "javascript")]
impl TextSyntax {
    fn script_expression(&self, text: &str) -> Result<(), TextFault> {
        self.ask_quickjs(text)
    }

    pub(super) fn ask_quickjs(&self, text: &str) -> Result<(), TextFault> {
        use super::realm::{Form, placeholder_call};

        let rewritten = super::placeholder::rewrite(text, placeholder_call);
        let source = rewritten.as_ref().map_or(text, |rewritten| rewritten.source.as_str());
        self.parse(source, Form::Expression)?;
        if keeps_its_brackets(source) {
            return Ok(());
        }
        self.parse(source, Form::BracketedExpression)
    }

    fn script_body(&self, text: &str) -> Result<(), TextFault> {
        self.parse(text, super::realm::Form::Script)
    }

    fn parse(&self, source: &str, form: super::realm::Form) -> Result<(), TextFault> {
        use super::parser::Parser;

        let mut parser = self.parser.borrow_mut();
        if parser.as_ref().is_none_or(Parser::is_spent) {
            *parser = Some(Parser::new().map_err(TextFault::from)?);
        }
        match parser.as_mut() {
            Some(parser) => parser.parse(source, form).map_err(TextFault::from),
            None => Ok(()),
        }
    }
}

/// Whether a text for certain closes no round bracket that it has not opened: then what parses in round brackets is one
/// expression. Where a bracket may stand in a text, a comment or a regular expression, that is not certain.
#[cfg(feature = "javascript")]
fn keeps_its_brackets(text: &str) -> bool {
    if text.contains(['"', '\'', '`', '/', '\\']) || text.contains("--") {
        return !text.contains(')');
    }
    let mut open = 0_usize;
    for letter in text.bytes() {
        match letter {
            b'(' => open += 1,
            b')' if open == 0 => return false,
            b')' => open -= 1,
            _ => {}
        }
    }
    true
}

#[cfg(feature = "javascript")]
impl From<pirn_core::script::ScriptFault> for TextFault {
    fn from(fault: pirn_core::script::ScriptFault) -> Self {
        let number = |field: &str| {
            let number = fault.details.as_ref()?.get(field)?.as_u64()?;
            u32::try_from(number).ok()
        };
        Self {
            line: number("line"),
            column: number("column"),
            message: fault.message,
        }
    }
}

/// Without JavaScript nothing but plain paths can be evaluated, so nothing else is a good text.
#[cfg(not(feature = "javascript"))]
impl TextSyntax {
    #[allow(clippy::unused_self)] // as with the feature
    fn script_expression(&self, _: &str) -> Result<(), TextFault> {
        Err(without_javascript())
    }

    #[allow(clippy::unused_self)] // as with the feature
    fn script_body(&self, _: &str) -> Result<(), TextFault> {
        Err(without_javascript())
    }
}

#[cfg(not(feature = "javascript"))]
fn without_javascript() -> TextFault {
    TextFault {
        message: super::code::built_without().message,
        line: None,
        column: None,
    }
}
