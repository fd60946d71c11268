//! The `pirn` command (SPEC section 8): one file per subcommand.

mod config;
mod context;
mod explore;
mod files;
mod graph;
mod interrupt;
mod models;
mod run;
mod schema;
mod terminal;
mod tools;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A runtime for LLM-agent workflows.
#[derive(Parser)]
#[command(name = "pirn", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a workflow: progress on stderr, the result on stdout
    Run(run::Args),
    /// Check workflow files: every error and warning, with its place
    Validate(validate::Args),
    /// Try every order in which branches can end: is the outcome the same?
    Explore(explore::Args),
    /// Draw a workflow
    Graph(graph::Args),
    /// What would the model see? Selection, layout, tool blocks, compression, batches, tokens, over JSON
    Context(context::Args),
    /// Which model profiles work, and what they can do
    Models(models::Args),
    /// Print the JSON Schema of a workflow file
    Schema(schema::Args),
    /// List the tools of a config file, or call one
    Tools(tools::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Explore(args) => explore::run(&args),
        Command::Context(args) => context::run(&args),
        Command::Graph(args) => graph::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Tools(args) => tools::run(args),
    }
}
