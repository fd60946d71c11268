//! The engine's interface for its actors.

use std::sync::Arc;

use pirn_core::run::{DetachedStart, EventInterest};
use pirn_core::thread::FiringId;
use pirn_definition::error::RunError;
use pirn_definition::message::Message;
use serde_json::{Map, Value};

use super::supervisor::{RunEnd, SupervisorHandle, SupervisorMsg};
use crate::host::Host;
use crate::journal::Graphs;

/// The engine of a run, bus or matcher.
pub(crate) trait EngineHandle: Send + Sync {
    /// Returns an unused run id.
    fn next_run_id(&self) -> Arc<str>;

    /// Sends a message to a run. Fails if the run has ended; the message is dropped.
    fn tell_run(&self, run_id: &str, message: SupervisorMsg) -> Result<(), RunEnded>;

    /// True if the engine shuts down: it admits no runs.
    fn is_closed(&self) -> bool;

    /// True if this engine executes the run.
    fn owns_run(&self, run_id: &str) -> bool;

    /// Seed of the random numbers that scripts draw. None: scripts cannot draw any.
    fn seed(&self) -> Option<u64>;

    /// Returns the registered workflows.
    fn workflows(&self) -> Graphs;

    /// Reports the end of a started run to its starter once that run, which has left this engine, has ended.
    fn follow_started(&self, left: StartedRunLeft);

    /// Starts a run in the background; `on_end` receives its outcome.
    fn start_detached(self: Arc<Self>, run: DetachedRun) -> Result<(), RunError>;

    /// Stores a run without executing it, for a starter that this engine still executes while it shuts down. Any process can resume it.
    fn store_detached(self: Arc<Self>, run: DetachedRun, host: &Host, listening: EventInterest)
    -> Result<(), RunError>;

    /// Returns the metadata from the run's caller. None if the run has ended.
    fn metadata_of(&self, run_id: &str) -> Option<Arc<Map<String, Value>>>;

    /// Removes a run. Later messages to it fail.
    fn forget_run(&self, run_id: &Arc<str>, run: &Arc<SupervisorHandle>);

    /// Disables a trigger on all arbiters, because its engine-wide limit is reached.
    fn disable_used_up(&self, trigger_id: &str);
}

/// Error of a message to a run that has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("run {run_id} has ended")]
pub(crate) struct RunEnded {
    pub(crate) run_id: String,
}

/// Called once when a run has ended, or has left its engine.
pub type OnEnd = Box<dyn FnOnce(RunEnd<'_>) + Send>;

/// A run that a trigger started, and that has left its engine without an outcome while its starter continues.
#[derive(Clone, Debug)]
pub struct StartedRunLeft {
    /// Id of the run that started it.
    pub starter: Arc<str>,
    /// The firing of the starter.
    pub firing: FiringId,
    /// The reason.
    pub error: RunError,
}

/// Follows a run of this kind until it has ended, and then reports its end to its starter.
pub type FollowStarted = dyn Fn(StartedRunLeft) + Send + Sync;

/// A run started by a trigger or schedule.
pub(crate) struct DetachedRun {
    pub(crate) run_id: Arc<str>,
    pub(crate) workflow_id: String,
    pub(crate) input: Value,
    pub(crate) messages: Vec<Message>,
    /// Metadata of the run that raised the event.
    pub(crate) metadata: Option<Arc<Map<String, Value>>>,
    pub(crate) is_unlimited: bool,
    pub(crate) summary_profile: Option<Arc<str>>,
    pub(crate) trigger_depth: u32,
    /// Started by a schedule: under virtual time the clock does not advance for it alone.
    pub(crate) is_background: bool,
    pub(crate) on_end: OnEnd,
}

impl DetachedRun {
    pub(crate) fn of(
        run_id: Arc<str>,
        start: DetachedStart,
        metadata: Option<Arc<Map<String, Value>>>,
        on_end: OnEnd,
    ) -> Self {
        Self {
            run_id,
            workflow_id: start.workflow_id,
            input: start.input,
            messages: start.messages,
            metadata,
            is_unlimited: start.is_unlimited,
            summary_profile: start.summary_profile,
            trigger_depth: start.trigger_depth,
            is_background: false,
            on_end,
        }
    }
}
