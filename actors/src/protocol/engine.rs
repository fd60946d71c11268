//! The engine, as its actors reach it.

use std::sync::Arc;

use pirn_core::error::RunError;
use pirn_core::message::Message;
use pirn_core::run::{DetachedStart, RunReport};
use serde_json::{Map, Value};

use super::supervisor::{SupervisorHandle, SupervisorMsg};

/// The engine that a run, a bus or a matcher belongs to.
pub(crate) trait EngineHandle: Send + Sync {
    /// A run id that no other run has.
    fn next_run_id(&self) -> Arc<str>;

    /// Tells a run something; an error where it has ended: the message is dropped.
    fn tell_run(&self, run_id: &str, message: SupervisorMsg) -> Result<(), String>;

    /// True while a run is under way here.
    fn carries_run(&self, run_id: &str) -> bool;

    /// Starts a run that nobody awaits.
    fn start_detached(self: Arc<Self>, run: DetachedRun) -> Result<(), RunError>;

    /// The metadata that the caller of a run gave it; none where the run is over.
    fn metadata_of(&self, run_id: &str) -> Option<Arc<Map<String, Value>>>;

    /// Nothing more can be told a run.
    fn forget_run(&self, run_id: &Arc<str>, run: &Arc<SupervisorHandle>);

    /// A trigger of the engine has fired as often as it may on all arbiters.
    fn disable_used_up(&self, trigger_id: &str);
}

/// Told how a run ended, once.
pub type OnEnd = Box<dyn FnOnce(&RunReport) + Send>;

/// A run that a trigger starts; nobody awaits it.
pub(crate) struct DetachedRun {
    pub(crate) run_id: Arc<str>,
    pub(crate) workflow_id: String,
    pub(crate) input: Value,
    pub(crate) messages: Vec<Message>,
    /// That of the run whose event started it.
    pub(crate) metadata: Option<Arc<Map<String, Value>>>,
    pub(crate) is_unlimited: bool,
    pub(crate) trigger_depth: u32,
    /// The clock started it: nobody waits for it.
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
            trigger_depth: start.trigger_depth,
            is_background: false,
            on_end,
        }
    }
}
