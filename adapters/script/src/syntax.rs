//! Checks snippets when a workflow is loaded, without running them.

use std::collections::BTreeSet;
#[cfg(feature = "javascript")]
use std::ops::Range;

use pirn_definition::graph::{Snippet, SnippetKind, Syntax, SyntaxFault};
#[cfg(feature = "javascript")]
use pirn_definition::script::Member;
use pirn_definition::script::place;
use pirn_definition::script::{FreeName, free_names};

use crate::compress;
use crate::template::{Template, names_of_template};

/// A syntax fault of a snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFault {
    /// Description in one sentence, for display.
    pub message: String,
    /// Line in the snippet, from 1, if the parser reports one.
    pub line: Option<u32>,
    /// Column in the line, from 1.
    pub column: Option<u32>,
}

/// Checks expressions, scripts and templates. All are compiled in one context, created for the first snippet, so that thousands of
/// snippets are cheap to check. Not `Send`: create one for each loading.
pub struct TextSyntax {
    /// Names of the functions that CODE can call.
    functions: BTreeSet<String>,
    #[cfg(feature = "javascript")]
    parser: std::cell::RefCell<Option<crate::quickjs::parser::Parser>>,
}

impl Default for TextSyntax {
    fn default() -> Self {
        Self {
            functions: BTreeSet::from([compress::NAME.to_owned()]),
            #[cfg(feature = "javascript")]
            parser: std::cell::RefCell::default(),
        }
    }
}

impl TextSyntax {
    /// Returns the checker with additional functions that CODE can call.
    #[must_use]
    pub fn with_functions(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.functions.extend(names);
        self
    }

    /// Checks that `text` is one expression, which may contain `{{path}}` as a value.
    ///
    /// # Errors
    /// The fault and its position.
    pub fn check_expression(&self, text: &str) -> Result<(), TextFault> {
        if Self::is_plain(text) {
            return Ok(());
        }
        self.script_expression(text)
    }

    /// Returns whether `text` is certainly one expression, determined without QuickJS.
    pub(super) fn is_plain(text: &str) -> bool {
        pirn_definition::script::Plain::read(text).is_some()
    }

    /// Checks that `text` is the body of an async function.
    ///
    /// # Errors
    /// The fault and its position.
    pub fn check_script(&self, text: &str) -> Result<(), TextFault> {
        self.script_body(text)
    }

    /// Checks that `text` is a template.
    ///
    /// # Errors
    /// The fault and its position.
    #[allow(clippy::unused_self)] // beside its siblings
    pub fn check_template(&self, text: &str) -> Result<(), TextFault> {
        Template::check(text)
    }
}

impl Syntax for TextSyntax {
    fn expression(&self, text: &str) -> Result<(), SyntaxFault> {
        self.check_expression(text).map_err(|fault| fault.within(text))
    }
    fn template(&self, text: &str) -> Result<(), SyntaxFault> {
        self.check_template(text).map_err(|fault| fault.within(text))
    }
    fn script(&self, text: &str) -> Result<(), SyntaxFault> {
        self.check_script(text).map_err(|fault| fault.within(text))
    }
    fn free_names(&self, text: &Snippet) -> Vec<FreeName> {
        match text.kind {
            SnippetKind::Expression => names_of_expression(&text.source),
            SnippetKind::Code => {
                let free = free_names(&text.source).into_iter();
                free.filter(|free| !self.functions.contains(&free.name)).collect()
            }
            SnippetKind::Workflow => free_names(&text.source),
            SnippetKind::Template => names_of_template(&text.source),
        }
    }
}

