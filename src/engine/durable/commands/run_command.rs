//! Inputs for runs in any location: in this process, in another process, or in the store if the run has no owner.

use pirn_core::run::{AnswerRefused, MessageRefused};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::When;
use pirn_definition::definition::PinSection;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::value::{TOO_DEEP, is_too_deep};
use pirn_events::event::RaisedEvent;
use pirn_store::StoreError;
use pirn_sync::Lost;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::end_unreadable::end_unreadable;
use crate::engine::durable::records::journal::final_status;
use crate::engine::durable::resume_error::ResumeError;
use crate::engine::{Engine, RunHandle};

/// Maximum number of attempts to find a run while other processes claim it or write to it.
// Including the pauses, the attempts take about 1 second. A run that changes its owner for longer is reported to the caller.
const ATTEMPTS: u32 = 16;

/// Maximum pause between two attempts, in milliseconds.
const LONGEST_PAUSE: u64 = 100;

/// An input that is sent to a run through the process that owns it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RunCommand {
    /// The answer to a question of the run.
    Answer {
        /// The question.
        interaction_id: String,
        /// Any JSON value.
        answer: Value,
        /// The person who answers.
        by: Option<String>,
    },
    /// A CUSTOM event.
    Emit {
        /// The event's name.
        name: String,
        /// The event's data.
        data: Map<String, Value>,
    },
    /// A person's message to the model of the main conversation.
    Say {
        /// Id of the message: a message whose id the run has accepted before has no effect.
        // `send_command` sets a missing id before the first attempt, so that no attempt adds the message twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Text of the message.
        text: String,
        /// Time at which the message is added to the conversation.
        #[serde(default)]
        when: When,
    },
    /// A cancellation.
    Cancel {
        /// Recorded in the run's report.
        reason: String,
    },
    /// A pause of every thread at its next safe point. Only for a run with an owner.
    Pause,
    /// The end of a pause. Only for a run with an owner.
    Unpause,
    /// A section of the pinned context, from the next model request on. Only for a run with an owner.
    Pin {
        /// The section.
        section: PinSection,
        /// The new value; null removes the section.
        value: Value,
    },
}

/// Reply of the process that owns a run.
#[derive(Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "camelCase")]
enum Reply {
    Done,
    /// The process does not own the run, or has released it.
    Gone,
    NotOpen,
    Invalid {
        reason: String,
    },
    NotKept {
        reason: String,
    },
    MessageRefused {
        refused: MessageRefused,
    },
}

/// State of a run after it has received an input, which is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CommandOutcome {
    /// A process owns the run: this one or another.
    UnderWay,
    /// The run has no owner: the input takes effect when it is resumed.
    Kept,
    /// The run had no owner, and the input has ended it; or the run has ended since it accepted this message.
    Ended,
}

impl RunCommand {
    /// Returns a message without an id with a new one.
    fn named(&self, new_id: impl FnOnce() -> String) -> Option<Self> {
        let Self::Say { id: None, text, when } = self else {
            return None;
        };
        // An owner may end after it has stored the message and before it has replied. The next attempt then has the same id.
        Some(Self::Say {
            id: Some(format!("message-{}", new_id())),
            text: text.clone(),
            when: *when,
        })
    }

    /// Returns the error if no run may receive this input.
    pub fn refusal(&self) -> Option<RunError> {
        let subject = match self {
            Self::Emit { name, data } if RaisedEvent::custom(name.as_str(), data.clone()).is_too_deep() => {
                format!("the event `{name}`")
            }
            Self::Pin { section, value } if is_too_deep(value) => format!("the section {}", section.as_str()),
            _other => return None,
        };
        Some(RunError::new(
            RunErrorCode::InvalidInput,
            format!("{subject}: {TOO_DEEP}"),
        ))
    }
}

impl Engine {
    /// Sends an input to a run: directly if this engine owns it, through the shared store if another process does, or into the
    /// stored journal if it has no owner. The input is durable when the call returns.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use pirn::{CommandOutcome, RunCommand};
    ///
    /// # let engine = pirn::Engine::builder().store(pirn::store::MemoryStore::new()).workflows(r#"{"id": "nap", "nodes": [
    /// #     {"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"seconds": 600}}, {"id": "e", "type": "END"}],
    /// #   "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]}"#).build()?;
    /// let id = engine.run("nap").enqueue().await?;
    /// let cancel = RunCommand::Cancel { reason: "not needed any more".to_owned() };
    /// assert_eq!(engine.send_command(&id, &cancel).await?, CommandOutcome::Ended);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, the input may or may not reach the run.
    ///
    /// # Errors
    /// Fails if there is no such run, it has ended, or it refuses the input.
    pub async fn send_command(&self, run_id: &str, command: &RunCommand) -> Result<CommandOutcome, ResumeError> {
        // Check before the first attempt: another process could reject the input, but not with this message.
        if let Some(refusal) = command.refusal() {
            return Err(ResumeError::Refused(refusal));
        }
        let named = command.named(|| self.new_run_id());
        let command = named.as_ref().unwrap_or(command);
        let mut attempt = 0;
        loop {
            // This process first: no message between processes is needed for its own runs.
            if self.apply_here(run_id, command.clone()).await? {
                return Ok(CommandOutcome::UnderWay);
            }
            if self.send_remote(run_id, command).await? {
                return Ok(CommandOutcome::UnderWay);
            }
            match self.apply_to_stored(run_id, command.clone()).await {
                // Another process or task claimed the run, or wrote to it, between the lookup and the commit.
                Err(
                    ResumeError::Store(StoreError::RunHeld { .. } | StoreError::Moved { .. })
                    | ResumeError::UnderWay { .. },
                ) if attempt < ATTEMPTS => self.pause(attempt).await?,
                applied => return applied,
            }
            attempt += 1;
        }
    }

