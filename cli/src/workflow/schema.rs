//! `pirn schema`: prints the JSON Schema of a workflow file.

use std::process::ExitCode;

use crate::output::terminal::answer;

/// Arguments of `pirn schema`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  pirn schema > pirn.schema.json

Editors complete and check a workflow file that contains \"$schema\": \"./pirn.schema.json\".

Exit code: 0.")]
pub(crate) struct Args {}

/// The schema as text.
pub(crate) fn text() -> String {
    format!("{:#}\n", pirn_definition::definition::schema())
}

/// Prints the schema.
pub(crate) fn run(_: &Args) -> ExitCode {
    answer(&text(), 0)
}
