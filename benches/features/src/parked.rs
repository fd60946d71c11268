//! Memory of a parked durable run.

use std::path::Path;
use std::time::Duration;

use pirn::store::SqliteStore;
use pirn::{Engine, RunHandle};
use pirn_benches::compare::Times;
use pirn_benches::memory::settled_memory;
use pirn_benches::sides::workflows;
use pirn_benches::timed;
use serde_json::json;

/// Measures the resident bytes of one of `runs` parked runs that wait for a person, and the microseconds until one is rebuilt,
/// by querying the questions of a hundred runs. The store is in `folder`. Its page cache, which does not grow with the number of
/// runs, is filled before.
///
/// # Errors
/// Fails if the store does, or if the system does not report the memory of the process.
pub(crate) async fn a_parked_run(runs: usize, folder: &Path) -> std::io::Result<(f64, Times)> {
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
    let before = settled_memory().await?;
    let handles = parked(runs, &start).await?;
    let bytes = (settled_memory().await? - before) / runs as f64;
    let mut times = Vec::new();
    for run in handles.iter().step_by((runs / WOKEN).max(1)) {
        let (us, questions) = timed(run.interactions()).await;
        if questions.len() != 1 {
            return Err(std::io::Error::other("it has one question"));
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

/// Starts runs in groups: allocations for a run that is parked are reused for the next ones.
async fn parked(runs: usize, start: &impl Fn() -> std::io::Result<RunHandle>) -> std::io::Result<Vec<RunHandle>> {
    let mut handles = Vec::with_capacity(runs);
    while handles.len() < runs {
        let some = (handles.len()..runs.min(handles.len() + 1_000)).map(|_| start());
        let some = some.collect::<std::io::Result<Vec<_>>>()?;
        for run in &some {
            run.wait_durable().await.map_err(std::io::Error::other)?;
        }
        handles.extend(some);
    }
    Ok(handles)
}
