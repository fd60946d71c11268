//! `--log` and `RUST_LOG`: the filter and the format of the log.

use std::io;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Failure;

/// The format of a log line.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// An object a line
    Json,
}

/// The arguments of the log.
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    /// Log filter on stderr: error, warn, info, debug, trace, or as RUST_LOG has it (default: RUST_LOG, else info)
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
            .with_writer(io::stderr)
            .with_ansi(false);
        let begun = match self.log_format {
            Format::Text => lines.finish().with(without_contents).try_init(),
            Format::Json => lines.json().finish().with(without_contents).try_init(),
        };
        begun.map_err(|error| Failure::failed("NO_LOG", error.to_string()))
    }
}

/// The MCP library logs requests and answers at DEBUG, and notifications at INFO. Contents must appear only if the filter has
/// TRACE, so its lower levels are filtered out without it.
fn may_have_contents(about: &Metadata<'_>) -> bool {
    about.target().starts_with("rmcp") && *about.level() > Level::WARN
}
