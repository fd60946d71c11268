//! `pirn skill`: a page from which a model learns to write workflows.

use std::process::ExitCode;

use crate::output::terminal::answer_as_it_is;

/// The page. A test checks every workflow and script in it.
const PAGE: &str = include_str!("skill.md");

/// Arguments of `pirn skill`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn skill
  pirn skill > SKILL.md

Exit code: 0.")]
pub(crate) struct Args {}

/// Prints the page.
pub(crate) fn run(_: &Args) -> ExitCode {
    answer_as_it_is(PAGE, 0)
}
