//! State of an engine's schedules, persisted in its store.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{EarlierRun, ScheduleMemory};
use pirn_conversation::conversation::hash_text;
use pirn_events::schedule::ScheduleState;

use super::Durable;
use super::commands::run_command::RunCommand;

/// Key of a schedule's state in the store.
fn name(schedule: &str) -> String {
    format!("schedule {schedule}")
}

/// Parses a schedule's state. Earlier versions stored only the last time.
fn read(text: &str) -> Option<ScheduleState> {
    let last = || {
        let last = text.parse().ok()?;
        Some(ScheduleState {
            last,
            ..ScheduleState::default()
        })
    };
    // A state that cannot be read counts as none, so the schedule starts again instead of never firing.
    serde_json::from_str(text).ok().or_else(last)
}

impl ScheduleMemory for Durable {
    fn kept(&self, schedule: &str) -> BoxFuture<'static, Option<ScheduleState>> {
        let kept = self.store.meta(&name(schedule));
        let kept = kept.map(|kept| match kept {
            Ok(kept) => kept.as_deref().and_then(read),
            // A schedule without a memory may lose the times that passed while no process ran, which is better than to stop it.
            Err(error) => {
                tracing::error!(%error, "reading the state of a schedule failed");
                None
            }
        });
        kept.boxed()
    }

    fn keep(&self, schedule: &str, kept: &ScheduleState) {
        let text = serde_json::to_string(kept).unwrap_or_default();
        // The command takes effect even if the returned future is dropped. A store failure is reported to the runs.
        drop(self.store.set_meta(&name(schedule), Some(text)));
    }

    fn begun(&self, run_id: &str) -> BoxFuture<'static, EarlierRun> {
        let is_shared = self.store.claims().is_some();
        let run = self.store.run(run_id);
        let begun = run.map(move |run| match run {
            Ok(Some(run)) if run.status.is_final() => EarlierRun::Ended,
            // Any process may own the run, so this one does not resume it for the schedule.
            Ok(Some(_)) if is_shared => EarlierRun::Somewhere,
            Ok(Some(_)) => EarlierRun::Here,
            // If the run exists after all, its start is refused because of its id.
            Ok(None) | Err(_) => EarlierRun::No,
        });
        begun.boxed()
    }
    fn seed(&self, schedule: &str) -> Option<u64> {
        // With different delays, one process would skip a time that another one starts, and not count that run as an overlap.
        self.store.claims()?;
        Some(hash_text([&**self.store.location(), schedule]))
    }

    fn cancel(&self, run_id: &str, reason: &str) -> BoxFuture<'static, bool> {
        let (store, run_id) = (Arc::clone(&self.store), run_id.to_owned());
        let cancel = RunCommand::Cancel {
            reason: reason.to_owned(),
        };
        let cancelled = async move {
            if let Some(claims) = store.claims() {
                // Serialization cannot fail: all keys are strings.
                let body = serde_json::to_string(&cancel).unwrap_or_default();
                if let Err(error) = claims.tell(&run_id, body).await {
                    tracing::warn!(%error, run_id, "a run of a schedule was not cancelled yet");
                }
            }
            // Read in any case: without an owner, the run is cancelled once a process has resumed it.
            let run = store.run(&run_id).await;
            run.is_ok_and(|run| run.is_none_or(|run| run.status.is_final()))
        };
        cancelled.boxed()
    }
}
