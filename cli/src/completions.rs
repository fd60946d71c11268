//! `pirn completions SHELL`.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::terminal::answer;

/// Arguments of `pirn completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn completions bash > ~/.local/share/bash-completion/completions/pirn
  pirn completions zsh > ~/.zfunc/_pirn
  pirn completions fish > ~/.config/fish/completions/pirn.fish

Exit code: 0.")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the completion script.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pirn", &mut script);
    answer(&String::from_utf8_lossy(&script), 0)
}
