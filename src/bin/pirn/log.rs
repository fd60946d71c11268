//! `--log` and `RUST_LOG`: what the log says, and how.

use std::io;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

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
    /// Begins to log.
    ///
    /// # Errors
    /// The filter is none.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        let filter = match &self.log {
            Some(filter) => EnvFilter::try_new(filter)
                .map_err(|error| Failure::usage("INVALID_USAGE", format!("invalid --log: {error}")))?,
            None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
        };
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_ansi(false);
        let begun = match self.log_format {
            Format::Text => lines.try_init(),
            Format::Json => lines.json().try_init(),
        };
        begun.map_err(|error| Failure::failed("NO_LOG", error.to_string()))
    }
}
