//! Commands that change a store: cancel, answer, emit, say, migrate, export, rekey, import, prune.

use std::fs::File;
use std::io::{BufReader, IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgGroup;
use futures::executor::block_on;
use futures::future::try_join_all;
use pirn::check::SourceFile;
use pirn::store::export::{ExportError, export, import};
use pirn::store::{RunFilter, removable};
use pirn::{CommandOutcome, Engine, Migration, ResumeError, RunErrorCode, When};
use pirn_definition::definition::{PinSection, json_from_str};
use serde_json::{Map, Value, json};

use super::query::status;
use crate::config::service_settings::age;
use crate::files::{self, unwritable};
use crate::output::failure::Failure;
use crate::output::terminal::{FAILED, Output, answer, counted, json_text, shell_quoted};
use crate::run::{check_run_id, json_or_text};
use crate::store::place::StoreArgs;
use crate::store::store_owner::{Request, send_request};
use crate::store::{all, beside_key, close, config_key, not_resumed, refused, run_of, since_1970, spare};

/// Arguments of `pirn runs cancel`.
#[derive(clap::Args)]
pub(super) struct Cancel {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// Reason, shown in the run's report
    #[arg(long, value_name = "TEXT", default_value = "cancelled")]
    reason: String,
}

/// Arguments of `pirn runs answer`.
#[derive(clap::Args)]
pub(super) struct AnswerArgs {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// The node that asks, or the id of the question; `pirn runs show ID` lists the open ones
    #[arg(value_name = "NODE")]
    interaction: String,
    /// The answer: JSON or a string
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    answer: String,
    /// The name of the person who answers
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Arguments of `pirn runs emit`.
#[derive(clap::Args)]
pub(super) struct Emit {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// The name of the CUSTOM event
    #[arg(value_name = "NAME")]
    name: String,
    /// Data of the event, a JSON object
    #[arg(value_name = "JSON", value_parser = object, default_value = "{}")]
    data: Map<String, Value>,
}

/// Arguments of `pirn runs say`.
#[derive(clap::Args)]
pub(super) struct Say {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// The message, added to the main conversation as a user message before the next model request
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
    /// Add the message only when an LLM node is about to finish; the node then calls its model again
    #[arg(long)]
    when_idle: bool,
    /// Id of the message: repeating a message with the same id has no effect
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
}

/// Arguments of `pirn runs pause`.
#[derive(clap::Args)]
pub(super) struct Pause {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// End the pause
    #[arg(long)]
    end: bool,
}

/// Arguments of `pirn runs pin`.
#[derive(clap::Args)]
pub(super) struct Pin {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// The section: role, todo, usefulInfo or folderNotes
    #[arg(value_name = "SECTION", value_parser = section)]
    section: PinSection,
    /// The new value, JSON or a string; null removes the section
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    value: String,
}

fn section(name: &str) -> Result<PinSection, String> {
    let known = PinSection::ALL.into_iter().find(|section| section.as_str() == name);
    known.ok_or_else(|| {
        let names = PinSection::ALL.map(PinSection::as_str);
        format!("expected one of {}", names.join(", "))
    })
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    json_from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

fn done(output: Output, said: &str) -> ExitCode {
    match output {
        Output::Json => answer(&json_text(json!({"ok": true})), 0),
        Output::Text => answer(&format!("{said}\n"), 0),
    }
}

/// Sends an input to a run, and prints the run's state after it.
fn send(store: &StoreArgs, output: Output, id: &str, request: Request) -> Result<ExitCode, Failure> {
    let said = match send_request(store, request)? {
        CommandOutcome::UnderWay => format!("{id} received the input"),
        CommandOutcome::Ended => format!("{id} has ended"),
        CommandOutcome::Kept => format!(
            "{id} receives the input when it is resumed: pirn runs resume {} {}",
            shell_quoted(id),
            store.place()?.arguments()
        ),
    };
    Ok(done(output, &said))
}

impl Cancel {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let (run_id, reason) = (self.id.clone(), self.reason.clone());
        send(store, output, &self.id, Request::Cancel { run_id, reason })
    }
}

impl Pause {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let (run_id, end) = (self.id.clone(), self.end);
        send(store, output, &self.id, Request::Pause { run_id, end })
    }
}

impl Pin {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let request = Request::Pin {
            run_id: self.id.clone(),
            section: self.section,
            value: json_or_text(&self.value)
                .map_err(|error| Failure::usage("INVALID_VALUE", format!("invalid value: {error}")))?,
        };
        send(store, output, &self.id, request)
    }
}

