//! Runs that triggers of other runs started.

use serde::Deserialize;

use crate::{Run, Store, StoreError};

/// Part of the record of the start of a run. The depth of a run that no trigger started is 0.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    #[serde(default)]
    trigger_depth: u32,
}

/// Returns `R` for an id of the form `R-fNUMBER`, which is the id of a run that a trigger of the run `R` started. A user may have chosen an
/// id of that form for another run.
pub fn starter_of(id: &str) -> Option<&str> {
    let (run, firing) = id.rsplit_once("-f")?;
    let is_firing = !firing.is_empty() && firing.bytes().all(|byte| byte.is_ascii_digit());
    is_firing.then_some(run)
}

/// Returns true if a trigger of another run started `run`, or if the record of its start is unreadable.
///
/// # Cancel safety
/// Cancel safe: the call only reads.
///
/// # Errors
/// Fails if the store fails.
pub async fn is_started(store: &dyn Store, run: &Run) -> Result<bool, StoreError> {
    let Some(start) = run.contents.first() else {
        // The record of the start was dropped with the events. Runs that triggers start have no session.
        return Ok(run.session.is_none());
    };
    let texts = store.contents(vec![*start]).await?;
    let start = texts.first().map(|text| serde_json::from_str::<Start>(text));
    Ok(!matches!(start, Some(Ok(start)) if start.trigger_depth == 0))
}

/// Returns true if `run` must stay in the store because the run that may have started it has not ended: when that run is resumed, it
/// starts each run of its triggers that is not in the store.
///
/// # Cancel safety
/// Cancel safe: the call only reads.
///
/// # Errors
/// Fails if the store fails.
pub async fn has_live_starter(store: &dyn Store, run: &Run) -> Result<bool, StoreError> {
    let Some(starter) = starter_of(&run.id) else {
        return Ok(false);
    };
    Ok(store.run(starter).await?.is_some_and(|run| !run.status.is_final()))
}

/// Returns the ids of the runs that can be removed: those without a [live starter](has_live_starter).
///
/// # Cancel safety
/// Cancel safe: the call only reads.
///
/// # Errors
/// Fails if the store fails.
pub async fn removable(store: &dyn Store, runs: &[Run]) -> Result<Vec<String>, StoreError> {
    let mut ids = Vec::with_capacity(runs.len());
    for run in runs {
        if !has_live_starter(store, run).await? {
            ids.push(run.id.clone());
        }
    }
    Ok(ids)
}
