//! `--log` and `RUST_LOG`: the filter and the format of the log. A command without them shows warnings about runs.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::output::failure::Failure;
use crate::output::sanitize::sanitize;
use crate::output::terminal::Output;

/// The format of a log line.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}

/// The arguments of the log.
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    /// Log filter on stderr: error, warn, info, debug, trace, or a RUST_LOG filter (default: RUST_LOG, else info)
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

impl LogArgs {
    /// Starts logging.
    ///
    /// # Errors
    /// Fails if the filter is invalid.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        let filter = match &self.log {
            Some(filter) => EnvFilter::try_new(filter)
                .map_err(|error| Failure::usage("INVALID_USAGE", format!("invalid --log: {error}")))?,
            None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
        };
        let shows_contents = filter.max_level_hint() == Some(LevelFilter::TRACE);
        let without_contents = filter_fn(move |about| shows_contents || !may_have_contents(about));
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            // The report of a line that cannot be written would go to stderr too, by a macro that panics: a service would end because
            // the reader of its log has ended, or the disk of its log is full.
            .log_internal_errors(false);
        let begun = match self.log_format {
            Format::Text => {
                let lines = lines.with_writer(|| VisibleLines(io::stderr()));
                lines.finish().with(without_contents).try_init()
            }
            Format::Json => {
                let lines = lines.with_writer(io::stderr).json();
                lines.finish().with(without_contents).try_init()
            }
        };
        begun.map_err(|error| Failure::failed("NO_LOG", error.to_string()))
    }

    /// Shows a failure that does not end the command, and logs its effect. Each line of a JSON log is an object, so there the failure
    /// is a field of the logged line.
    pub(crate) fn failure(&self, failure: Failure, effect: &str) {
        match self.log_format {
            Format::Text => {
                failure.report(Output::Text);
                tracing::error!("{effect}");
            }
            Format::Json => tracing::error!(failure = %failure.json(), "{effect}"),
        }
    }
}

/// Function that shows a line of the log.
type Show = Box<dyn Fn(String) + Send>;

/// The function that shows lines above the progress of a run, while there is one.
static ABOVE: Mutex<Option<Show>> = Mutex::new(None);

fn above() -> MutexGuard<'static, Option<Show>> {
    // Ignore poisoning: every critical section preserves the invariants.
    ABOVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the function that shows lines above the progress of a run, or with `None` ends that.
pub(crate) fn show_by(show: Option<Show>) {
    *above() = show;
}

/// Shows warnings about runs, and errors, on stderr, for a command without arguments of the log. Has no effect if the log was
/// started.
pub(crate) fn show_warnings() {
    let is_shown = filter_fn(|about| {
        let target = about.target();
        // Other warnings are about a single call, which the progress of its run shows.
        (*about.level() == Level::ERROR && target.starts_with("pirn"))
            || (*about.level() == Level::WARN && target.starts_with("pirn_actors"))
    });
    let lines = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_level(false)
        .with_target(false)
        .with_writer(|| ShownLines);
    // Ignore the error: the log was started.
    lines.finish().with(is_shown).try_init().unwrap_or(());
}

/// Writer that shows each line above the progress of a run, or on stderr if there is none.
struct ShownLines;

impl Write for ShownLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shown = String::from_utf8_lossy(line);
        let shown = format!("pirn: {}", sanitize(shown.trim_end()));
        match &*above() {
            Some(show) => show(shown),
            None => {
                // Ignore the error: without stderr the line has no reader.
                let _ = writeln!(io::stderr().lock(), "{shown}");
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The MCP library logs requests and answers at DEBUG, and notifications at INFO. Contents must appear only if the filter has
/// TRACE, so its lower levels are filtered out without it.
fn may_have_contents(about: &Metadata<'_>) -> bool {
    about.target().starts_with("rmcp") && *about.level() > Level::WARN
}

/// Writer for a text log on a terminal: makes control characters in a line visible, and writes each line with one call.
struct VisibleLines<W>(W);

impl<W: Write> Write for VisibleLines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(sanitize(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_contains_no_terminal_control_characters() {
        let mut written = Vec::new();
        let line = " INFO said=\"a\u{202e}b\u{5}\u{1b}[2J\"\n";
        VisibleLines(&mut written).write_all(line.as_bytes()).expect("writes");
        assert_eq!(String::from_utf8_lossy(&written), " INFO said=\"a<U+202E>b␅␛[2J\"\n");
    }
}
