//! Terminal output, its width and colours, and the exit codes.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use console::{Term, measure_text_width};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::sanitize::sanitize;

/// Exit code of a failure or an invalid file.
pub(crate) const FAILED: u8 = 1;
/// Exit code of wrong usage, or of an unreadable file.
pub(crate) const USAGE: u8 = 2;
/// Exit code of a run that its time limit ended, as that of `timeout`.
pub(crate) const TIMED_OUT: u8 = 124;
/// Exit code after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// Line width if the terminal does not report one.
const DEFAULT_COLUMNS: usize = 100;

/// The format of a command's result.
#[derive(Clone, Copy, Default, PartialEq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Text for people
    #[default]
    Text,
    /// One JSON object on stdout, also for failures
    Json,
}

/// Version of the JSON objects that commands print. Fields may be added within a version.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Formats the JSON output of a command; an object gets the field `formatVersion`.
pub(crate) fn json_text(mut value: Value) -> String {
    if let Value::Object(fields) = &mut value {
        fields.insert("formatVersion".to_owned(), FORMAT_VERSION.into());
    }
    format!("{value:#}\n")
}

/// The choice of colours in the output.
#[derive(Clone, Copy, Default, PartialEq, clap::ValueEnum)]
pub(crate) enum Color {
    /// Colours on a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Colours always
    Always,
    /// No colours
    Never,
}

impl Color {
    /// Applies the choice to all later output.
    pub(crate) fn apply(self) {
        let chosen = match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if is_without_colour() => false,
            Self::Auto => return,
        };
        console::set_colors_enabled(chosen);
        console::set_colors_enabled_stderr(chosen);
    }
}

/// Formats a count with its noun, such as `2 errors`.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, word: &str) -> String {
    let plural = if count == 1.into() { "" } else { "s" };
    format!("{count} {word}{plural}")
}

/// Formats a table; each column is as wide as its widest cell.
pub(crate) fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines = vec![heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows);
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| measure_text_width(&line[column]))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| {
            // Pad by display width: a character may take two columns, or none.
            let rest = width.saturating_sub(measure_text_width(cell));
            format!("{cell}{:rest$}", "")
        });
        let joined = cells.collect::<Vec<_>>().join("  ");
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", joined.trim_end());
    }
    text
}

/// True if `NO_COLOR` is set, or the terminal has no capabilities (`TERM=dumb`).
fn is_without_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Properties of an output stream.
#[derive(Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) columns: usize,
    pub(crate) has_colour: bool,
}

/// Returns the properties of stdout.
pub(crate) fn on_stdout() -> Screen {
    Screen {
        columns: columns(&Term::stdout()),
        has_colour: console::colors_enabled(),
    }
}

/// Returns the properties of stderr.
pub(crate) fn on_stderr() -> Screen {
    Screen {
        columns: columns(&Term::stderr()),
        has_colour: console::colors_enabled_stderr(),
    }
}

fn columns(term: &Term) -> usize {
    let columns = term.size_checked().map(|(_, columns)| usize::from(columns));
    columns.unwrap_or(DEFAULT_COLUMNS).max(20)
}

/// Returns a progress bar of `len` steps on stderr; hidden if `is_quiet` or if stderr is no terminal.
pub(crate) fn bar(is_quiet: bool, len: u64, template: &str) -> ProgressBar {
    if is_quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(len);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Quotes a word of a command that is shown for copying, if a shell would interpret it.
pub(crate) fn shell_quoted(word: &str) -> Cow<'_, str> {
    /// Characters that have no special meaning to a shell within a word.
    const PLAIN: &str = "-_./:=@,+%";
    if !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || PLAIN.contains(c)) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

/// Returns the command of this process without some options, and with another one at the end. `valued` options have a value, `flags`
/// have none.
pub(crate) fn repeating(given: &[String], valued: &[&str], flags: &[&str], added: &str) -> String {
    let mut words = vec!["pirn".to_owned()];
    let mut given = given.iter();
    while let Some(word) = given.next() {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        if valued.contains(&name) {
            if name == word {
                given.next();
            }
        } else if !flags.contains(&word.as_str()) {
            words.push(shell_quoted(word).into_owned());
        }
    }
    words.push(added.to_owned());
    words.join(" ")
}

/// Returns the arguments of this process.
pub(crate) fn given_arguments() -> Vec<String> {
    let given = std::env::args_os().skip(1);
    given.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Prints one line to stderr, outside a run.
pub(crate) fn say(text: &str) {
    // Ignore the error: without stderr the message has no reader.
    let _ = writeln!(io::stderr().lock(), "pirn: {}", sanitize(text));
}

/// Prints the run's id as the first line of a durable run, for programs too.
pub(crate) fn say_run(run_id: &str) {
    // Ignore the error, as in `say`.
    let _ = writeln!(io::stderr().lock(), "run {}", sanitize(run_id));
}

/// Writes the result to stdout and ends with `code`. The text may contain input from others, so control characters are made visible
/// on a terminal; otherwise the text is written unchanged.
pub(crate) fn answer(text: &str, code: u8) -> ExitCode {
    if io::stdout().is_terminal() {
        answer_as_it_is(&sanitize(text), code)
    } else {
        answer_as_it_is(text, code)
    }
}

/// Writes a coloured text like [`answer`], but unchanged: the caller has made the control characters of untrusted parts visible. A
/// broken pipe is not a failure: the reader has read enough.
pub(crate) fn answer_as_it_is(text: &str, code: u8) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(code),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(code),
        Err(error) => {
            say(&format!("cannot write the result: {error}"));
            ExitCode::from(FAILED)
        }
    }
}
