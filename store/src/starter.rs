//! Runs that triggers of other runs started.

use crate::{Run, Store, StoreError};

/// Returns the id of the run whose trigger may have started the run `id`: RUN if the id is RUN-fNUMBER. Users may choose ids of that
/// form.
pub fn starter_of(id: &str) -> Option<&str> {
    let (run, firing) = id.rsplit_once("-f")?;
    let is_firing = !firing.is_empty() && firing.bytes().all(|byte| byte.is_ascii_digit());
    is_firing.then_some(run)
}

/// Returns true if the run that may have started this one has not ended. Such a run must stay in the store: a starter that is resumed
/// starts the runs of its triggers that it does not find again.
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
