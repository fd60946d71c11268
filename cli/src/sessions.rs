//! `pirn sessions`: lists, shows and removes the sessions of a store.

use std::fmt::Write;
use std::process::ExitCode;

use futures::executor::block_on;
use pirn::store::{RunFilter, Session};
use serde_json::{Value, json};

use crate::output::failure::Failure;
use crate::output::terminal::{Output, answer, counted, json_text, shell_quoted, table};
use crate::store::place::StoreArgs;
use crate::store::{close, refused};

/// Arguments of `pirn sessions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn run workflow.json --store runs.db --session desk-7
  pirn sessions list --store runs.db
  pirn sessions show desk-7 --store runs.db --output json
  pirn sessions remove desk-7 --store runs.db

Exit codes: 0 success, 1 refused, 2 wrong usage, no such session, a store that is unreadable or held.")]
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
    /// List the sessions
    List {
        /// Print only the ids, one a line
        #[arg(long)]
        ids: bool,
    },
    /// Show a session: the conversation and variables with which its next run starts
    Show {
        /// Id of the session
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Remove sessions, but not their runs; a later run with such a session id starts a new session
    Remove {
        /// Id of a session (repeatable)
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

/// Number of sessions that one query of the store returns.
const PAGE: usize = 1_000;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let (store, output) = (&args.store, args.output);
    match &args.command {
        Command::List { ids } => list(store, output, *ids),
        Command::Show { id } => show(store, output, id),
        Command::Remove { ids } => remove(store, output, ids),
    }
}

fn list(store: &StoreArgs, output: Output, only_ids: bool) -> Result<ExitCode, Failure> {
    let store = store.open()?;
    let (mut sessions, mut after) = (Vec::new(), None);
    loop {
        let page = block_on(store.sessions(after, PAGE)).map_err(|error| refused(&error))?;
        after = page.last().map(|session| session.id.clone());
        sessions.extend(page);
        if after.is_none() {
            break;
        }
    }
    let text = match output {
        Output::Text if only_ids => sessions
            .iter()
            .fold(String::new(), |text, session| text + &session.id + "\n"),
        Output::Json => json_text(json!({"sessions": sessions.iter().map(shown).collect::<Vec<_>>()})),
        Output::Text => table(
            &["SESSION", "RUNS", "LAST RUN"],
            sessions
                .iter()
                .map(|session| vec![session.id.clone(), session.version.to_string(), session.run.clone()]),
        ),
    };
    Ok(answer(&text, 0))
}

fn shown(session: &Session) -> Value {
    json!({
        "id": session.id,
        "version": session.version,
        "lastRunId": session.run,
        "updatedAt": session.updated_at,
    })
}

fn show(store: &StoreArgs, output: Output, id: &str) -> Result<ExitCode, Failure> {
    let engine = store.open_engine()?;
    let state = block_on(engine.session(id));
    close(&engine);
    let state = state.map_err(|error| Failure::failed(error.code.as_str(), error.to_string()))?;
    if state.version == 0 {
        return Err(none(id));
    }
    let whole = state.shown(id);
    let text = match output {
        Output::Json => json_text(whole),
        Output::Text => {
            let mut text = format!("{id}, updated by {}\n", counted(state.version, "run"));
            for message in whole["conversation"]["messages"].as_array().into_iter().flatten() {
                let role = message["role"].as_str().unwrap_or("-");
                let content = message["content"].as_str().map(str::to_owned);
                let content = content.unwrap_or_else(|| message["content"].to_string());
                // Writing to a string does not fail.
                let _ = writeln!(text, "  {role}: {content}");
            }
            for (name, value) in &state.variables {
                let _ = writeln!(text, "  {name} = {value}");
            }
            text
        }
    };
    Ok(answer(&text, 0))
}

fn remove(store: &StoreArgs, output: Output, ids: &[String]) -> Result<ExitCode, Failure> {
    let store = store.open()?;
    for id in ids {
        let live = RunFilter {
            session: Some(id.clone()),
            ..RunFilter::live()
        };
        let live = block_on(store.runs(live, None, 1)).map_err(|error| refused(&error))?;
        if let Some(run) = live.first() {
            let message = format!("session {id} is in use: run {} of it has not ended", run.id);
            let help = format!("pirn runs resume {0}, or pirn runs cancel {0}", shell_quoted(&run.id));
            return Err(Failure::failed("SESSION_IN_USE", message).with_help(help));
        }
        if block_on(store.session(id)).map_err(|error| refused(&error))?.is_none() {
            return Err(none(id));
        }
    }
    let mut removed = 0;
    for id in ids {
        removed += u64::from(block_on(store.remove_session(id)).map_err(|error| refused(&error))?);
    }
    if removed > 0 {
        block_on(store.shrink(false)).map_err(|error| refused(&error))?;
    }
    Ok(match output {
        Output::Json => answer(&json_text(json!({ "removed": removed })), 0),
        Output::Text => answer(&format!("{}\n", counted(removed, "session")), 0),
    })
}

fn none(id: &str) -> Failure {
    let message = format!("there is no session {id}");
    Failure::usage("NO_SUCH_SESSION", message).with_help("list the sessions: pirn sessions list")
}
