//! `pirn context`: what would the model see? The pure functions of SPEC sections 3 and 7 over JSON.

mod input;
mod operation;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

use crate::files;
use crate::terminal::{FAILED, USAGE, answer, complain};
use input::BadInput;

/// Arguments of `pirn context`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// All but `show` read JSON from stdin and write JSON to stdout.
#[derive(Subcommand)]
enum Command {
    /// {messages, markMap?, options}: the selected messages
    Select,
    /// {history, pending?, pinned, agent, fromEnd?}: where the pinned context goes
    Layout,
    /// {messages}: the tool blocks, first and last index each
    Blocks,
    /// A compression context: its compression result
    Compact,
    /// {length, markMap?, operations}: the mark map after them, and what is visible
    Marks,
    /// {messages, model?}: what they cost in tokens
    Count,
    /// Print a conversation: roles, batches, blocks, tokens
    Show {
        /// A list of messages, {messages, markMap?}, or the result of a run; - for stdin
        file: String,
    },
}

/// Answers one question.
pub(crate) fn run(args: &Args) -> ExitCode {
    let asked: fn(&str) -> Result<serde_json::Value, BadInput> = match &args.command {
        Command::Select => operation::select,
        Command::Layout => operation::layout,
        Command::Blocks => operation::blocks,
        Command::Compact => operation::compact,
        Command::Marks => operation::marks,
        Command::Count => operation::count,
        Command::Show { file } => return show(file),
    };
    let text = match files::read_stdin() {
        Ok(text) => text,
        Err(error) => return refuse(&BadInput::unreadable(&error)),
    };
    match asked(&text) {
        Ok(result) => answer(&format!("{result}\n"), 0),
        Err(error) => refuse(&error),
    }
}

fn show(file: &str) -> ExitCode {
    let text = match files::read(&[file.to_owned()]) {
        Ok(files) => files.iter().map(|file| &*file.text).collect::<String>(),
        Err(message) => return complain(&message, USAGE),
    };
    match show::conversation(&text) {
        Ok(shown) => answer(&shown, 0),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &BadInput) -> ExitCode {
    answer(&format!("{}\n", error.json()), FAILED)
}
