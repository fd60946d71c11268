//! Inputs for runs without an owner: they are written to the journal and take effect when the run is resumed.

use std::sync::Arc;

use pirn_actors::rebuilt_run::RebuiltRun;
use pirn_core::run::{JournaledInput, Message, ToSupervisor};
use pirn_core::thread::{Interaction, PersonsAnswer, When};
use pirn_definition::Millis;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::value::TOO_DEEP;
use pirn_events::event::{EventData, RaisedEvent};
use pirn_store::{Commit, Record, RunStatus};
use serde_json::Value;

use super::resume::ResumeBuilder;
use crate::engine::Engine;
use crate::engine::durable::records::journal::answered;
use crate::engine::durable::records::stored::{StoredRecords, load_unfinished};
use crate::engine::durable::resume_error::ResumeError;

impl ResumeBuilder {
    /// Returns the open questions of the run.
    ///
    /// # Errors
    /// Fails if there is no such run, it has ended, or this engine owns it.
    pub fn interactions(&self) -> impl Future<Output = Result<Vec<Interaction>, ResumeError>> + Send + use<> {
        let (engine, run_id) = (self.engine.clone(), self.run_id.clone());
        async move {
            // Questions are not stored as such: they follow from the inputs, so the run is rebuilt to list them.
            let (_, rebuilt) = load_unfinished(&engine, &run_id).await?;
            Ok(rebuilt.machine.interactions())
        }
    }

    /// Answers a question of the run without resuming it: the answer is durable, and is used when the run resumes.
    ///
    /// # Cancel safety
    /// If the future is dropped, the answer may or may not be durable; a second answer to the same question is then refused.
    ///
    /// # Errors
    /// Fails as [`Self::interactions`] does, if the question is not open, or if the answer does not match its choices or schema.
    pub async fn answer(self, by: Option<Arc<str>>, id: &str, answer: impl Into<Value>) -> Result<(), ResumeError> {
        let answer = Arc::new(answer.into());
        // Checked before the commit, because a journal must not contain an answer that the replay refuses.
        let fits = self.engine.shared().ports().fits;
        self.append_input(|rebuilt, at| {
            let answer = PersonsAnswer { answer, by, at };
            let accepted = rebuilt.machine.accept_answer(id, answer, fits);
            accepted.map(Some).map_err(ResumeError::Answer)
        })
        .await
    }

    /// Raises a CUSTOM event in the run without resuming it: the event is durable, and is delivered when the run resumes.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event may or may not be durable. Calling again may raise it twice.
    ///
    /// # Errors
    /// As [`Self::interactions`].
    pub async fn emit(self, name: impl Into<Arc<str>>, data: impl Into<EventData>) -> Result<(), ResumeError> {
        let event = RaisedEvent::custom(name, data);
        // Checked here, because a running run only logs such an event, and this caller expects a durable one.
        if event.is_too_deep() {
            let message = format!("the event: {TOO_DEEP}");
            return Err(ResumeError::Refused(RunError::new(RunErrorCode::InvalidInput, message)));
        }
        self.append_input(|_, _| Ok(Some(Message::Supervisor(ToSupervisor::Raise(vec![event])))))
            .await
    }

    /// Sends a person's message to the run's model without resuming the run: the message is durable, and is added to the
    /// conversation when the run resumes. See [`RunHandle::say`](crate::RunHandle::say).
    ///
    /// # Cancel safety
    /// If the future is dropped, the message may or may not be durable; [`Self::say_as`] with an id can be repeated.
    ///
    /// # Errors
    /// As [`Self::interactions`], or if the run refuses the message.
    pub async fn say(self, text: impl Into<Arc<str>>, when: When) -> Result<(), ResumeError> {
        self.say_as(None, text, when).await
    }

    /// Like [`Self::say`], with an id for the message. The run ignores a message with an id that it has accepted before.
    ///
    /// # Cancel safety
    /// As [`Self::say`].
    ///
    /// # Errors
    /// As [`Self::say`].
    pub async fn say_as(self, id: Option<Arc<str>>, text: impl Into<Arc<str>>, when: When) -> Result<(), ResumeError> {
        self.send_message(id, text.into(), when).await.map(drop)
    }

