//! Commands that change a store: cancel, export, import, prune.

use std::fs::File;
use std::io::{BufReader, Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use futures::executor::block_on;
use pirn::store::export::{ExportError, export, import};
use pirn::store::{RunFilter, Store};
use serde_json::{Map, Value, json};

use super::look::status;
use crate::failure::Failure;
use crate::files;
use crate::holder::{Request, Told, tell};
use crate::run::json_or_text;
use crate::store::{StoreArgs, all, close, not_resumed, open, refused, run_of, since_1970};
use crate::terminal::{FAILED, Output, answer};

/// Arguments of `pirn runs cancel`.
#[derive(clap::Args)]
pub(super) struct Cancel {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// Why, for its report
    #[arg(long, value_name = "TEXT", default_value = "cancelled")]
    reason: String,
}

/// Arguments of `pirn runs answer`.
#[derive(clap::Args)]
pub(super) struct AnswerArgs {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// The question: `pirn runs show ID` lists those that wait
    #[arg(value_name = "INTERACTION")]
    interaction: String,
    /// The answer: JSON, or a text
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
    /// Its data, a JSON object
    #[arg(value_name = "JSON", value_parser = object, default_value = "{}")]
    data: Map<String, Value>,
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

fn done(output: Output, said: &str) -> ExitCode {
    match output {
        Output::Json => answer(&format!("{:#}\n", json!({"ok": true})), 0),
        Output::Text => answer(&format!("{said}\n"), 0),
    }
}

/// Tells a run something, and says what comes of it.
fn told(store: &StoreArgs, output: Output, id: &str, request: Request) -> Result<ExitCode, Failure> {
    let said = match tell(store, request)? {
        Told::UnderWay => format!("{id} was told"),
        Told::Ended => format!("{id} has ended"),
        Told::Kept => format!(
            "{id} is told when it goes on: pirn runs resume {id} --store {}",
            store.store
        ),
    };
    Ok(done(output, &said))
}

impl Cancel {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let (run_id, reason) = (self.id.clone(), self.reason.clone());
        told(store, output, &self.id, Request::Cancel { run_id, reason })
    }
}

impl AnswerArgs {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let request = Request::Answer {
            run_id: self.id.clone(),
            interaction_id: self.interaction.clone(),
            answer: json_or_text(&self.answer),
            by: self.by.clone(),
        };
        told(store, output, &self.id, request)
    }
}

impl Emit {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let request = Request::Emit {
            run_id: self.id.clone(),
            name: self.name.clone(),
            data: self.data.clone(),
        };
        told(store, output, &self.id, request)
    }
}

/// Arguments of `pirn runs migrate`.
#[derive(clap::Args)]
pub(super) struct Migrate {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// A workflow file (again for more): what has the id of a workflow of the run takes its place
    #[arg(long = "to", value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Only say whether the run fits
    #[arg(long)]
    check: bool,
}

impl Migrate {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let files = files::read(&self.files)?;
        let engine = store.look()?;
        let run = engine.resume(self.id.as_str());
        let migrated = if self.check {
            block_on(run.check_migration(&files))
        } else {
            block_on(run.migrate(&files))
        };
        close(&engine);
        let migration = migrated.map_err(|error| not_resumed(&error))?;
        let code = if migration.fits { 0 } else { FAILED };
        Ok(match (output, &migration.first_difference) {
            (Output::Json, _) => answer(&format!("{:#}\n", json!(migration)), code),
            (Output::Text, None) if self.check => answer(&format!("{} fits\n", self.id), code),
            (Output::Text, None) => answer(&format!("{} goes on by the other definition\n", self.id), code),
            (Output::Text, Some(difference)) => {
                let node = difference.node_id.as_deref().unwrap_or("-");
                let text = format!(
                    "{} does not fit: step {}, node {node}\n  was   {}\n  would {}\n",
                    self.id, difference.step, difference.was, difference.would
                );
                answer(&text, code)
            }
        })
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
        ExportError::Malformed { .. } => Failure::usage("INVALID_EXPORT", error.to_string()),
    }
}

impl Export {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let store = store.open()?;
        run_of(&store, &self.id)?;
        let Some(path) = &self.file else {
            let mut whole = Vec::new();
            block_on(export(&store, &self.id, &mut whole)).map_err(not_moved)?;
            let written = stdout().lock().write_all(&whole);
            written.map_err(|error| Failure::failed("WRITE_FAILED", error.to_string()))?;
            return Ok(ExitCode::SUCCESS);
        };
        let unwritten = |error: std::io::Error| Failure::usage("WRITE_FAILED", format!("cannot write {path}: {error}"));
        let mut file = File::create(path).map_err(unwritten)?;
        block_on(export(&store, &self.id, &mut file)).map_err(not_moved)?;
        file.sync_all().map_err(unwritten)?;
        Ok(done(output, path))
    }
}

/// Arguments of `pirn runs import`.
#[derive(clap::Args)]
pub(super) struct Import {
    /// The file that `pirn runs export` wrote
    #[arg(value_name = "FILE")]
    file: String,
    /// Another id for the run
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
}

impl Import {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let unread =
            |error: std::io::Error| Failure::usage("UNREADABLE_FILE", format!("cannot read {}: {error}", self.file));
        let mut file = BufReader::new(File::open(&self.file).map_err(unread)?);
        let store = open(&store.store)?;
        let id = block_on(import(&store, &mut file, self.run_id.as_deref())).map_err(not_moved)?;
        Ok(match output {
            Output::Json => answer(&format!("{:#}\n", json!({"ok": true, "runId": id})), 0),
            Output::Text => answer(&format!("{id}\n"), 0),
        })
    }
}

/// Arguments of `pirn runs prune`.
#[derive(clap::Args)]
pub(super) struct Prune {
    /// Only those whose last step is older: 90s, 30m, 12h, 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<Duration>,
    /// Only those that ended so: COMPLETED, FAILED, CANCELLED, TIMEOUT
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<String>,
    /// Keep so many of them, the latest
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep: usize,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number and s, m, h or d, as in 7d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
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
        let mut ended: Vec<_> = all(&store, &filter)?
            .into_iter()
            .filter(|run| run.status.is_final() && run.updated_at <= before)
            .collect();
        ended.sort_by_key(|run| std::cmp::Reverse(run.updated_at));
        let ids: Vec<String> = ended.into_iter().skip(self.keep).map(|run| run.id).collect();
        let removed = block_on(store.remove(ids, self.dry_run)).map_err(|error| refused(&error))?;
        Ok(match output {
            Output::Json => answer(
                &format!("{:#}\n", json!({"removed": removed.runs, "bytesFreed": removed.bytes})),
                0,
            ),
            Output::Text => answer(&format!("{} runs, {} bytes\n", removed.runs, removed.bytes), 0),
        })
    }
}
