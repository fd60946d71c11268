//! The `pirn` command, with a file or folder for each subcommand. Its only public function is [`main`], which `main.rs` calls.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! explore  mcp  runs  studio  worker
//!   ↓
//! serve
//!   ↓
//! run  served
//!   ↓
//! models  sessions  store_owner  tools  validate
//!   ↓
//! config  context  graph  place
//!   ↓
//! files  init  log  man  store
//!   ↓
//! failure
//!   ↓
//! completions  faults  interrupt  schema
//!   ↓
//! terminal
//!   ↓
//! redact  sanitize  scripts  signals
//! ```
//!
//! Reading order:
//! 1. This file: the subcommands, with the exit code and the output format of each.
//! 2. `run`: a run in this process, with its progress, questions and report. `runs` and `sessions`: those of a store.
//! 3. `serve`, `studio`, `worker` and `mcp`: processes that stay. `place`: the stores that they use.
//! 4. `failure` and `faults`: errors as people and as programs read them.

mod completions;
mod config;
mod context;
mod explore;
mod failure;
mod faults;
mod files;
mod graph;
mod init;
mod interrupt;
mod log;
mod man;
mod mcp;
mod models;
mod place;
mod redact;
mod run;
mod runs;
mod sanitize;
mod schema;
mod scripts;
mod serve;
mod served;
mod sessions;
mod signals;
mod store;
mod store_owner;
#[cfg(feature = "studio")]
mod studio;
mod terminal;
mod tools;
mod validate;
#[cfg(feature = "cluster")]
mod worker;

use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use failure::Failure;
use sanitize::sanitize;
use terminal::{Color, Output};

/// A runtime for LLM-agent workflows: a workflow is a JSON graph whose branches run as supervised actors.
#[derive(Parser)]
#[command(
    name = "pirn",
    version,
    about,
    after_help = "\
Examples:
  pirn init hello && pirn run hello/workflow.json --input @hello/input.json
  pirn validate workflow.json
  pirn graph workflow.json --format svg > workflow.svg

Exit codes: 0 completed or valid, 1 failed or invalid, 2 wrong usage or an unreadable file, 130 interrupted.
`pirn COMMAND --help` has examples of each."
)]
struct Cli {
    /// Colours of the output
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a folder with a runnable workflow
    Init(init::Args),
    /// Run a workflow: progress on stderr, the result on stdout
    Run(run::Args),
    /// Manage the runs of a store: list, show, resume, fork, compare, move, remove
    Runs(runs::Args),
    /// Manage the sessions of a store: list, show, remove
    Sessions(sessions::Args),
    /// Serve workflows over HTTP: runs, event streams, metrics
    Serve(serve::Args),
    /// Serve workflows, and open the page that shows their runs
    #[cfg(feature = "studio")]
    Studio(studio::Args),
    /// Execute runs of a server that several processes share
    #[cfg(feature = "cluster")]
    Worker(worker::Args),
    /// Offer workflows as tools of an MCP server, over stdio
    Mcp(mcp::Args),
    /// Check workflow files: every error and warning, with its location
    Validate(validate::Args),
    /// Run a workflow in every order in which branches can end, and compare the outcomes
    Explore(explore::Args),
    /// Draw workflows: Mermaid, Graphviz or SVG
    Graph(graph::Args),
    /// Show the messages that a model receives: selection, layout, tool blocks, compression, batches, tokens, as JSON
    Context(context::Args),
    /// Check which model profiles work, and their capabilities
    Models(models::Args),
    /// Print the JSON Schema of a workflow file
    Schema(schema::Args),
    /// List the tools of a config file, or call one
    Tools(tools::Args),
    /// Print a script that completes commands in a shell
    Completions(completions::Args),
    /// Print a manual page, or write all of them
    Man(man::Args),
}

/// Runs the command with the arguments of this process, and returns its exit code.
pub fn main() -> ExitCode {
    if let Some(code) = scripts::serve_worker() {
        return code;
    }
    // On failure, orphaned processes of tools are found only by the mark in their environment.
    let _: std::io::Result<()> = pirn::tools::adopt_orphans();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    cli.color.apply();
    let output = cli.command.output();
    let ended = cli.command.run();
    interrupt::wait_if_ending();
    let code = ended.unwrap_or_else(|failure| failure.report(output));
    pirn::tools::kill_all();
    code
}

impl Command {
    fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Init(args) => init::run(&args),
            Self::Run(args) => run::run(&args),
            Self::Runs(args) => runs::run(&args),
            Self::Sessions(args) => sessions::run(&args),
            Self::Serve(args) => serve::run(&args),
            #[cfg(feature = "studio")]
            Self::Studio(args) => studio::run(&args),
            #[cfg(feature = "cluster")]
            Self::Worker(args) => worker::run(args),
            Self::Mcp(args) => mcp::run(&args),
            Self::Validate(args) => validate::run(&args),
            Self::Explore(args) => explore::run(&args),
            Self::Graph(args) => graph::run(&args),
            Self::Context(args) => context::run(&args),
            Self::Models(args) => models::run(&args),
            Self::Schema(args) => Ok(schema::run(&args)),
            Self::Tools(args) => tools::run(args),
            Self::Completions(args) => Ok(completions::run(&args, Cli::command())),
            Self::Man(args) => man::run(&args, Cli::command()),
        }
    }

    /// Returns the format in which a failure is printed.
    fn output(&self) -> Output {
        match self {
            Self::Run(args) => args.output,
            Self::Runs(args) => args.output,
            Self::Sessions(args) => args.output,
            Self::Validate(args) => args.output,
            Self::Explore(args) => args.output,
            Self::Models(args) => args.output(),
            Self::Tools(args) => args.output(),
            #[cfg(feature = "cluster")]
            Self::Worker(_) => Output::Text,
            #[cfg(feature = "studio")]
            Self::Studio(_) => Output::Text,
            Self::Init(_)
            | Self::Serve(_)
            | Self::Mcp(_)
            | Self::Graph(_)
            | Self::Context(_)
            | Self::Schema(_)
            | Self::Completions(_)
            | Self::Man(_) => Output::Text,
        }
    }
}

/// Prints the error of invalid arguments, or the requested help.
fn unparsed(error: &clap::Error) -> ExitCode {
    let asks = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if asks {
        error.exit();
    }
    if !wants_json() {
        // Without colours if an argument contains control characters, which could not be distinguished from those of the colours.
        if std::env::args_os().any(|word| matches!(sanitize(&word.to_string_lossy()), Cow::Owned(_))) {
            let text = error.render().to_string();
            // If stderr is closed, the error cannot be reported: ignore the failure.
            let _ = write!(io::stderr().lock(), "{}", sanitize(&text));
            return ExitCode::from(terminal::USAGE);
        }
        error.exit();
    }
    let message = error.render().to_string();
    let first = message.lines().next().unwrap_or_default();
    let failure = Failure::usage("USAGE", first.trim_start_matches("error: "));
    let near = error
        .get(ContextKind::SuggestedArg)
        .map(|near| format!("did you mean {near}?"));
    match near {
        Some(near) => failure.with_help(near),
        None => failure,
    }
    .report(Output::Json)
}

/// True if invalid arguments contain a request for JSON output.
fn wants_json() -> bool {
    let words: Vec<_> = std::env::args_os().collect();
    words.iter().any(|word| word == "--output=json")
        || words.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "json")
}