impl TextFault {
    /// Adds the position in the snippet, also to the message if the snippet has several lines.
    fn within(self, text: &str) -> SyntaxFault {
        let Some((line, column)) = self.line.zip(self.column) else {
            return SyntaxFault {
                message: self.message,
                at: None,
            };
        };
        let start = place::offset(text, line, column);
        let word = text[start..].find(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | '$'));
        let end = match word {
            None => text.len(),
            Some(0) => start + text[start..].chars().next().map_or(0, char::len_utf8),
            Some(length) => start + length,
        };
        let message = if text.contains('\n') {
            format!("{} (line {line}, column {column} of the text)", self.message)
        } else {
            self.message
        };
        SyntaxFault {
            message,
            at: Some(start..end),
        }
    }
}

#[cfg(feature = "javascript")]
fn names_of_expression(text: &str) -> Vec<FreeName> {
    use crate::quickjs::realm::{PLACEHOLDER, placeholder_call};

    let Some(rewritten) = crate::placeholder::rewrite(text, placeholder_call) else {
        return free_names(text);
    };
    let free = free_names(&rewritten.source).into_iter();
    let own = free.filter(|free| free.name != PLACEHOLDER);
    let original = |at: Range<usize>| rewritten.shifts.original(at.start)..rewritten.shifts.original(at.end);
    own.map(|free| FreeName {
        at: original(free.at),
        members: free
            .members
            .into_iter()
            .map(|member| Member {
                at: original(member.at),
                field: member.field.map(original),
            })
            .collect(),
        ..free
    })
    .collect()
}

#[cfg(not(feature = "javascript"))]
fn names_of_expression(text: &str) -> Vec<FreeName> {
    // Without JavaScript, the names in an expression with `{{path}}` are not determined.
    if text.contains("{{") {
        Vec::new()
    } else {
        free_names(text)
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
        use crate::quickjs::realm::{Form, PLACEHOLDER, placeholder_call};

        let rewritten = crate::placeholder::rewrite(text, placeholder_call);
        let source = rewritten.as_ref().map_or(text, |rewritten| rewritten.source.as_str());
        let parsed = match self.parse(source, Form::Expression) {
            // The parentheses belong to the wrapper and not to the snippet; the other form wraps it in square brackets.
            Err(fault) if fault.message.contains("expecting ')'") => {
                let other = self.parse(source, Form::BracketedExpression);
                let is_outside = other.is_err_and(|other| other.message.contains("expecting ']'"));
                Err(if is_outside { fault.saying(MORE) } else { fault })
            }
            Err(fault) => Err(fault),
            Ok(()) if keeps_its_brackets(source) => Ok(()),
            Ok(()) => {
                let bracketed = self.parse(source, Form::BracketedExpression);
                bracketed.map_err(|fault| fault.saying("SyntaxError: a closing bracket has no opening bracket"))
            }
        };
        parsed.map_err(|fault| {
            let fault = if begins_with_return(text) {
                fault.saying(RETURN)
            } else if fault.message.contains(PLACEHOLDER) {
                fault.saying("SyntaxError: unexpected `{{`")
            } else {
                fault
            };
            match &rewritten {
                Some(rewritten) => fault.moved(source, text, &rewritten.shifts),
                None => fault,
            }
        })
    }

    fn script_body(&self, text: &str) -> Result<(), TextFault> {
        if let Some(at) = pirn_definition::script::long_pattern(text, LONGEST_PATTERN) {
            let (line, column) = place::line_and_column(text, at.start);
            return Err(TextFault {
                message: format!(
                    "a regular expression of {} bytes: the limit is {LONGEST_PATTERN}; look words up in a Set instead",
                    at.len()
                ),
                line: Some(line),
                column: Some(column),
            });
        }
        let parsed = self.parse(text, crate::quickjs::realm::Form::Script);
        parsed.map_err(|fault| match module_statement(text, &fault) {
            Some(message) => fault.saying(message),
            None => fault,
        })
    }

    fn parse(&self, source: &str, form: crate::quickjs::realm::Form) -> Result<(), TextFault> {
        use crate::quickjs::parser::Parser;

        let mut parser = self.parser.borrow_mut();
        if parser.as_ref().is_none_or(Parser::is_spent) {
            *parser = Some(Parser::new().map_err(TextFault::from)?);
        }
        match parser.as_mut() {
            Some(parser) => parser.parse(source, form).map_err(|fault| {
                let mut fault = TextFault::from(fault);
                if let Some((line, column)) = fault.line.zip(fault.column) {
                    fault.column = Some(place::column_of_bytes(source, line, column));
                }
                if fault
                    .line
                    .is_some_and(|line| line as usize > source.split('\n').count())
                {
                    TextFault::at_the_end(source, form)
                } else {
                    fault
                }
            }),
            None => Ok(()),
        }
    }
}

