//! `pirn mcp FILE...`: workflows as tools of an MCP server over stdio.

use std::process::ExitCode;
use std::time::Duration;

use pirn_service::{Options, Service};

use super::served::ServedFiles;
use crate::output::failure::Failure;
use crate::output::terminal::INTERRUPTED;
use crate::process::interrupt;
use crate::process::log::LogArgs;
use crate::process::signals::Signals;

/// Grace period for runs after the client has disconnected.
const GRACE: Duration = Duration::from_secs(1);

/// Arguments of `pirn mcp`.
#[derive(clap::Args)]
#[command(after_help = "\
Example, in the settings of an MCP client:
  {\"mcpServers\": {\"pirn\": {\"command\": \"pirn\", \"args\": [\"mcp\", \"workflow.json\"]}}}

Exit codes: 0 the client has ended the session, 1 a file is invalid or the session broke, 2 wrong usage or an unreadable file,
130 interrupted.")]
pub(crate) struct Args {
    #[command(flatten)]
    served: ServedFiles,
    #[command(flatten)]
    log: LogArgs,
}

/// Serves until stdin ends or a stop signal arrives.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    args.log.begin()?;
    let interrupt = interrupt::listen();
    let (engine, offer) = args.served.open(None)?;
    let service = Service::new(engine, Options::default());
    service
        .publish(&offer)
        .map_err(|faults| Failure::failed("INVALID_INPUT_SCHEMA", faults.join("\n")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed("NO_THREADS", error.to_string()))?;
    let served = runtime.block_on(async {
        let signals = Signals::listen();
        let mut signals = signals.map_err(|error| Failure::failed("NO_SIGNALS", error.to_string()))?;
        interrupt.stand_down();
        let served = tokio::select! {
            served = service.serve_mcp_stdio() => served.map(|()| 0),
            // A hangup too: nothing is read again here.
            _ = signals.next() => Ok(INTERRUPTED),
        };
        tokio::select! {
            _ = service.shut_down(GRACE) => {}
            _ = signals.next() => {}
        }
        served.map_err(|error| Failure::failed("SESSION_BROKEN", error.to_string()))
    });
    // Do not wait: a pending read of stdin blocks until the process ends.
    runtime.shutdown_background();
    pirn::tools::kill_all();
    served.map(ExitCode::from)
}
