//! Starting a run, whatever interface asks for it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::problem::{Problem, ProblemCode};
use super::recorder::{self, BUFFER};
use super::runs::Run;
use super::state::Service;
use crate::{Message, RunError, RunErrorCode};

/// Characters that a run's id may have.
const MAX_ID: usize = 128;

/// A run that is asked for.
#[derive(Debug, Default)]
pub(super) struct Start {
    pub(super) workflow: String,
    pub(super) input: Value,
    pub(super) conversation: Vec<Message>,
    pub(super) run_id: Option<String>,
    pub(super) metadata: Map<String, Value>,
}

impl Service {
    /// Starts a run and records its events from the first one on.
    pub(super) async fn start(&self, start: Start) -> Result<Arc<Run>, Problem> {
        if self.is_draining() {
            return Err(draining());
        }
        let offer = self
            .catalogue()
            .find(&start.workflow)
            .map_err(|problem| problem.at("/workflow"))?;
        offer.check(&start.input)?;
        if let Some(id) = &start.run_id {
            check_id(id)?;
        }
        let (run_id, workflow_id) = (start.run_id.clone(), start.workflow.clone());
        let prepared = if start.conversation.is_empty() {
            prepare(self, start)
        } else {
            // Its tokens are counted, which takes its time where it is long.
            let service = self.clone();
            let prepared = tokio::task::spawn_blocking(move || prepare(&service, start)).await;
            prepared.map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?
        };
        let mut events = None;
        let run = self.runs().start(run_id.as_deref(), || {
            let mut prepared = prepared;
            events = Some(prepared.events(&[], BUFFER));
            let handle = prepared.start().map_err(|error| refused(&error))?;
            Ok(Run::new(handle, workflow_id, now(), self.limits()))
        })?;
        self.metrics().started(&run.workflow_id);
        if let Some(events) = events {
            self.tasks()
                .spawn(recorder::record(self.clone(), Arc::clone(&run), events));
        }
        Ok(run)
    }
}

fn prepare(service: &Service, start: Start) -> crate::RunBuilder {
    let mut prepared = service.engine().run(start.workflow).input(start.input);
    if let Some(id) = start.run_id {
        prepared = prepared.run_id(id);
    }
    if !start.metadata.is_empty() {
        prepared = prepared.metadata(start.metadata);
    }
    prepared.conversation(start.conversation)
}

pub(super) fn draining() -> Problem {
    Problem::new(
        ProblemCode::Draining,
        "the service is shutting down and starts no more runs",
    )
    .retry_after(5)
}

fn refused(error: &RunError) -> Problem {
    match error.code {
        RunErrorCode::Overloaded => Problem::new(ProblemCode::Overloaded, error.message.clone()).retry_after(1),
        RunErrorCode::Cancelled => draining(),
        _other => Problem::new(ProblemCode::Internal, error.to_string()),
    }
}

fn check_id(id: &str) -> Result<(), Problem> {
    let is_plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if is_plain && (1..=MAX_ID).contains(&id.len()) {
        return Ok(());
    }
    let detail = format!("a run's id has 1 to {MAX_ID} letters, digits, hyphens, dots and underscores");
    Err(Problem::new(ProblemCode::InvalidValue, detail).at("/runId"))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
