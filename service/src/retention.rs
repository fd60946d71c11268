//! Retention: removal of runs that ended long ago from the store.

use std::time::{Duration, Instant};

use crate::runs::now;
use crate::state::Service;
use pirn::store::{Run, RunFilter, RunStatus, Store, StoreError};

/// Number of runs that one query reads.
const PAGE: usize = 500;

/// Number of runs that one removal concerns. Commits of other runs wait for a removal, so it must be short.
const BATCH: usize = 20;

/// Pause after a removal, as a multiple of its duration: removals use at most a fifth of the time of the store.
const PAUSE: u32 = 4;

/// Maximum time between two passes over the store.
const INTERVAL: Duration = Duration::from_mins(10);

/// Minimum time between two passes over the store.
const SHORTEST: Duration = Duration::from_millis(100);

impl Service {
    /// Removes the runs of the engine's store that ended longer ago than `age`, in small batches, until the service has shut down.
    /// Sessions stay. A run that is the base of a fork stays hidden in the store until the fork is removed.
    ///
    /// Errors of the store are logged, and the next pass tries again.
    pub async fn remove_ended(&self, age: Duration) {
        let Some(store) = self.engine().store() else { return };
        let mut passes = tokio::time::interval((age / 10).clamp(SHORTEST, INTERVAL));
        passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_draining() {
            passes.tick().await;
            match self.pass(&**store, age).await {
                Ok(0) => {}
                Ok(removed) => tracing::info!(removed, "runs that ended long ago were removed from the store"),
                Err(error) => tracing::warn!(%error, "removing runs that ended long ago failed"),
            }
        }
    }

    /// Removes the runs that are old enough now; returns their number.
    async fn pass(&self, store: &dyn Store, age: Duration) -> Result<u64, StoreError> {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let before = now().saturating_sub(age);
        let mut removed = 0;
        for status in RunStatus::ALL.into_iter().filter(|status| status.is_final()) {
            let filter = RunFilter {
                status: Some(status.as_str().to_owned()),
                ..RunFilter::default()
            };
            let mut after = None;
            loop {
                let page = store.runs(filter.clone(), after, PAGE).await?;
                let is_last = page.len() < PAGE;
                // A run that started later has not ended earlier than that.
                let is_done = page.last().is_none_or(|run| run.started_at > before);
                after = page.last().map(Run::place);
                let old: Vec<String> = page
                    .into_iter()
                    .filter(|run| is_old(run, before))
                    .map(|run| run.id)
                    .collect();
                for batch in old.chunks(BATCH) {
                    if self.is_draining() {
                        return Ok(removed);
                    }
                    let started = Instant::now();
                    removed += store.remove(batch.to_vec(), false).await?.runs;
                    self.forget_removed(batch);
                    tokio::time::sleep(started.elapsed() * PAUSE).await;
                }
                if is_last || is_done {
                    break;
                }
            }
        }
        Ok(removed)
    }
}

/// True if the run ended at this time or before.
fn is_old(run: &Run, before: u64) -> bool {
    run.status.is_final() && run.updated_at <= before
}
