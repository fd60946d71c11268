//! Faults within a string of a definition.

use std::ops::Range;

use super::diagnostics::Diagnostics;
use super::model::SnippetKind;
use super::syntax::SyntaxFault;
use crate::definition::FaultCode;
use crate::definition::json::Step;

/// A fault of a snippet, and its byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextFault {
    pub(super) code: FaultCode,
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) at: Option<Range<usize>>,
    /// The unknown name.
    pub(super) name: Option<String>,
}

impl TextFault {
    pub(super) fn of_syntax(kind: SnippetKind, fault: SyntaxFault) -> Self {
        Self {
            code: match kind {
                SnippetKind::Expression | SnippetKind::Code | SnippetKind::Workflow => FaultCode::InvalidExpression,
                SnippetKind::Template => FaultCode::InvalidTemplate,
            },
            message: fault.message,
            help: None,
            at: fault.at,
            name: None,
        }
    }

    /// Reports the fault at `pointer`.
    pub(super) fn report(&self, pointer: &[Step], report: &mut Diagnostics<'_>) {
        let message = self.message.as_str();
        let fault = match &self.at {
            Some(at) => report.origin.fault_within(self.code, pointer, at, message),
            None => report.origin.fault(self.code, pointer, message),
        };
        report.faults.push(match &self.help {
            Some(help) => fault.with_help(help.as_str()),
            None => fault,
        });
    }
}