    /// Waits before the next attempt: 0, 1, 2, 4 milliseconds and so on. A second attempt without a pause is usually enough.
    async fn pause(&self, attempt: u32) -> Result<(), ResumeError> {
        let Some(before) = attempt.checked_sub(1) else {
            return Ok(());
        };
        let after = (1 << before).min(LONGEST_PAUSE);
        // Sleep by the engine's clock, because a virtual clock must not wait for real time.
        let sleep = self.shared().work(move |clock| clock.sleep(after));
        let over = sleep.map_err(ResumeError::Refused)?;
        // If the host has stopped, the wait fails, and the next attempt follows without a pause.
        let _: Result<(), Lost> = over.wait().await;
        Ok(())
    }

    /// Sends an input to a run that this process owns. Returns false if it does not, or has released the run.
    async fn apply_here(&self, run_id: &str, command: RunCommand) -> Result<bool, ResumeError> {
        let Some(run) = self.find(run_id) else { return Ok(false) };
        // Questions of detached threads can be answered, and the run itself refuses a message after its end.
        let is_for_main = !matches!(command, RunCommand::Answer { .. } | RunCommand::Say { .. });
        if is_for_main && let Some(report) = run.try_outcome() {
            // The engine forgets a released run before the run has an outcome, and the caller looks for its next owner. Any other run with
            // an outcome is still owned by this engine because of its detached threads.
            if self.store().is_some() && !self.shared().carries(run_id) {
                return Ok(false);
            }
            return Err(ResumeError::HasEnded {
                run_id: run_id.to_owned(),
                status: final_status(report.status),
            });
        }
        match command {
            RunCommand::Answer {
                interaction_id,
                answer,
                by,
            } => match run.answer_as(by.map(Into::into), &interaction_id, answer).await {
                // The run was released while the answer was on its way, so the question may be open in the store.
                Err(AnswerRefused::NotOpen) if !self.shared().carries(run_id) => Ok(false),
                answered => answered.map(|()| true).map_err(ResumeError::Answer),
            },
            RunCommand::Say { id, text, when } => match run.say_as(id.map(Into::into), text, when).await {
                // The run was released while the message was on its way, and may continue elsewhere.
                Err(MessageRefused::Ended) if !self.shared().carries(run_id) => Ok(false),
                said => said.map(|()| true).map_err(ResumeError::Message),
            },
            RunCommand::Emit { name, data } => {
                run.emit(name, data);
                match run.wait_durable().await {
                    // The run may have ended through this event before it received the request to confirm durability.
                    Err(error) if error.code == RunErrorCode::Cancelled => self.has_ended(run_id).await,
                    kept => kept.map(|()| true).map_err(ResumeError::Refused),
                }
            }
            RunCommand::Cancel { reason } => {
                run.cancel(reason);
                match run.wait_durable().await {
                    // The run may have ended through this cancellation before it received the request to confirm durability.
                    Err(error) if error.code == RunErrorCode::Cancelled => {
                        // Any other status means that the run was released first: false makes the caller try its next owner.
                        Ok(run.outcome().await.status == ThreadStatus::Cancelled)
                    }
                    kept => kept.map(|()| true).map_err(ResumeError::Refused),
                }
            }
            RunCommand::Pause => self.apply_durably(&run, RunHandle::pause).await,
            RunCommand::Unpause => self.apply_durably(&run, RunHandle::resume).await,
            RunCommand::Pin { section, value } => self.apply_durably(&run, |run| run.pin(section, value)).await,
        }
    }

    /// Sends an input that has no effect on a run that has ended. Returns false if the run was released before the input was
    /// durable.
    async fn apply_durably(&self, run: &RunHandle, send: impl FnOnce(&RunHandle)) -> Result<bool, ResumeError> {
        send(run);
        match run.wait_durable().await {
            Ok(()) => Ok(true),
            Err(error) if error.code != RunErrorCode::Cancelled => Err(ResumeError::Refused(error)),
            // The run has ended, or another process may continue it: the caller looks into the store.
            Err(_) => Ok(false),
        }
    }

