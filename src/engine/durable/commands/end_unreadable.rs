//! Cancellation of a run with a journal that cannot be replayed.
//!
//! No input can reach such a run. Without this operation it would stay unfinished: the next run of its session would wait for it,
//! the run that started it could not be resumed, and it could be neither pruned nor erased.

use std::sync::Arc;

use pirn_actors::engine::RunEnd;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_store::{Commit, RunStatus, StoreError};

use super::started_runs::report_to_starter;
use crate::engine::Engine;
use crate::engine::durable::claim::Claim;
use crate::engine::durable::records::sessions::session_of;
use crate::engine::durable::resume_error::ResumeError;

/// Stores the status CANCELLED for a run without an owner. Its records stay as they are.
pub(super) async fn end_unreadable(engine: &Engine, run_id: &str) -> Result<(), ResumeError> {
    let durable = engine.durable()?;
    let _lock = durable.peers.lock(run_id).await;
    durable.peers.check_unowned(run_id)?;
    let _claim = Claim::make(&durable.store, run_id).await?;
    let run = durable.store.run(run_id).await?;
    let run = run.ok_or_else(|| StoreError::NoSuchRun { run: run_id.to_owned() })?;
    if run.status.is_final() {
        return Err(ResumeError::HasEnded {
            run_id: run.id,
            status: run.status,
        });
    }
    tracing::warn!(run_id, "a run whose journal cannot be replayed is cancelled");
    let commit = Commit::after(run_id, run.steps).status(RunStatus::Cancelled);
    durable.store.commit(commit).await?;
    if let Some(to_starter) = report_to_starter(&durable, &run).await? {
        // The starter reads the new status from the store.
        let error = RunError::new(RunErrorCode::Cancelled, "cancelled without its report");
        to_starter(RunEnd::Left(&error));
    }
    if let Some(session) = session_of(&*durable.store, &run).await? {
        engine.shared().leave_session(session, &Arc::from(run_id));
    }
    Ok(())
}
