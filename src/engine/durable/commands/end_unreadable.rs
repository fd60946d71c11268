//! Cancellation of a run with a journal that cannot be replayed.
//!
//! No input can reach such a run. Without this operation it would stay unfinished: the next run of its session would wait for it,
//! the run that started it could not be resumed, and it could be neither pruned nor erased.

use std::sync::Arc;

use pirn_store::{Commit, RunStatus, StoreError};

use crate::engine::Engine;
use crate::engine::durable::claim::Claim;
use crate::engine::durable::records::sessions::session_of;
use crate::engine::durable::resume_error::ResumeError;

/// Returns true if this error means that the journal of this run cannot be replayed.
pub(super) fn is_unreadable(error: &ResumeError, run_id: &str) -> bool {
    match error {
        // The error may be that of a run which this run has started.
        ResumeError::Unreadable { run_id: of, .. } | ResumeError::Diverged { run_id: of, .. } => of == run_id,
        // A damaged content has no run.
        ResumeError::Store(StoreError::Damaged { run, .. }) => run.as_deref().is_none_or(|of| of == run_id),
        _other => false,
    }
}

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
    if let Some(session) = session_of(&*durable.store, &run).await? {
        engine.shared().leave_session(session, &Arc::from(run_id));
    }
    Ok(())
}
