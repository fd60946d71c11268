//! A started run: its handle and outcome.

use std::sync::Arc;

use pirn_core::definition::PinSection;
use pirn_core::error::RunError;
use pirn_core::event::RaisedEvent;
use pirn_core::run::{AnswerRefused, Control, RunReport, RunStatus};
use pirn_core::thread::Interaction;
use pirn_sync::Completion;
use serde_json::Value;

use crate::protocol::supervisor::{InteractionAnswer, SupervisorHandle, SupervisorMsg};

/// A run that was started.
#[derive(Clone)]
pub struct StartedRun {
    /// Names it.
    pub run_id: Arc<str>,
    /// Its outcome, once.
    pub outcome: Completion<Arc<RunReport>>,
    /// When everything that it started has ended too.
    pub settled: Completion<()>,
    pub(super) supervisor: Arc<SupervisorHandle>,
}

impl StartedRun {
    /// Stops the run; it ends CANCELLED with this reason.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.supervisor
            .do_send(SupervisorMsg::Control(Control::Cancel(reason.into())));
    }
    /// Ends the run in this process, as a shutdown of its engine does.
    pub fn leave(&self) {
        self.supervisor.do_send(SupervisorMsg::Control(Control::Shutdown));
    }
    /// Stops every thread of the run at its next safe point.
    pub fn pause(&self) {
        self.supervisor.do_send(SupervisorMsg::Control(Control::Pause));
    }
    /// Lets paused threads go on.
    pub fn resume(&self) {
        self.supervisor.do_send(SupervisorMsg::Control(Control::Resume));
    }
    /// Sets a section of the pinned context from the next model request on; null removes it.
    pub fn pin(&self, section: PinSection, value: Value) {
        self.supervisor.do_send(SupervisorMsg::Pin(section, value));
    }
    /// Raises an event in the run, as its main thread.
    pub fn raise(&self, event: RaisedEvent) {
        self.supervisor.raise(event);
    }
    /// Asks for the questions that wait for a person; not answered once the run has settled.
    pub fn interactions(&self, answer: impl FnOnce(Vec<Interaction>) + Send + 'static) {
        self.supervisor.do_send(SupervisorMsg::Interactions(Box::new(answer)));
    }
    /// Answers a question, in somebody's name; `taken` hears whether it was taken, where runs are kept once it is durable, but
    /// not once the run has settled.
    pub fn answer(
        &self,
        id: &str,
        answer: Arc<Value>,
        by: Option<Arc<str>>,
        taken: impl FnOnce(Result<(), AnswerRefused>) + Send + 'static,
    ) {
        let answer = InteractionAnswer {
            id: id.to_owned(),
            answer,
            by,
            taken: Box::new(taken),
        };
        self.supervisor
            .do_send(SupervisorMsg::AnswerInteraction(Box::new(answer)));
    }
    /// Waits until all that the run was told before is kept; `kept` hears so, or why it may not be, but not once the run has
    /// settled.
    pub fn await_kept(&self, kept: impl FnOnce(Result<(), RunError>) + Send + 'static) {
        self.supervisor.do_send(SupervisorMsg::AwaitKept(Box::new(kept)));
    }
    /// Asks where the run is; not answered once it has settled.
    pub fn status(&self, answer: impl FnOnce(RunStatus) + Send + 'static) {
        self.supervisor.do_send(SupervisorMsg::Status(Box::new(answer)));
    }
}
