//! Memory of a thread and a run while they wait. One measurement a process: memory that was given back is used again.

use std::path::Path;
use std::time::Duration;

use pirn::store::SqliteStore;
use pirn::{Engine, RunHandle};
use serde_json::json;

use crate::compare::Times;
use crate::sides::workflows;
use crate::timed;

/// Resident bytes a thread of one run whose `threads` branches all wait.
///
/// # Errors
/// Fails if the system does not say how much memory the process has.
pub async fn a_thread(threads: usize) -> std::io::Result<f64> {
    let workflow = workflows::fork_of_idle(threads).to_string();
    waiting(&workflow, "idle-fork", 1)
        .await
        .map(|bytes| bytes / threads as f64)
}

/// Resident bytes a run of `runs` that all wait.
///
/// # Errors
/// As [`a_thread`].
pub async fn a_run(runs: usize) -> std::io::Result<f64> {
    let workflow = workflows::idle().to_string();
    waiting(&workflow, "idle", runs).await.map(|bytes| bytes / runs as f64)
}

/// Resident bytes a durable run of `runs` that wait for a person and have left memory; and the microseconds until one is back, by
/// asking a hundred of them for their questions. The store lies in `folder`; the pages of its file that are kept in memory, the
/// same number whatever the number of runs, are there before.
///
/// # Errors
/// As [`a_thread`]; and where the store fails.
pub async fn a_parked_run(runs: usize, folder: &Path) -> std::io::Result<(f64, Times)> {
    const WOKEN: usize = 100;
    const FIRST: usize = 20_000;
    let store = SqliteStore::open(folder.join("parked.db")).map_err(std::io::Error::other)?;
    let built = Engine::builder()
        .store(store)
        .park_after(Duration::ZERO)
        .workflows(workflows::asks().to_string())
        .build();
    let engine = built.map_err(|error| std::io::Error::other(error.to_string()))?;
    let start = || engine.start("asks", json!(0)).map_err(std::io::Error::other);
    let first = parked(FIRST, &start).await?;
    let before = at_rest().await?;
    let handles = parked(runs, &start).await?;
    let bytes = (at_rest().await? - before) / runs as f64;
    let mut times = Vec::new();
    for run in handles.iter().step_by((runs / WOKEN).max(1)) {
        let (us, questions) = timed(run.interactions()).await;
        if questions.len() != 1 {
            return Err(std::io::Error::other("it asks one question"));
        }
        times.push(us);
    }
    times.sort_by(f64::total_cmp);
    drop(first);
    engine.shutdown(Duration::from_mins(1)).await;
    let times = Times {
        side: "back".to_owned(),
        us: times,
    };
    Ok((bytes, times))
}

/// So many runs, a few at a time: what is made for one that has left memory is there for the next.
async fn parked(runs: usize, start: &impl Fn() -> std::io::Result<RunHandle>) -> std::io::Result<Vec<RunHandle>> {
    let mut handles = Vec::with_capacity(runs);
    while handles.len() < runs {
        let some = (handles.len()..runs.min(handles.len() + 1_000)).map(|_| start());
        let some = some.collect::<std::io::Result<Vec<_>>>()?;
        for run in &some {
            run.kept().await.map_err(std::io::Error::other)?;
        }
        handles.extend(some);
    }
    Ok(handles)
}

async fn waiting(workflow: &str, id: &str, runs: usize) -> std::io::Result<f64> {
    let built = Engine::builder()
        .workflows(workflows::waits().to_string())
        .workflows(workflow)
        .build();
    let engine = built.map_err(|error| std::io::Error::other(error.to_string()))?;
    let start = |id: &str| -> std::io::Result<RunHandle> {
        let started = engine.start(id, json!(0));
        started.map_err(|error| std::io::Error::other(error.to_string()))
    };
    // What is made once is no part of it.
    start("waits")?.outcome().await;
    let before = at_rest().await?;
    let handles = (0..runs).map(|_| start(id)).collect::<std::io::Result<Vec<_>>>()?;
    let bytes = at_rest().await? - before;
    drop(handles);
    Ok(bytes)
}

/// Resident bytes once they have ceased to change.
#[allow(clippy::disallowed_methods)] // a benchmark has no host port
async fn at_rest() -> std::io::Result<f64> {
    let (mut last, mut same) = (resident()?, 0);
    while same < 10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = resident()?;
        same = if (now - last).abs() < 65_536.0 { same + 1 } else { 0 };
        last = now;
    }
    Ok(last)
}

fn resident() -> std::io::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes
        .map(|kilobytes| kilobytes * 1024.0)
        .ok_or_else(|| std::io::Error::other("no VmRSS in /proc/self/status"))
}