impl AnswerArgs {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let request = |answer: Value| Request::Answer {
            run_id: self.id.clone(),
            interaction_id: self.interaction.clone(),
            answer,
            by: self.by.clone(),
        };
        let value = json_or_text(&self.answer)
            .map_err(|error| Failure::usage("INVALID_ANSWER", format!("invalid answer: {error}")))?;
        let is_text = value.is_string();
        match send(store, output, &self.id, request(value)) {
            // The text may be meant as a string, such as `1` for the choice "1".
            Err(failure) if failure.code() == "INVALID_ANSWER" && !is_text => {
                send(store, output, &self.id, request(Value::from(self.answer.as_str()))).map_err(|_| failure)
            }
            sent => sent,
        }
    }
}

impl Emit {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let request = Request::Emit {
            run_id: self.id.clone(),
            name: self.name.clone(),
            data: self.data.clone(),
        };
        send(store, output, &self.id, request)
    }
}

impl Say {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let request = Request::Say {
            run_id: self.id.clone(),
            id: self.message_id.clone(),
            text: self.text.clone(),
            when: if self.when_idle {
                When::WhenIdle
            } else {
                When::BeforeNextRequest
            },
        };
        send(store, output, &self.id, request)
    }
}

/// Arguments of `pirn runs migrate`.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("migrated").required(true).args(["ids", "all"]))]
pub(super) struct Migrate {
    /// The run (repeatable)
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Every run that has not ended
    #[arg(long)]
    all: bool,
    /// A workflow file (repeatable): its workflows replace those of the run with equal ids
    #[arg(long = "to", value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Only check whether the run fits
    #[arg(long)]
    check: bool,
}

/// A run to migrate, and the result.
type Moved = (String, Result<Migration, ResumeError>);

impl Migrate {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let files = files::read(&self.files)?;
        let engine = store.open_engine()?;
        let moved = self.each(&engine, &files);
        close(&engine);
        let moved = moved?;
        let fits = |(_, migrated): &Moved| migrated.as_ref().is_ok_and(|migration| migration.fits);
        let code = if moved.iter().all(fits) { 0 } else { FAILED };
        let is_one = !self.all && self.ids.len() == 1;
        let text = match output {
            Output::Json if is_one => {
                let migration = moved.into_iter().find_map(|(_, migrated)| migrated.ok());
                json_text(json!(migration))
            }
            Output::Json => {
                let each = moved.iter().map(|(run_id, migrated)| match migrated {
                    Ok(migration) => {
                        let mut shown = json!(migration);
                        shown["runId"] = json!(run_id);
                        shown
                    }
                    Err(error) => json!({
                        "runId": run_id,
                        "error": {"code": error.code(), "message": error.to_string()},
                    }),
                });
                json_text(json!({"runs": each.collect::<Vec<_>>()}))
            }
            Output::Text => moved.iter().map(|(id, migrated)| self.said(id, migrated)).collect(),
        };
        Ok(answer(&text, code))
    }

    /// Migrates each run, and returns the results. If only one run is given, its failure is the command's.
    fn each(&self, engine: &Engine, files: &[SourceFile]) -> Result<Vec<Moved>, Failure> {
        let ids = match engine.store() {
            Some(store) if self.all => {
                let live = all(&**store, &RunFilter::live())?;
                live.into_iter().map(|run| run.id).collect()
            }
            _ => self.ids.clone(),
        };
        let migrate = |id: String| {
            let run = engine.resume(id.as_str());
            let migrated = if self.check {
                block_on(run.check_migration(files))
            } else {
                block_on(run.migrate(files))
            };
            match migrated {
                Err(error) if !self.all && self.ids.len() == 1 => Err(not_resumed(&error)),
                migrated => Ok((id, migrated)),
            }
        };
        let mut moved = ids.into_iter().map(migrate).collect::<Result<Vec<Moved>, Failure>>()?;
        // A store may contain the runs of several files. A file without a workflow of any run is a mistake.
        let is_of_file = |(_, migrated): &Moved| !matches!(migrated, Err(error) if error.code() == RunErrorCode::WorkflowNotFound.as_str());
        if self.all && moved.iter().any(is_of_file) {
            moved.retain(is_of_file);
        }
        Ok(moved)
    }

    fn said(&self, id: &str, migrated: &Result<Migration, ResumeError>) -> String {
        let difference = match migrated {
            Err(error) => return format!("{id} not moved: {error}\n"),
            Ok(migration) => &migration.first_difference,
        };
        match difference {
            None if self.check => format!("{id} fits\n"),
            None => format!("{id} continues with the new definition\n"),
            Some(difference) => {
                let node = difference.node_id.as_deref().unwrap_or("-");
                format!(
                    "{id} does not fit: step {}, node {node}\n  was   {}\n  would {}\n",
                    difference.step, difference.before, difference.after
                )
            }
        }
    }
}