    /// Returns true if a run that this process owned has ended, false if the run was released to the store.
    async fn has_ended(&self, run_id: &str) -> Result<bool, ResumeError> {
        // Without a store a run cannot be released, so it has ended.
        let Some(store) = self.store() else { return Ok(true) };
        let run = store.run(run_id).await?;
        // A run that is removed has ended too.
        Ok(run.is_none_or(|run| run.status.is_final()))
    }

    /// Writes an input for a run without an owner to the store.
    async fn apply_to_stored(&self, run_id: &str, command: RunCommand) -> Result<CommandOutcome, ResumeError> {
        let run = self.resume(run_id);
        match command {
            RunCommand::Answer {
                interaction_id,
                answer,
                by,
            } => run.answer(by.map(Into::into), &interaction_id, answer).await?,
            RunCommand::Emit { name, data } => run.emit(name, data).await?,
            RunCommand::Say { id, text, when } => {
                if !run.send_message(id.map(Into::into), text.into(), when).await? {
                    return Ok(CommandOutcome::Ended);
                }
            }
            RunCommand::Cancel { reason } => {
                let run = match run.cancel(reason).await {
                    Err(error) if error.is_unreadable(run_id) => {
                        end_unreadable(self, run_id).await?;
                        return Ok(CommandOutcome::Ended);
                    }
                    run => run?,
                };
                run.outcome().await;
                // The final status is stored when the run has settled, and the caller is promised a durable input.
                run.wait_all_ended().await;
                return Ok(CommandOutcome::Ended);
            }
            RunCommand::Pause | RunCommand::Unpause | RunCommand::Pin { .. } => {
                return Err(self.not_executed(run_id).await?);
            }
        }
        Ok(CommandOutcome::Kept)
    }

    /// Returns the error for an input that only a run with an owner can receive.
    async fn not_executed(&self, run_id: &str) -> Result<ResumeError, ResumeError> {
        let run_id = run_id.to_owned();
        let store = self.store().ok_or(ResumeError::NoStore)?;
        Ok(match store.run(&run_id).await? {
            None => ResumeError::Store(StoreError::NoSuchRun { run: run_id }),
            Some(run) if run.status.is_final() => ResumeError::HasEnded {
                run_id,
                status: run.status,
            },
            Some(_) => ResumeError::NotExecuted { run_id },
        })
    }

    /// Sends an input to a run that another process owns, through that process. The input is durable when the call returns. Returns
    /// false if no process owns the run, or if the store is not shared.
    ///
    /// # Cancel safety
    /// If the future is dropped, the input may or may not reach the run.
    ///
    /// # Errors
    /// Fails if the run or its owner refuses the input.
    pub async fn send_remote(&self, run_id: &str, command: &RunCommand) -> Result<bool, ResumeError> {
        let durable = self.durable()?;
        let Some(claims) = durable.store.claims() else {
            return Ok(false);
        };
        // Serialization cannot fail: all keys are strings.
        let body = serde_json::to_string(command).unwrap_or_default();
        let Some(reply) = claims.tell(run_id, body).await? else {
            return Ok(false);
        };
        let unreadable = |error: serde_json::Error| AnswerRefused::NotKept {
            reason: format!("the process that owns the run has another version: {error}"),
        };
        let reply: Reply = serde_json::from_str(&reply).map_err(|error| ResumeError::Answer(unreadable(error)))?;
        match reply {
            Reply::Done => Ok(true),
            Reply::Gone => Ok(false),
            Reply::NotOpen => Err(ResumeError::Answer(AnswerRefused::NotOpen)),
            Reply::Invalid { reason } => Err(ResumeError::Answer(AnswerRefused::Invalid { reason })),
            Reply::NotKept { reason } => Err(ResumeError::Answer(AnswerRefused::NotKept { reason })),
            Reply::MessageRefused { refused } => Err(ResumeError::Message(refused)),
        }
    }
}

/// Executes an input that another process has sent to a run of this process. Returns the reply as JSON.
pub(in crate::engine::durable) async fn execute_json(engine: &Engine, run_id: &str, body: &str) -> String {
    let reply = match serde_json::from_str(body) {
        // An answer is sent in any case, because the other process waits for it.
        Err(error) => Reply::Invalid {
            reason: format!("this process has another version: {error}"),
        },
        Ok(steering) => match engine.apply_here(run_id, steering).await {
            Ok(true) => Reply::Done,
            Ok(false) => Reply::Gone,
            Err(ResumeError::Answer(AnswerRefused::NotOpen)) => Reply::NotOpen,
            Err(ResumeError::Answer(AnswerRefused::Invalid { reason })) => Reply::Invalid { reason },
            Err(ResumeError::Message(refused)) => Reply::MessageRefused { refused },
            // Every version of the protocol has this reply.
            Err(ResumeError::HasEnded { .. }) => Reply::MessageRefused {
                refused: MessageRefused::Ended,
            },
            // Other errors are not known to the protocol. The text reaches the caller.
            Err(error) => Reply::NotKept {
                reason: error.to_string(),
            },
        },
    };
    serde_json::to_string(&reply).unwrap_or_default()
}
