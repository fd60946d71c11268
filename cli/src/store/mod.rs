//! The store that a command names: its file or server, its keys, its runs, and the process that holds it.
//!
//! Not here: subcommands, which are in `runs` and `sessions`, and stores themselves, which are in the crates `pirn-store`,
//! `pirn-postgres` and `pirn-restate`.

pub(crate) mod place;
mod store_key;
pub(crate) mod store_owner;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::executor::block_on;
use pirn::profiles::beside;
use pirn::store::{Run, RunFilter, Store, StoreError};
use pirn::{Engine, ResumeError};
use serde_json::{Value, json};

use crate::output::failure::Failure;
use crate::output::terminal::shell_quoted;

/// Returns the file of a store with this name. A name that ends with a separator is a folder, even if the folder does not exist.
pub(crate) fn file(named: &str) -> PathBuf {
    let path = Path::new(named);
    if path.is_dir() || named.ends_with(std::path::is_separator) {
        path.join("runs.db")
    } else {
        path.to_owned()
    }
}

/// Returns the path of the socket on which the process that has the store open may listen.
#[cfg(unix)]
pub(crate) fn socket_of(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".sock");
    name.into()
}

/// True if a process listens on the socket of the store.
#[cfg(unix)]
pub(crate) fn has_listener(store: &Path) -> bool {
    // The socket of a killed process still exists, but refuses connections.
    std::os::unix::net::UnixStream::connect(socket_of(store)).is_ok()
}

/// Returns false: only Unix has the sockets that this uses.
#[cfg(not(unix))]
pub(crate) fn has_listener(_: &Path) -> bool {
    false
}

/// Refuses to write to a file of the store itself, which is open.
pub(crate) fn spare(store: Option<&Path>, written: &str) -> Result<(), Failure> {
    let Some(store) = store else { return Ok(()) };
    // A file that does not exist yet is not a file of the open store.
    let (Ok(store), Ok(file)) = (store.canonicalize(), Path::new(written).canonicalize()) else {
        return Ok(());
    };
    let is_beside = |suffix: &str| {
        let mut name = store.clone().into_os_string();
        name.push(suffix);
        Path::new(&name) == file
    };
    if ["", "-wal", "-journal", ".lock", ".sock"].into_iter().any(is_beside) {
        let message = format!("cannot write {written}: it is a file of the store");
        return Err(Failure::usage("WRITE_FAILED", message).with_help("name another file"));
    }
    Ok(())
}

/// Converts a store's error: a held or unreadable store and an unknown run are wrong usage.
pub(crate) fn refused(error: &StoreError) -> Failure {
    let (code, message) = (error.code(), error.to_string());
    match error {
        StoreError::Held { .. } => Failure::usage(code, message)
            .with_help(
                "that process serves `pirn runs list`, `answer`, `say`, `emit`, `pause`, `pin`, `cancel` and `backup`; for other commands, wait until it ends",
            ),
        StoreError::KeyRefused { .. } => Failure::usage(code, message).with_help(
            "give the keys of the store: --key-file FILE, PIRN_STORE_KEY, or keyFile of [store] in pirn.toml; the first one encrypts, several may decrypt",
        ),
        StoreError::NoSuchRun { .. } => Failure::usage(code, message).with_help("list the runs: pirn runs list"),
        StoreError::Damaged { run, .. } => Failure::failed(code, message).with_help(match run {
            Some(run) => format!(
                "another program changed the store, or its disk fails: restore a backup, or end the run without its steps: pirn \
                 runs cancel {}",
                shell_quoted(run)
            ),
            None => "another program changed the store, or its disk fails: restore a backup".to_owned(),
        }),
        StoreError::Unreadable { file, .. } => {
            let folder = Path::new(&**file).parent().filter(|folder| !folder.as_os_str().is_empty());
            Failure::usage(code, message).with_help(match folder.filter(|folder| !folder.exists()) {
                Some(folder) => format!(
                    "create its folder first: mkdir -p {}",
                    shell_quoted(&folder.display().to_string())
                ),
                None => "name another file with --store; a missing file becomes a new store".to_owned(),
            })
        }
        _ => Failure::failed(code, message),
    }
}

