//! `pirn context`: computes the messages that a model would receive, with pure functions over JSON.

mod convert;
mod input;
mod judge;
mod operation;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

use crate::files;
use crate::output::failure::Failure;
use crate::output::terminal::{FAILED, answer, answer_as_it_is};
use input::BadInput;

/// Arguments of `pirn context`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}' | pirn context count
  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"options\": {\"lastN\": 2}}' | pirn context select
  pirn run workflow.json --output json | pirn context show -
  pirn run workflow.json --output json | pirn context judge -

All but `show`, `convert` and `judge` read one JSON object from stdin and write one to stdout; a fault of the input is
{error: {code, message, pointer}}.

Exit codes: 0, 1 wrong input, 2 wrong usage or an unreadable file.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Subcommands of `pirn context`. All except `show`, `convert` and `judge` read JSON from stdin and write JSON to stdout.
#[derive(Subcommand)]
enum Command {
    /// Print the selected messages of {messages, markMap?, options}
    Select,
    /// Print the position of the pinned context in {history, pending?, pinned, agent, fromEnd?}
    Layout,
    /// Print the first and last index of each tool block in {messages}
    Blocks,
    /// Print the result of a compression, given its context
    Compact,
    /// Print the mark map and the visible messages after the operations of {length, markMap?, operations}
    Marks,
    /// Print the number of tokens of {messages, model?}
    Count,
    /// Print a conversation: roles, batches, blocks, tokens
    Show {
        /// Messages, {messages, markMap?}, the result of a run, or OpenAI's, Anthropic's or Gemini's form; - for stdin
        file: String,
    },
    /// Convert a conversation to another format
    Convert(convert::Args),
    /// Print which facts (numbers, dates, ids, names, negations) a summary retains
    Judge(judge::Args),
}

/// Runs one operation.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let asked: fn(&str) -> Result<serde_json::Value, BadInput> = match &args.command {
        Command::Select => operation::select,
        Command::Layout => operation::layout,
        Command::Blocks => operation::blocks,
        Command::Compact => operation::compact,
        Command::Marks => operation::marks,
        Command::Count => operation::count,
        Command::Show { file } => return show(file),
        Command::Convert(args) => return convert(args),
        Command::Judge(args) => return judge(args),
    };
    let asked = files::read_stdin("the input (JSON)")
        .map_err(|error| BadInput::unreadable(&error))
        .and_then(|text| asked(&text));
    Ok(match asked {
        Ok(result) => answer(&format!("{result}\n"), 0),
        Err(error) => refuse(&error),
    })
}

fn show(file: &str) -> Result<ExitCode, Failure> {
    let text = files::read_named(file)?;
    Ok(match show::conversation(&text) {
        Ok(shown) => answer_as_it_is(&shown, 0),
        Err(error) => refuse(&error),
    })
}

fn convert(args: &convert::Args) -> Result<ExitCode, Failure> {
    let text = files::read_named(&args.file)?;
    Ok(match convert::converted(args, &text) {
        Ok(written) => answer(&format!("{written:#}\n"), 0),
        Err(error) => refuse(&error),
    })
}

fn judge(args: &judge::Args) -> Result<ExitCode, Failure> {
    let text = files::read_named(&args.file)?;
    Ok(match judge::judged(args, &text) {
        Ok(said) => answer_as_it_is(&said, 0),
        Err(error) => refuse(&error),
    })
}

fn refuse(error: &BadInput) -> ExitCode {
    answer(&format!("{}\n", error.json()), FAILED)
}
