//! What reaches the terminal, and the exit codes (SPEC section 8).

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

/// Failed, or invalid.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage, or an unreadable file.
pub(crate) const USAGE: u8 = 2;

/// How a command prints its result.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// A bar of `len` steps on stderr; hidden where nobody is to be shown one.
pub(crate) fn bar(is_quiet: bool, len: u64, template: &str) -> ProgressBar {
    if is_quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(len);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Writes the result to stdout and ends with `code`. A reader that went away is no failure: it had what it wanted.
pub(crate) fn answer(text: &str, code: u8) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(code),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(code),
        Err(error) => complain(&format!("cannot write the result: {error}"), FAILED),
    }
}

/// Says on stderr what went wrong and ends with `code`.
pub(crate) fn complain(text: &str, code: u8) -> ExitCode {
    // where stderr is gone too, the exit code is all that is left to say it
    let _ = writeln!(io::stderr().lock(), "pirn: {text}");
    ExitCode::from(code)
}