/// Arguments of `pirn runs export`.
#[derive(clap::Args)]
pub(super) struct Export {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// The file to write (default: stdout)
    #[arg(value_name = "FILE")]
    file: Option<String>,
}

fn not_moved(error: ExportError) -> Failure {
    match error {
        ExportError::Store(error) => refused(&error),
        ExportError::File(error) => Failure::usage("UNREADABLE_FILE", error.to_string()),
        other => Failure::usage("INVALID_EXPORT", other.to_string()),
    }
}

impl Export {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let file = store.place()?.file();
        let store = store.open()?;
        run_of(&*store, &self.id)?;
        let Some(path) = &self.file else {
            let mut whole = Vec::new();
            block_on(export(&*store, &self.id, &mut whole)).map_err(not_moved)?;
            if stdout().is_terminal() {
                return Ok(answer(&String::from_utf8_lossy(&whole), 0));
            }
            let written = stdout().lock().write_all(&whole);
            written.map_err(|error| Failure::failed("WRITE_FAILED", error.to_string()))?;
            return Ok(ExitCode::SUCCESS);
        };
        let unwritten = |error: std::io::Error| Failure::usage("WRITE_FAILED", format!("cannot write {path}: {error}"));
        spare(file.as_deref(), path)?;
        let mut file = File::create(path).map_err(unwritten)?;
        block_on(export(&*store, &self.id, &mut file)).map_err(not_moved)?;
        // A terminal or a pipe refuses a sync.
        if file.metadata().is_ok_and(|file| file.is_file()) {
            file.sync_all().map_err(unwritten)?;
        }
        Ok(done(output, path))
    }
}

/// Arguments of `pirn runs backup`.
#[derive(clap::Args)]
pub(super) struct Backup {
    /// The file to write; it must not exist
    #[arg(value_name = "FILE")]
    file: String,
}

impl Backup {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let Some(file) = store.place()?.file() else {
            let message = "a store on a server is backed up by the programs of that server";
            return Err(Failure::usage("USAGE", message)
                .with_help("PostgreSQL: pg_dump, or an archive of its log (docs/backup.md)"));
        };
        spare(Some(&file), &self.file)?;
        // The process that writes may have another working directory.
        let absolute = std::path::absolute(&self.file)
            .map_err(|error| Failure::usage("WRITE_FAILED", format!("cannot write {}: {error}", self.file)))?;
        if absolute.symlink_metadata().is_ok() {
            let message = format!("cannot write {}: the file exists", self.file);
            return Err(Failure::usage("WRITE_FAILED", message).with_help("name a new file"));
        }
        if let Some(folder) = absolute.parent() {
            std::fs::metadata(folder).map_err(|error| unwritable(&self.file, &error))?;
        }
        send_request(store, Request::BackUp { file: absolute })?;
        Ok(done(output, &self.file))
    }
}

