//! The failure of a command, for people on stderr and for programs on stdout.

use std::borrow::Cow;
use std::io::{Write, stderr};
use std::process::ExitCode;

use pirn::check::{CheckedFiles, Fault, SourceFile};
use pirn::config::ConfigText;
use serde_json::{Value, json};

use super::redact::masked;
use super::sanitize::sanitize;
use super::terminal::{FAILED, Output, USAGE, answer, counted, json_text};
use super::{faults, terminal};

/// One failure. As JSON `{error: {code, message, help?}}`, with `errors` and `warnings` if files have faults.
pub(crate) struct Failure {
    exit: u8,
    code: Cow<'static, str>,
    message: String,
    help: Option<String>,
    files: Option<Box<(Vec<SourceFile>, CheckedFiles)>>,
    place: Option<String>,
}

impl Failure {
    /// Creates a failure with exit code 1: the run, the call or the check failed.
    pub(crate) fn failed(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            exit: FAILED,
            code: code.into(),
            message: message.into(),
            help: None,
            files: None,
            place: None,
        }
    }

    /// Creates a failure with exit code 2: wrong usage, or an unreadable file.
    pub(crate) fn usage(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            exit: USAGE,
            ..Self::failed(code, message)
        }
    }

    /// Creates a failure with exit code 1 for files with faults, each shown with an excerpt.
    pub(crate) fn invalid(files: Vec<SourceFile>, config: Option<&ConfigText>, checked: CheckedFiles) -> Self {
        let count = checked.faults().len();
        let shown = faults::texts(files, config);
        Self {
            files: Some(Box::new((shown, checked))),
            ..Self::failed("INVALID_WORKFLOW", format!("{} in the files", counted(count, "error")))
        }
    }

    /// A failure that another process reports, with its exit code.
    pub(crate) fn told(exit: u8, code: String, message: String) -> Self {
        Self {
            exit,
            ..Self::failed(code, message)
        }
    }

    /// Sets the exit code.
    pub(crate) fn exiting(self, exit: u8) -> Self {
        Self { exit, ..self }
    }

    /// Returns the error code.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// Returns exit code, error code, message and help, for another process.
    pub(crate) fn into_told(self) -> (u8, String, String, Option<String>) {
        (self.exit, self.code.into_owned(), self.message, self.help)
    }

    /// Adds a hint on how to fix the failure.
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds an excerpt of the file at the fault's location.
    pub(crate) fn shown_at(mut self, files: &[SourceFile], place: &Fault) -> Self {
        self.place = Some(faults::place(files, place, terminal::on_stderr()));
        self
    }

    /// Prints the failure and returns its exit code.
    pub(crate) fn report(self, output: Output) -> ExitCode {
        match output {
            Output::Json => answer(&json_text(self.json()), self.exit),
            Output::Text => {
                let text = self.text();
                // Ignore the error: without stderr, only the exit code reports the failure.
                let _ = writeln!(stderr().lock(), "{}", masked(text.trim_end()));
                ExitCode::from(self.exit)
            }
        }
    }

    /// Returns the failure for programs.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({"code": self.code, "message": masked(&self.message)});
        if let Some(help) = &self.help {
            error["help"] = json!(masked(help));
        }
        match self.files.as_deref() {
            Some((_, checked)) => json!({"error": error, "errors": checked.faults(), "warnings": checked.warnings()}),
            None => json!({ "error": error }),
        }
    }

    fn text(&self) -> String {
        if let Some((files, checked)) = self.files.as_deref() {
            return faults::text(files, checked, terminal::on_stderr());
        }
        let help = self.help.as_ref().map(|help| format!("\n  help: {help}"));
        let place = self.place.as_ref().map(|place| format!("\n{}", place.trim_end()));
        let (place, help) = (place.unwrap_or_default(), help.unwrap_or_default());
        format!("pirn: {}{place}{}", sanitize(&self.message), sanitize(&help))
    }
}