/// Maximum length of a regular expression literal in bytes.
#[cfg(feature = "javascript")]
const LONGEST_PATTERN: usize = 32 << 10;

/// Returns the message for a fault in a line that imports or exports: QuickJS names only the unexpected word.
#[cfg(feature = "javascript")]
fn module_statement(text: &str, fault: &TextFault) -> Option<&'static str> {
    let line = text.split('\n').nth(fault.line?.checked_sub(1)? as usize)?.trim_start();
    let begins = |word: &str| {
        line.strip_prefix(word)
            .is_some_and(|rest| rest.starts_with([' ', '{', '*', '"', '\'']))
    };
    if begins("import") {
        return Some("SyntaxError: a script cannot import modules: write the function here, or call a tool");
    }
    begins("export").then_some(
        "SyntaxError: a script cannot export: `return` its result; only `export const meta = {...}` may be its first statement",
    )
}

/// Fault of a second expression, or of other source after a complete expression.
#[cfg(feature = "javascript")]
const MORE: &str = "SyntaxError: unexpected code after the end of the expression";

/// Fault of a statement in place of an expression.
#[cfg(feature = "javascript")]
const RETURN: &str = "SyntaxError: an expression is a value: write it without `return`; a CODE node takes statements";

#[cfg(feature = "javascript")]
fn begins_with_return(text: &str) -> bool {
    let rest = text.trim_start().strip_prefix("return");
    rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$')))
}

#[cfg(feature = "javascript")]
impl TextFault {
    fn saying(self, message: &str) -> Self {
        Self {
            message: message.to_owned(),
            ..self
        }
    }

    /// Creates a fault found in the wrapper after the snippet: the snippet ends too early, or has surplus closing brackets.
    fn at_the_end(text: &str, form: crate::quickjs::realm::Form) -> Self {
        let (line, column) = place::line_and_column(text, text.trim_end().len());
        let message = match form {
            _ if text.matches('}').count() > text.matches('{').count() => "SyntaxError: a `}` has no opening `{`",
            crate::quickjs::realm::Form::Script => {
                "SyntaxError: the script ends too early: add the missing operand or closing bracket"
            }
            crate::quickjs::realm::Form::Expression | crate::quickjs::realm::Form::BracketedExpression => {
                "SyntaxError: the expression ends too early: add the missing operand or closing bracket"
            }
        };
        Self {
            message: message.to_owned(),
            line: Some(line),
            column: Some(column),
        }
    }

    /// Converts the position in the rewritten text to the original one.
    fn moved(self, source: &str, text: &str, shifts: &crate::placeholder::Shifts) -> Self {
        let Some((line, column)) = self.line.zip(self.column) else {
            return self;
        };
        let (line, column) = place::line_and_column(text, shifts.original(place::offset(source, line, column)));
        Self {
            line: Some(line),
            column: Some(column),
            ..self
        }
    }
}

/// Returns whether the snippet certainly has no surplus closing parenthesis: then, if it parses in parentheses, it is one
/// expression. With possible brackets in strings, comments or regular expressions the result is false.
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
impl From<pirn_definition::script::ScriptFault> for TextFault {
    fn from(fault: pirn_definition::script::ScriptFault) -> Self {
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

/// Without JavaScript, only plain paths can be evaluated, so everything else is a fault.
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
        message: crate::code::built_without().message,
        line: None,
        column: None,
    }
}
