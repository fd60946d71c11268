//! Takes the events of a run into its log, until nothing more can come.

use std::sync::Arc;

use super::runs::Run;
use super::state::Service;
use crate::{Events, Heard};

/// Events that may wait to be taken into the log.
pub(super) const BUFFER: usize = 65_536;

pub(super) async fn record(service: Service, run: Arc<Run>, mut events: Events) {
    let main_thread = run.main_thread();
    let mut meter = service.metrics().of_run(&run.about.workflow_id);
    while let Some(heard) = events.next().await {
        match heard {
            Heard::Event(event) => {
                if *event.thread_id == *main_thread {
                    run.progress.observe(&event);
                }
                meter.observe(&event);
                run.log.push(event);
            }
            Heard::Lagged(count) => {
                meter.lost(count);
                run.log.skip(count);
            }
        }
    }
    // Nothing comes after it: the report is there, or will never be.
    let report = run.handle.outcome().await;
    let is_left = is_left(&service, &run).await;
    if is_left {
        service.runs().leave(&run);
    } else {
        meter.ended(&report);
    }
    run.log.close();
    if !is_left {
        service.runs().ended(&run);
    }
}

/// True if the run has ended in this process alone: its store has it go on.
async fn is_left(service: &Service, run: &Run) -> bool {
    match service.in_store(run.id()).await {
        Ok(Some(stored)) => !stored.status.is_final(),
        Ok(None) => false,
        // It has failed: nothing was told that it does not have.
        Err(_) => true,
    }
}
