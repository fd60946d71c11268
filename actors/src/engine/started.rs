//! A started run: its handle and outcome.

use std::sync::Arc;

use pirn_core::run::{AnswerRefused, Control, MessageRefused, RunReport, RunStatus};
use pirn_core::thread::{Interaction, When};
use pirn_definition::Millis;
use pirn_definition::definition::PinSection;
use pirn_definition::error::RunError;
use pirn_events::event::RaisedEvent;
use pirn_sync::Completion;
use serde_json::Value;

use crate::protocol::supervisor::{InteractionAnswer, SaidMessage, SupervisorHandle, SupervisorMsg};

/// A handle to a started run.
#[derive(Clone)]
pub struct StartedRun {
    /// Id of the run.
    pub run_id: Arc<str>,
    /// The outcome of the run.
    pub outcome: Completion<Arc<RunReport>>,
    /// Resolves once the run and everything that it started have ended.
    pub settled: Completion<()>,
    pub(super) supervisor: Arc<SupervisorHandle>,
}

impl StartedRun {
    /// Time when the run began, in milliseconds since the Unix epoch; `None` before, and for a resumed run.
    pub fn started_at(&self) -> Option<Millis> {
        self.supervisor.began_at()
    }

    /// Cancels the run. Its outcome is CANCELLED with this reason.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.supervisor
            .do_send(SupervisorMsg::Control(Control::Cancel(reason.into())));
    }
    /// Ends the run in this process, as a shutdown of its engine does.
    pub fn leave(&self) {
        self.supervisor.do_send(SupervisorMsg::Control(Control::Shutdown));
    }
    /// Pauses every thread of the run at its next safe point.
    pub fn pause(&self) {
        self.supervisor.do_send(SupervisorMsg::Control(Control::Pause));
    }
    /// Resumes paused threads.
    pub fn resume(&self) {
        self.supervisor.do_send(SupervisorMsg::Control(Control::Resume));
    }
    /// Sets a section of the pinned context, effective from the next model request. Null removes the section.
    pub fn pin(&self, section: PinSection, value: Value) {
        self.supervisor.do_send(SupervisorMsg::Pin(section, value));
    }
    /// Raises an event in the run, in the name of the main thread.
    pub fn raise(&self, event: RaisedEvent) {
        self.supervisor.raise(event);
    }
    /// Requests the open questions. Not answered if the run has settled.
    pub fn interactions(&self, answer: impl FnOnce(Vec<Interaction>) + Send + 'static) {
        self.supervisor.do_send(SupervisorMsg::Interactions(Box::new(answer)));
    }
    /// Answers a question in the name of `by`. `taken` receives the result, for a durable run once the answer is durable. Not
    /// called if the run has settled.
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
    /// Sends a person's message to the run's model. `taken` receives the result, for a durable run once the message is durable. Not
    /// called if the run has settled.
    pub fn say(
        &self,
        id: Option<Arc<str>>,
        text: Arc<str>,
        when: When,
        taken: impl FnOnce(Result<(), MessageRefused>) + Send + 'static,
    ) {
        let said = SaidMessage {
            id,
            text,
            when,
            taken: Box::new(taken),
        };
        self.supervisor.do_send(SupervisorMsg::Say(Box::new(said)));
    }
    /// Calls `kept` once all earlier inputs are durable, or with the reason why they will not be. Not called if the run has
    /// settled.
    pub fn await_durable(&self, kept: impl FnOnce(Result<(), RunError>) + Send + 'static) {
        self.supervisor.do_send(SupervisorMsg::AwaitKept(Box::new(kept)));
    }
    /// Requests the status of the run. Not answered if the run has settled.
    pub fn status(&self, answer: impl FnOnce(RunStatus) + Send + 'static) {
        self.supervisor.do_send(SupervisorMsg::Status(Box::new(answer)));
    }
}
