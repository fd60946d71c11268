//! `pirn schema`: the JSON Schema of a workflow file.

use std::process::ExitCode;

use crate::terminal::answer;

/// Arguments of `pirn schema`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Prints the schema.
pub(crate) fn run(_: &Args) -> ExitCode {
    answer(&format!("{:#}\n", pirn_core::definition::schema()), 0)
}
