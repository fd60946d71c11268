//! Retention: removal of runs that ended long ago from the store, and of the events of such runs.

use std::time::{Duration, Instant};

use crate::runs::now;
use crate::state::Service;
use pirn::store::{Run, RunFilter, RunStatus, Store, StoreError, removable};

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

/// Action of a pass on each run that is old enough.
#[derive(Clone, Copy)]
enum Action {
    RemoveRun,
    DropEvents,
}

impl Service {
    /// Removes the runs of the engine's store that ended longer ago than `age`, in small batches, until the service has shut down.
    /// Sessions stay, and so do runs that triggers of unfinished runs started. A run that is the base of a fork stays hidden in the store until the fork is removed.
    ///
    /// Errors of the store are logged, and the next pass tries again.
    pub async fn remove_ended(&self, age: Duration) {
        self.passes(age, Action::RemoveRun).await;
    }

    /// Drops the events and steps of the runs of the engine's store that ended longer ago than `age`, one run at a time, until the service
    /// has shut down. The runs stay in lists, and their reports are readable. A run that is the base of a fork, or that this engine cannot
    /// replay, is unchanged.
    ///
    /// Errors of the store are logged, and the next pass tries again.
    pub async fn drop_events(&self, age: Duration) {
        self.passes(age, Action::DropEvents).await;
    }

    async fn passes(&self, age: Duration, action: Action) {
        let Some(store) = self.engine().store() else { return };
        let mut passes = tokio::time::interval((age / 10).clamp(SHORTEST, INTERVAL));
        passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_draining() {
            passes.tick().await;
            match (self.pass(&**store, age, action).await, action) {
                (Ok(0), _) => {}
                (Ok(removed), Action::RemoveRun) => {
                    tracing::info!(removed, "runs that ended long ago were removed from the store");
                }
                (Ok(runs), Action::DropEvents) => {
                    tracing::info!(runs, "events of runs that ended long ago were dropped");
                }
                (Err(error), _) => tracing::warn!(%error, "removing data of runs that ended long ago failed"),
            }
        }
    }

    /// Executes the action on the runs that are old enough now; returns their number.
    async fn pass(&self, store: &dyn Store, age: Duration, action: Action) -> Result<u64, StoreError> {
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
                let old = page.into_iter().filter(|run| is_old(run, before));
                // A run without contents has no events any longer.
                let old = old.filter(|run| matches!(action, Action::RemoveRun) || !run.contents.is_empty());
                let old: Vec<Run> = old.collect();
                let batch = match action {
                    Action::RemoveRun => BATCH,
                    Action::DropEvents => 1,
                };
                for batch in old.chunks(batch) {
                    if self.is_draining() {
                        return Ok(removed);
                    }
                    let started = Instant::now();
                    removed += match action {
                        Action::RemoveRun => self.remove(store, batch).await?,
                        Action::DropEvents => self.drop_events_of(batch).await,
                    };
                    tokio::time::sleep(started.elapsed() * PAUSE).await;
                }
                if is_last || is_done {
                    break;
                }
            }
        }
        Ok(removed)
    }

    async fn remove(&self, store: &dyn Store, runs: &[Run]) -> Result<u64, StoreError> {
        let ids = removable(store, runs).await?;
        let removed = store.remove(ids.clone(), false).await?.runs;
        self.forget_removed(&ids);
        Ok(removed)
    }

    async fn drop_events_of(&self, runs: &[Run]) -> u64 {
        let mut dropped = 0;
        for run in runs {
            let (engine, stored) = (self.engine().clone(), run.clone());
            // As a replay, which the report needs: on a blocking thread, within the limit of concurrent replays.
            let replayed = self
                .replays()
                .run(move || async move { engine.drop_events(&stored).await });
            match replayed.await {
                Ok(Ok(is_dropped)) => {
                    dropped += u64::from(is_dropped);
                    // The next request reads the report from the store.
                    self.forget_removed(std::slice::from_ref(&run.id));
                }
                // One run of another version must not end the pass.
                Ok(Err(error)) => tracing::warn!(run_id = run.id, %error, "the events of a run were not dropped"),
                Err(problem) => {
                    tracing::warn!(
                        run_id = run.id,
                        why = problem.detail(),
                        "the events of a run were not dropped"
                    );
                }
            }
        }
        dropped
    }
}

/// True if the run ended at this time or before.
fn is_old(run: &Run, before: u64) -> bool {
    run.status.is_final() && run.updated_at <= before
}