    /// As [`Self::say_as`]. Returns false for a repeated message of a run that has ended since it accepted the message.
    pub(in crate::engine::durable) async fn send_message(
        self,
        id: Option<Arc<str>>,
        text: Arc<str>,
        when: When,
    ) -> Result<bool, ResumeError> {
        let (engine, run_id, named) = (self.engine.clone(), self.run_id.clone(), id.clone());
        let sent = self.append_input(|rebuilt, _| {
            let accepted = rebuilt.machine.accept_message(id, text, when);
            accepted.map_err(ResumeError::Message)
        });
        match (sent.await, named) {
            // A caller that received no reply, and repeats the message, was successful.
            (Err(ResumeError::HasEnded { .. }), Some(id)) if has_received(&engine, &run_id, &id).await? => Ok(false),
            (sent, _) => sent.map(|()| true),
        }
    }

    /// Appends an input with the current time to the run's journal. `message` returns `None` if the run has received it before.
    pub(in crate::engine::durable) async fn append_input(
        self,
        message: impl FnOnce(&RebuiltRun, Millis) -> Result<Option<Message>, ResumeError>,
    ) -> Result<(), ResumeError> {
        let durable = self.engine.durable()?;
        // Without the lock a resume in this process could read the journal before this input, and the store would refuse its first
        // commit.
        let _lock = durable.peers.lock(&self.run_id).await;
        let now = self.engine.shared().wall_clock().await.map_err(ResumeError::Refused)?;
        let (stored, rebuilt) = load_unfinished(&self.engine, &self.run_id).await?;
        durable.peers.check_unowned(&self.run_id)?;
        let Some(message) = message(&rebuilt, now)? else {
            return Ok(());
        };
        let input = uncarried_input(&rebuilt, now, message);
        let record = record_of(&self.run_id, &input)?;
        // The expected number of steps lets the store refuse this commit if another process has written in between.
        let mut commit = Commit::after(self.run_id, stored.run.steps).record(record);
        // The input may be the one for which the run waits, so mark the run as ready. A new definition does not end a wait.
        if !matches!(input.message, Message::Supervisor(ToSupervisor::Migrated(_))) {
            commit.status = Some(RunStatus::Unfinished);
        }
        durable.store.commit(commit).await?;
        Ok(())
    }
}

/// Returns an input of a run without an owner, which follows the run's last input.
pub(super) fn uncarried_input(rebuilt: &RebuiltRun, now: Millis, message: Message) -> JournaledInput {
    JournaledInput {
        // Clocks of processes differ, and the times of a journal never decrease.
        at: now.max(rebuilt.at),
        after: rebuilt.machine.steps(),
        listening: rebuilt.listening,
        // Marks the effects that follow as not started, so that a resume does not treat them as in doubt.
        uncarried: true,
        before: Vec::new(),
        message,
        settings: Vec::new(),
    }
}

/// Returns the record of an input of a run without an owner.
pub(super) fn record_of(run_id: &str, input: &JournaledInput) -> Result<Record, ResumeError> {
    let body = serde_json::to_string(input).map_err(|error| {
        let message = format!("the input cannot be serialized: {error}");
        ResumeError::Refused(RunError::new(RunErrorCode::StoreError, message))
    })?;
    let mut record = Record::new(input.at, body);
    record.effect = answered(run_id, &input.message);
    Ok(record)
}

/// Returns true if the journal of a run contains the message with this id.
async fn has_received(engine: &Engine, run_id: &str, id: &str) -> Result<bool, ResumeError> {
    let durable = engine.durable()?;
    let stored = match StoredRecords::read(&durable, run_id).await {
        // The messages were dropped with the events.
        Err(ResumeError::EventsDropped { .. }) => return Ok(false),
        stored => stored?,
    };
    Ok(stored.inputs.iter().any(|input| match &input.message {
        Message::Supervisor(ToSupervisor::Say(message)) => *message.id == *id,
        _ => false,
    }))
}
