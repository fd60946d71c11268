//! Handle of a run: the engine's handle while the run is active here, the outcome as bytes afterwards. A run of another process has
//! its open questions instead of the engine's handle.
//!
//! The engine's handle retains the run's report with all of its values, which take several times the memory of their JSON. An ended
//! run is remembered for a long time, so the handle is replaced.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use axum::body::Bytes;
use serde_json::Value;

use pirn::{AnswerRefused, Interaction, RunError, RunErrorCode, RunHandle, RunReport, ThreadStatus};

/// See the module.
pub(crate) struct Handle {
    id: Arc<str>,
    stage: RwLock<Stage>,
}

enum Stage {
    Active(RunHandle),
    /// Another process executes the run: the questions that are open there.
    Followed(Vec<Interaction>),
    Ended(Outcome),
}

/// Outcome of a run, without its released values.
#[derive(Clone)]
struct Outcome {
    status: ThreadStatus,
    error: Option<RunError>,
    report: Bytes,
}

impl Handle {
    pub(crate) fn new(handle: RunHandle) -> Self {
        Self {
            id: handle.run_id().into(),
            stage: RwLock::new(Stage::Active(handle)),
        }
    }

    /// Creates the handle of a run that another process executes.
    pub(crate) fn followed(run_id: &str) -> Self {
        Self {
            id: run_id.into(),
            stage: RwLock::new(Stage::Followed(Vec::new())),
        }
    }

    /// Sets the open questions of a run that another process executes.
    pub(crate) fn set_interactions(&self, open: Vec<Interaction>) {
        let mut stage = self.stage.write().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Followed(known) = &mut *stage {
            *known = open;
        }
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.id
    }

    /// Returns the engine's handle; `None` after the run's values were released, and for a run of another process.
    pub(crate) fn active(&self) -> Option<RunHandle> {
        match &*self.stage() {
            Stage::Active(handle) => Some(handle.clone()),
            Stage::Followed(_) | Stage::Ended(_) => None,
        }
    }

    /// Retains a report as JSON, and releases the run's values.
    pub(crate) fn release(&self, report: &RunReport, json: Bytes) {
        let ended = Stage::Ended(Outcome {
            status: report.status,
            error: report.error.clone(),
            report: json,
        });
        let mut stage = self.stage.write().unwrap_or_else(PoisonError::into_inner);
        let active = std::mem::replace(&mut *stage, ended);
        drop(stage);
        // Dropping large values takes time, so it happens outside of the lock.
        drop(active);
    }

    pub(crate) async fn outcome(&self) -> Arc<RunReport> {
        match self.active() {
            Some(handle) => handle.outcome().await,
            None => self.read_again(),
        }
    }

    /// Returns the report of a run that has ended.
    pub(crate) fn try_outcome(&self) -> Option<Arc<RunReport>> {
        match &*self.stage() {
            Stage::Active(handle) => return handle.try_outcome(),
            Stage::Followed(_) => return None,
            Stage::Ended(_) => {}
        }
        Some(self.read_again())
    }

    /// Returns the report as JSON, if the run's values were released.
    pub(crate) fn report(&self) -> Option<Bytes> {
        match &*self.stage() {
            Stage::Active(_) | Stage::Followed(_) => None,
            Stage::Ended(outcome) => Some(outcome.report.clone()),
        }
    }

    /// Returns how a run ended; `None` if it has not ended.
    pub(crate) fn ended(&self) -> Option<(ThreadStatus, Option<RunError>)> {
        match &*self.stage() {
            Stage::Active(handle) => handle.try_outcome().map(|report| (report.status, report.error.clone())),
            Stage::Followed(_) => None,
            Stage::Ended(outcome) => Some((outcome.status, outcome.error.clone())),
        }
    }

    pub(crate) async fn interactions(&self) -> Vec<Interaction> {
        let handle = match &*self.stage() {
            Stage::Active(handle) => handle.clone(),
            Stage::Followed(open) => return open.clone(),
            Stage::Ended(_) => return Vec::new(),
        };
        handle.interactions().await
    }

    pub(crate) async fn answer(&self, id: &str, answer: impl Into<Value>) -> Result<(), AnswerRefused> {
        self.answer_as(None, id, answer).await
    }

    pub(crate) async fn answer_as(
        &self,
        by: Option<Arc<str>>,
        id: &str,
        answer: impl Into<Value>,
    ) -> Result<(), AnswerRefused> {
        match self.active() {
            Some(handle) => handle.answer_as(by, id, answer.into()).await,
            None => Err(AnswerRefused::NotOpen),
        }
    }

    pub(crate) fn cancel(&self, reason: impl Into<String>) {
        if let Some(handle) = self.active() {
            handle.cancel(reason);
        }
    }

    /// Waits until the run is durable.
    pub(crate) async fn wait_durable(&self) -> Result<(), RunError> {
        match self.active() {
            Some(handle) => handle.wait_durable().await,
            None => Err(RunError::new(RunErrorCode::Cancelled, "the run has ended")),
        }
    }

    fn read_again(&self) -> Arc<RunReport> {
        let unreadable = |status, why: String| {
            let error = RunError::new(RunErrorCode::StoreError, why);
            RunReport::unknown(self.run_id(), status, error)
        };
        let outcome = match &*self.stage() {
            Stage::Ended(outcome) => outcome.clone(),
            Stage::Active(_) | Stage::Followed(_) => {
                return Arc::new(unreadable(ThreadStatus::Running, "the run has not ended".to_owned()));
            }
        };
        let report = serde_json::from_slice(&outcome.report);
        Arc::new(report.unwrap_or_else(|error| {
            tracing::error!(run_id = self.run_id(), %error, "a stored report cannot be parsed");
            unreadable(outcome.status, format!("the stored report cannot be parsed: {error}"))
        }))
    }

    fn stage(&self) -> RwLockReadGuard<'_, Stage> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.stage.read().unwrap_or_else(PoisonError::into_inner)
    }
}