/// Converts the error of resuming or steering a run.
pub(crate) fn not_resumed(error: &ResumeError) -> Failure {
    match error {
        ResumeError::Store(error) => refused(error),
        ResumeError::NoSuchStep { .. } | ResumeError::NoSuchVariable { .. } => {
            Failure::usage(error.code(), error.to_string())
        }
        ResumeError::Missing { .. } => Failure::failed(error.code(), error.to_string())
            .with_help("name the config that has them: --profiles FILE; the run is unchanged"),
        ResumeError::Undecided(_) => Failure::failed(error.code(), error.to_string())
            .with_help("check whether the call took effect; then use --in-doubt repeat or --in-doubt fail"),
        ResumeError::Diverged { run_id, diverged } => {
            let (run, before) = (shell_quoted(run_id), diverged.step.saturating_sub(1));
            Failure::failed(error.code(), error.to_string()).with_help(format!(
                "its journal was edited, or written with other functions or another version of Pirn, and stays as it is; continue \
                 from an earlier step: pirn runs fork {run} --at {before}; or end an unfinished run: pirn runs cancel {run}"
            ))
        }
        ResumeError::Unreadable { run_id, .. } => {
            Failure::failed(error.code(), error.to_string()).with_help(format!(
                "its journal was edited, or written by another version of Pirn, and stays as it is; use that version, or end an \
                 unfinished run: pirn runs cancel {}",
                shell_quoted(run_id)
            ))
        }
        _ => Failure::failed(error.code(), error.to_string()),
    }
}

/// Returns the run of this id.
pub(crate) fn run_of(store: &dyn Store, id: &str) -> Result<Run, Failure> {
    let run = block_on(store.run(id)).map_err(|error| refused(&error))?;
    run.ok_or_else(|| refused(&StoreError::NoSuchRun { run: id.to_owned() }))
}

/// Returns the JSON of a run that all commands show.
pub(crate) fn shown(run: &Run) -> Value {
    let mut shown = json!({
        "runId": run.id,
        "workflowId": run.workflow,
        "status": run.status.as_str(),
        "steps": run.steps,
        "startedAt": run.started_at,
        "updatedAt": run.updated_at,
    });
    if let Some(session) = &run.session {
        shown["session"] = json!(session);
    }
    if let Some(what) = run.status.waiting_for() {
        shown["waitingFor"] = json!(what.as_str());
    }
    if let Some(base) = &run.base {
        shown["forkedFrom"] = json!({"runId": base.run, "step": base.step});
    }
    shown
}

/// Shuts down an engine that was used for reading only.
pub(crate) fn close(engine: &Engine) {
    engine.shutdown_blocking(Duration::from_secs(1));
}

/// Number of runs that one query of the store returns.
const PAGE: usize = 1_000;

/// Returns every run that matches a filter, in the filter's order.
pub(crate) fn all(store: &dyn Store, filter: &RunFilter) -> Result<Vec<Run>, Failure> {
    first(store, filter, usize::MAX)
}

/// Returns the last `limit` runs by start, the oldest of them first.
pub(crate) fn latest(store: &dyn Store, filter: RunFilter, limit: usize) -> Result<Vec<Run>, Failure> {
    let youngest_first = RunFilter {
        youngest_first: true,
        ..filter
    };
    let mut runs = first(store, &youngest_first, limit)?;
    runs.reverse();
    Ok(runs)
}

fn first(store: &dyn Store, filter: &RunFilter, limit: usize) -> Result<Vec<Run>, Failure> {
    let (mut runs, mut after) = (Vec::new(), None);
    while runs.len() < limit {
        let wanted = PAGE.min(limit - runs.len());
        let page = block_on(store.runs(filter.clone(), after, wanted)).map_err(|error| refused(&error))?;
        let is_last = page.len() < wanted;
        after = page.last().map(Run::place);
        runs.extend(page);
        if is_last {
            break;
        }
    }
    Ok(runs)
}

/// Returns the key of a run's config file in the store.
pub(crate) fn config_key(run_id: &str) -> String {
    format!("config file of {run_id}")
}

/// The key that earlier versions wrote: its value is the workflow file, and the config is in that file's folder.
pub(crate) fn beside_key(run_id: &str) -> String {
    format!("config of {run_id}")
}

/// Key of the config file of the service that last opened the store.
pub(crate) const SERVED_CONFIG: &str = "config of the service";

/// Returns the config file of a run, if the store has one.
pub(crate) fn config_of(store: &dyn Store, run_id: &str) -> Result<Option<PathBuf>, Failure> {
    let meta = |key: &str| block_on(store.meta(key)).map_err(|error| refused(&error));
    if let Some(own) = meta(&config_key(run_id))? {
        return Ok(Some(own.into()));
    }
    let beside = meta(&beside_key(run_id))?.and_then(|file| beside(Path::new(&file)));
    match beside {
        Some(own) => Ok(Some(own)),
        None => Ok(meta(SERVED_CONFIG)?.map(PathBuf::from)),
    }
}

/// Returns the time since the Unix epoch.
#[allow(clippy::disallowed_methods)] // wall-clock time: stored runs are compared across processes, and no engine is running here
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns a new run id, made from the time and the process id.
pub(crate) fn new_run_id() -> String {
    format!("run-{:x}-{:x}", since_1970().as_millis(), std::process::id())
}
