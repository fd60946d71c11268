//! Faults and warnings within a string of a definition.

use std::ops::Range;

use crate::definition::FaultCode;
use crate::definition::json::Step;
use crate::graph::diagnostics::Diagnostics;
use crate::graph::model::{Snippet, SnippetKind};
use crate::graph::syntax::SyntaxFault;
use crate::script::assignment;

/// Advice for an expression that assigns a value.
pub(super) const COMPARE: &str = "`=` assigns a value: use `==` to compare";

/// Advice for an expression that is written as a template.
const CONCATENATE: &str = "an expression is JavaScript, in which `{{path}}` is a value: write `'Hello ' + input.name`";

/// A fault or a warning of a snippet, and its byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::graph) struct TextFault {
    pub(super) code: FaultCode,
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) at: Option<Range<usize>>,
    /// The unknown name, or the name whose field is unknown.
    pub(in crate::graph) name: Option<String>,
    /// True if the snippet is valid.
    pub(super) is_warning: bool,
}

impl TextFault {
    pub(super) fn of_syntax(text: &Snippet, fault: SyntaxFault) -> Self {
        let is_expression = text.kind == SnippetKind::Expression;
        let help = if is_expression && assignment(&text.source).is_some() {
            Some(COMPARE)
        } else if is_expression && text.source.contains("{{") {
            Some(CONCATENATE)
        } else {
            None
        };
        Self {
            code: match text.kind {
                SnippetKind::Expression | SnippetKind::Code | SnippetKind::Workflow => FaultCode::InvalidExpression,
                SnippetKind::Template => FaultCode::InvalidTemplate,
            },
            message: fault.message,
            help: help.map(str::to_owned),
            at: fault.at,
            name: None,
            is_warning: false,
        }
    }

    /// Reports the fault at `pointer`.
    pub(in crate::graph) fn report(&self, pointer: &[Step], report: &mut Diagnostics<'_>) {
        let message = self.message.as_str();
        let fault = match &self.at {
            Some(at) => report.origin.fault_within(self.code, pointer, at, message),
            None => report.origin.fault(self.code, pointer, message),
        };
        let fault = match &self.help {
            Some(help) => fault.with_help(help.as_str()),
            None => fault,
        };
        if self.is_warning {
            report.warnings.push(fault);
        } else {
            report.faults.push(fault);
        }
    }
}
