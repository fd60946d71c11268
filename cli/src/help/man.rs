//! `pirn man`: the manual pages, generated from the declarations that `--help` uses.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::output::failure::Failure;
use crate::output::terminal::answer_as_it_is;

/// Arguments of `pirn man`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn man | man -l -
  pirn man run | man -l -
  pirn man --dir ~/.local/share/man/man1

Exit codes: 0, 2 no such command or a folder that cannot be written.")]
pub(crate) struct Args {
    /// Command whose page is printed (default: pirn itself)
    command: Option<String>,
    /// Write the page of every command into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

/// Prints one page, or writes all pages to a folder.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<ExitCode, Failure> {
    command.build();
    if let Some(dir) = &args.dir {
        clap_mangen::generate_to(command, dir).map_err(|error| unwritable(dir, &error))?;
        return Ok(ExitCode::SUCCESS);
    }
    let command = match &args.command {
        None => command,
        Some(name) => {
            let known: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
            let found = command.find_subcommand(name).cloned();
            found.ok_or_else(|| no_command(name, &known))?
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::failed("WRITE_FAILED", error.to_string()))?;
    Ok(answer_as_it_is(&String::from_utf8_lossy(&page), 0))
}

fn no_command(name: &str, known: &[String]) -> Failure {
    Failure::usage(
        "USAGE",
        format!("there is no command {name}; there are {}", known.join(", ")),
    )
}

fn unwritable(dir: &Path, error: &io::Error) -> Failure {
    Failure::usage("WRITE_FAILED", format!("cannot write into {}: {error}", dir.display()))
}
