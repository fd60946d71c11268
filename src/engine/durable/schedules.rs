//! The memory of an engine's schedules, in its store.

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::ScheduleMemory;
use pirn_core::Millis;

use super::Durable;

/// The name that the store has a schedule's last time under.
fn name(schedule: &str) -> String {
    format!("schedule {schedule}")
}

impl ScheduleMemory for Durable {
    fn last(&self, schedule: &str) -> BoxFuture<'static, Option<Millis>> {
        let kept = self.store.meta(&name(schedule));
        let last = kept.map(|kept| match kept {
            Ok(kept) => kept.and_then(|last| last.parse().ok()),
            Err(error) => {
                tracing::error!(%error, "what a schedule has missed is not known");
                None
            }
        });
        last.boxed()
    }

    fn keep(&self, schedule: &str, last: Millis) {
        // A command takes effect though nobody waits for it; a store that fails says so to the runs.
        drop(self.store.set_meta(&name(schedule), Some(last.to_string())));
    }

    fn has_begun(&self, run_id: &str) -> BoxFuture<'static, bool> {
        self.store.run(run_id).map(|run| matches!(run, Ok(Some(_)))).boxed()
    }
}
