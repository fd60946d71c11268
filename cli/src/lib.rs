//! The `pirn` command, with a file or folder for each subcommand, grouped by subject. Its only public
//! function is [`main`], which `main.rs` calls.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! service  testing
//!   ↓
//! runs
//!   ↓
//! run
//!   ↓
//! models  sessions  tools  workflow
//!   ↓
//! store
//!   ↓
//! config
//!   ↓
//! files  help  process
//!   ↓
//! output
//! ```
//!
//! Reading order:
//! 1. This file: the subcommands, with the exit code and the output format of each.
//! 2. `run`: a run in this process, with its progress, questions and report. `runs` and `sessions`: those of a store.
//! 3. `workflow`: subcommands for authors of workflows. `testing`: runs under controlled conditions.
//! 4. `service`: processes that stay. `store`: the stores that they use.
//! 5. `output`: results and errors as people and as programs read them.

mod config;
mod files;
mod help;
mod models;
mod output;
mod process;
mod run;
mod runs;
mod service;
mod sessions;
mod store;
mod testing;
mod tools;
mod workflow;

use std::borrow::Cow;
use std::io::{self, Write};
use std::num::{IntErrorKind, ParseIntError};
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use pirn_definition::definition::nearest;

use help::{completions, examples, man};
use output::failure::Failure;
use output::sanitize::sanitize;
use output::terminal::{self, Color, Output};
use process::{interrupt, open_files, scripts, signals};
#[cfg(feature = "studio")]
use service::studio;
#[cfg(feature = "cluster")]
use service::worker;
use service::{mcp, serve};
use testing::{cases, chaos, explore};
use workflow::{context, graph, init, schema, skill, validate};

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

Environment: PIRN_STORE is the default of --store, PIRN_PROFILES of --profiles; PIRN_STORE_KEY has the keys of an
encrypted store. Commands that take workflow files read workflow.json if none is named.

Exit codes: 0 completed or valid, 1 failed or invalid, 2 wrong usage or an unreadable file, 124 a time limit ended the run, 130
interrupted. `pirn COMMAND --help` has examples of each."
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
    #[command(visible_alias = "check")]
    Validate(validate::Args),
    /// Run a workflow in every order in which branches can end, and compare the outcomes
    Explore(explore::Args),
    /// Run a workflow under random faults, and compare the outcomes with those without faults
    Chaos(chaos::Args),
    /// Run recorded cases, and compare their outcomes
    Test(cases::Args),
    /// Draw workflows: Mermaid, Graphviz or SVG
    Graph(graph::Args),
    /// Show the messages that a model receives: selection, layout, tool blocks, compression, batches, tokens, as JSON
    Context(context::Args),
    /// Check which model profiles work, and their capabilities
    Models(models::Args),
    /// Print the JSON Schema of a workflow file
    Schema(schema::Args),
    /// Print a page from which a language model learns to write workflows
    Skill(skill::Args),
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
    // On failure, the signal ends the process.
    let _: std::io::Result<()> = signals::survive_file_limit();
    open_files::raise_limit();
    let parsed = command()
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return unparsed(&with_plain_number(with_listen(with_near_command(error)))),
    };
    cli.color.apply();
    let output = cli.command.output();
    let ended = cli.command.run();
    interrupt::wait_if_ending();
    let code = ended.unwrap_or_else(|failure| failure.report(output));
    pirn::tools::kill_all();
    code
}

/// Returns the command with the help of its subcommands and the long form of its version.
fn command() -> clap::Command {
    static VERSION: LazyLock<String> = LazyLock::new(version);
    examples::added(Cli::command()).long_version(VERSION.as_str())
}

/// Returns the version, the commit and the optional features of this build.
fn version() -> String {
    let features: Vec<&str> = [
        ("javascript", cfg!(feature = "javascript")),
        ("otel", cfg!(feature = "otel")),
        ("postgres", cfg!(feature = "postgres")),
        ("providers", cfg!(feature = "providers")),
        ("restate", cfg!(feature = "restate")),
        ("studio", cfg!(feature = "studio")),
        ("tiktoken", cfg!(feature = "tiktoken")),
    ]
    .into_iter()
    .filter_map(|(name, is_on)| is_on.then_some(name))
    .collect();
    format!(
        "{}\ncommit: {}\nfeatures: {}",
        env!("CARGO_PKG_VERSION"),
        option_env!("PIRN_COMMIT").unwrap_or("unknown"),
        features.join(", ")
    )
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
            Self::Chaos(args) => chaos::run(&args),
            Self::Test(args) => cases::run(&args),
            Self::Graph(args) => graph::run(&args),
            Self::Context(args) => context::run(&args),
            Self::Models(args) => models::run(&args),
            Self::Schema(args) => Ok(schema::run(&args)),
            Self::Skill(args) => Ok(skill::run(&args)),
            Self::Tools(args) => tools::run(args),
            Self::Completions(args) => Ok(completions::run(&args, command())),
            Self::Man(args) => man::run(&args, command()),
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
            Self::Chaos(args) => args.output,
            Self::Test(args) => args.output,
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
            | Self::Skill(_)
            | Self::Completions(_)
            | Self::Man(_) => Output::Text,
        }
    }
}

/// Replaces the suggestion for an unknown command: by the nearest name with swapped letters counted once, by a subcommand of
/// `runs` with this name, or by `--version`.
fn with_near_command(mut error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => return error,
    };
    // Only of `pirn` itself: its subcommands have names of their own.
    let is_first = std::env::args_os().nth(1).is_some_and(|first| first == word.as_str());
    if !is_first || error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let command = command();
    let names = |command: &clap::Command| -> Vec<String> {
        command.get_subcommands().map(|one| one.get_name().to_owned()).collect()
    };
    let of_runs = command.find_subcommand("runs").map(names).unwrap_or_default();
    let meant = if word == "version" {
        Some("--version".to_owned())
    } else if of_runs.contains(&word) {
        Some(format!("runs {word}"))
    } else {
        nearest(&word, names(&command).iter().map(String::as_str)).map(str::to_owned)
    };
    match meant {
        Some(meant) => error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant])),
        None => error.remove(ContextKind::SuggestedSubcommand),
    };
    error
}

/// Suggests `--listen` for an option of that purpose in other servers.
fn with_listen(mut error: clap::Error) -> clap::Error {
    const OF_OTHERS: [&str; 6] = ["--port", "-p", "--host", "--bind", "--addr", "--address"];
    let is_of_others = matches!(error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(option)) if OF_OTHERS.contains(&option.as_str()));
    let listens = std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == "serve" || first == "studio");
    if error.kind() == ErrorKind::UnknownArgument && is_of_others && listens {
        let listen = ContextValue::String("--listen HOST:PORT".to_owned());
        error.insert(ContextKind::SuggestedArg, listen);
        // The tip to pass the option as the name of a file.
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Replaces the text of the standard library about a value that is not a number.
fn with_plain_number(error: clap::Error) -> clap::Error {
    let source = std::error::Error::source(&error);
    let Some(source) = source.and_then(|source| source.downcast_ref::<ParseIntError>()) else {
        return error;
    };
    let why = match source.kind() {
        IntErrorKind::PosOverflow => "the number is too large",
        _other => "expected a whole number",
    };
    let part = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (value, option) = (part(ContextKind::InvalidValue), part(ContextKind::InvalidArg));
    let text = format!("invalid value '{value}' for '{option}': {why}\n\nFor more information, try '--help'.\n");
    clap::Error::raw(error.kind(), text)
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
    let near = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand]
        .into_iter()
        .find_map(|kind| error.get(kind))
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
