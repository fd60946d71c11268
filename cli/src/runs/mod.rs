//! `pirn runs`: lists and changes the runs of a store, whichever process started them.

mod erase;
mod modify;
#[cfg(feature = "studio")]
mod page;
mod query;
mod record;

use std::process::ExitCode;

pub(crate) use record::{engine_with, files_of as files_of_case, folder_of as folder_of_case, text_of as case_text};

use crate::output::failure::Failure;
use crate::output::terminal::Output;
use crate::run::resumed;
use crate::store::place::StoreArgs;

/// Arguments of `pirn runs`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn run workflow.json --store runs.db
  pirn runs list --store runs.db
  pirn runs resume --all --store runs.db
  pirn runs answer RUN approve yes --store runs.db
  pirn runs show RUN --at 7 --store runs.db --output json
  pirn runs explain RUN --store runs.db
  pirn runs show RUN --html run.html --store runs.db
  pirn runs fork RUN --at 7 --set name='\"Ada\"' --store runs.db
  pirn runs backup monday.db --store runs.db

Exit codes: 0 success, 1 the run failed or was refused, 2 wrong usage, no such run, a store that is unreadable or held.")]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Output format
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the runs
    List(query::List),
    /// Show a run: its report so far, its steps, or its state after a step
    Show(query::Show),
    /// Explain a run in at most 60 lines: cause of the outcome, failing node with its input, cost, path
    Explain(query::Explain),
    /// List the events of a run
    Events(query::Events),
    /// Show the first step in which two runs differ
    Diff(query::Diff),
    /// Move a run to another definition, if its steps are consistent with that
    Migrate(modify::Migrate),
    /// Resume a run, or all that have not ended
    Resume(resumed::Resume),
    /// Cancel a run
    Cancel(modify::Cancel),
    /// Answer a question of a run
    Answer(modify::AnswerArgs),
    /// Raise a CUSTOM event in a run
    Emit(modify::Emit),
    /// Send a message to the model of a run
    Say(modify::Say),
    /// Pause a run that a process executes, or end its pause
    Pause(modify::Pause),
    /// Set a section of the pinned context of a run that a process executes
    Pin(modify::Pin),
    /// Start a new run that continues from a step of another
    Fork(resumed::Fork),
    /// Write a run as a case for `pirn test`
    Record(record::Record),
    /// Write all data of a run into one file
    Export(modify::Export),
    /// Import an exported run
    Import(modify::Import),
    /// Write a copy of the store into a new file, also while another process uses the store
    Backup(modify::Backup),
    /// Encrypt all values of the store with the first key, so that it needs no other key
    Rekey(modify::Rekey),
    /// Remove runs that have ended
    Prune(modify::Prune),
    /// Erase all data of a session or a tenant
    Erase(erase::Erase),
}

/// Runs the command. The help of an unknown run names the store that the command used.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    execute(args).map_err(|failure| match args.store.place() {
        Ok(place) if failure.code() == "NO_SUCH_RUN" => {
            failure.with_help(format!("list the runs: pirn runs list {}", place.arguments()))
        }
        _ => failure,
    })
}

fn execute(args: &Args) -> Result<ExitCode, Failure> {
    let (store, output) = (&args.store, args.output);
    match &args.command {
        Command::List(list) => list.run(store, output),
        Command::Show(show) => show.run(store, output),
        Command::Explain(explain) => explain.run(store, output),
        Command::Events(events) => events.run(store, output),
        Command::Diff(diff) => diff.run(store, output),
        Command::Resume(resume) => resume.run(store, output),
        Command::Cancel(cancel) => cancel.run(store, output),
        Command::Answer(answer) => answer.run(store, output),
        Command::Migrate(migrate) => migrate.run(store, output),
        Command::Emit(emit) => emit.run(store, output),
        Command::Say(say) => say.run(store, output),
        Command::Pause(pause) => pause.run(store, output),
        Command::Pin(pin) => pin.run(store, output),
        Command::Fork(fork) => fork.run(store, output),
        Command::Record(record) => record.run(store, output),
        Command::Export(export) => export.run(store, output),
        Command::Import(import) => import.run(store, output),
        Command::Backup(backup) => backup.run(store, output),
        Command::Rekey(rekey) => rekey.run(store, output),
        Command::Prune(prune) => prune.run(store, output),
        Command::Erase(erase) => erase.run(store, output),
    }
}