/// Arguments of `pirn runs rekey`.
#[derive(clap::Args)]
pub(super) struct Rekey {}

impl Rekey {
    #[allow(clippy::unused_self)] // as the other commands
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let store = store.open_file()?;
        let encrypted = block_on(store.rekey()).map_err(|error| refused(&error))?;
        Ok(match output {
            Output::Json => answer(&json_text(json!({"encrypted": encrypted})), 0),
            Output::Text => answer(&format!("{} encrypted\n", counted(encrypted, "value")), 0),
        })
    }
}

/// Arguments of `pirn runs import`.
#[derive(clap::Args)]
pub(super) struct Import {
    /// The file that `pirn runs export` wrote
    #[arg(value_name = "FILE")]
    file: String,
    /// Id of the imported run (default: its id in the file)
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
}

impl Import {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let unread =
            |error: std::io::Error| Failure::usage("UNREADABLE_FILE", format!("cannot read {}: {error}", self.file));
        if let Some(id) = &self.run_id {
            check_run_id(id)?;
        }
        let mut file = BufReader::new(File::open(&self.file).map_err(unread)?);
        let store = store.place()?.open(None)?;
        let imported = block_on(import(&*store, &mut file, self.run_id.as_deref()));
        let id = imported.map_err(|error| match error {
            ExportError::Malformed { .. } => Failure::usage("INVALID_EXPORT", format!("{}: {error}", self.file))
                .with_help("name a file that `pirn runs export ID FILE` wrote; it must be unchanged"),
            ExportError::File(error) => unread(error),
            other => not_moved(other),
        })?;
        Ok(match output {
            Output::Json => answer(&json_text(json!({"ok": true, "runId": id})), 0),
            Output::Text => answer(&format!("{id}\n"), 0),
        })
    }
}

/// Arguments of `pirn runs prune`.
#[derive(clap::Args)]
pub(super) struct Prune {
    /// Remove only runs whose last step is older than this age: 90s, 30m, 12h, 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<Duration>,
    /// Remove only runs with this status: COMPLETED, FAILED, CANCELLED, TIMEOUT
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<String>,
    /// Retain this number of the newest of these runs
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep: usize,
    /// Only report what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Also rewrite a file of more than 256 MiB, so that no copy of removed data is left in it
    #[arg(long)]
    rewrite: bool,
}

impl Prune {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let store = store.open()?;
        let filter = RunFilter {
            status: self.status.clone(),
            ..RunFilter::default()
        };
        let before = since_1970().saturating_sub(self.older_than.unwrap_or_default());
        let before = u64::try_from(before.as_millis()).unwrap_or(u64::MAX);
        let mut ended: Vec<_> = all(&*store, &filter)?
            .into_iter()
            .filter(|run| run.status.is_final() && run.updated_at <= before)
            .collect();
        ended.sort_by_key(|run| std::cmp::Reverse(run.updated_at));
        let old = ended.get(self.keep..).unwrap_or_default();
        let ids = block_on(removable(&*store, old)).map_err(|error| refused(&error))?;
        let configs: Vec<String> = ids.iter().flat_map(|id| [config_key(id), beside_key(id)]).collect();
        let removed = block_on(store.remove(ids, self.dry_run)).map_err(|error| refused(&error))?;
        if !self.dry_run {
            // Set concurrently: the store commits the writes in shared batches, with fewer syncs.
            let forgotten = configs.iter().map(|key| store.set_meta(key, None));
            block_on(try_join_all(forgotten.collect::<Vec<_>>())).map_err(|error| refused(&error))?;
            block_on(store.shrink(self.rewrite)).map_err(|error| refused(&error))?;
        }
        Ok(match output {
            Output::Json => answer(
                &json_text(json!({"removed": removed.runs, "bytesFreed": removed.bytes})),
                0,
            ),
            Output::Text => answer(
                &format!("{}, {}\n", counted(removed.runs, "run"), counted(removed.bytes, "byte")),
                0,
            ),
        })
    }
}
