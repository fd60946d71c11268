//! Memory of a waiting thread and a waiting run. One measurement for each process, because freed memory is reused.

use std::time::Duration;

use pirn::Engine;
use serde_json::json;

use crate::sides::workflows;

/// Measures the resident bytes of one of `threads` waiting branches of a run.
///
/// # Errors
/// Fails if the system does not report the memory of the process.
pub async fn a_thread(threads: usize) -> std::io::Result<f64> {
    let workflow = workflows::fork_of_idle(threads).to_string();
    waiting(&workflow, "idle-fork", 1)
        .await
        .map(|bytes| bytes / threads as f64)
}

/// Measures the resident bytes of one of `runs` waiting runs.
///
/// # Errors
/// Those of [`a_thread`].
pub async fn a_run(runs: usize) -> std::io::Result<f64> {
    let workflow = workflows::idle().to_string();
    waiting(&workflow, "idle", runs).await.map(|bytes| bytes / runs as f64)
}

async fn waiting(workflow: &str, id: &str, runs: usize) -> std::io::Result<f64> {
    let built = Engine::builder()
        .workflows(workflows::waits().to_string())
        .workflows(workflow)
        .build();
    let engine = built.map_err(|error| std::io::Error::other(error.to_string()))?;
    let start = |id: &str| {
        let started = engine.start(id, json!(0));
        started.map_err(|error| std::io::Error::other(error.to_string()))
    };
    // Warm-up: excludes one-time allocations.
    start("waits")?.outcome().await;
    let before = settled_memory().await?;
    let handles = (0..runs).map(|_| start(id)).collect::<std::io::Result<Vec<_>>>()?;
    let bytes = settled_memory().await? - before;
    drop(handles);
    Ok(bytes)
}

/// Waits until the resident memory is stable. Returns it in bytes.
///
/// # Errors
/// Those of [`a_thread`].
#[allow(clippy::disallowed_methods)] // a benchmark has no host port
pub async fn settled_memory() -> std::io::Result<f64> {
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
