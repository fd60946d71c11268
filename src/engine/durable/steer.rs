//! Steering of runs, wherever they are: here, in another process, or in the store where none carries them.

use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::RaisedEvent;
use pirn_core::run::AnswerRefused;
use pirn_core::status::ThreadStatus;
use pirn_core::value::TOO_DEEP;
use pirn_store::StoreError;
use pirn_sync::Lost;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::Engine;
use super::resume::ResumeError;

/// Times that a run is looked for again, where others take it up or tell it something at the same time.
const ATTEMPTS: u32 = 16;

/// Milliseconds between two attempts at most.
const LONGEST_PAUSE: u64 = 100;

/// Something that a run is told by way of the process that carries it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Steering {
    /// The answer to a question of the run.
    Answer {
        /// The question.
        interaction_id: String,
        /// JSON.
        answer: Value,
        /// The person who answers.
        by: Option<String>,
    },
    /// A CUSTOM event.
    Emit {
        /// Its name.
        name: String,
        /// Its data.
        data: Map<String, Value>,
    },
    /// The run's end.
    Cancel {
        /// Stands in its report.
        reason: String,
    },
}

/// The answer of the process that carries a run.
#[derive(Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "camelCase")]
enum Reply {
    Done,
    /// The process does not carry the run any more.
    Gone,
    NotOpen,
    Invalid {
        reason: String,
    },
    NotKept {
        reason: String,
    },
}

/// The state of a run that was told something, which is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steered {
    /// A process carries the run: this one or another.
    UnderWay,
    /// No process carries it: what it was told takes effect when it goes on.
    Kept,
    /// No process carried it, and it has ended with this.
    Ended,
}

impl Steering {
    /// The reason why no run may have it.
    pub(crate) fn refusal(&self) -> Option<RunError> {
        let Self::Emit { name, data } = self else { return None };
        let is_too_deep = RaisedEvent::custom(name.as_str(), data.clone()).is_too_deep();
        is_too_deep.then(|| RunError::new(RunErrorCode::InvalidInput, format!("the event `{name}`: {TOO_DEEP}")))
    }
}

impl Engine {
    /// Tells a run something, wherever it is: here, in another process that shares the store, or in the store where none carries it. It is
    /// durable then.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use pirn::{Steered, Steering};
    ///
    /// # let engine = pirn::Engine::builder().store(pirn::store::MemoryStore::new()).workflows(r#"{"id": "nap", "nodes": [
    /// #     {"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"seconds": 600}}, {"id": "e", "type": "END"}],
    /// #   "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]}"#).build()?;
    /// let id = engine.run("nap").start_elsewhere().await?;
    /// let cancel = Steering::Cancel { reason: "not needed any more".to_owned() };
    /// assert_eq!(engine.tell(&id, &cancel).await?, Steered::Ended);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// There is no such run, it has ended, or it refuses what it is told.
    pub async fn tell(&self, run_id: &str, told: &Steering) -> Result<Steered, ResumeError> {
        if let Some(refusal) = told.refusal() {
            return Err(ResumeError::Refused(refusal));
        }
        let mut attempt = 0;
        loop {
            if self.tell_here(run_id, told.clone()).await? {
                return Ok(Steered::UnderWay);
            }
            if self.steer(run_id, told).await? {
                return Ok(Steered::UnderWay);
            }
            match self.tell_kept(run_id, told.clone()).await {
                // It was taken up or told something by another since.
                Err(
                    ResumeError::Store(StoreError::RunHeld { .. } | StoreError::Moved { .. })
                    | ResumeError::UnderWay { .. },
                ) if attempt < ATTEMPTS => self.pause(attempt).await?,
                told => return told,
            }
            attempt += 1;
        }
    }

    /// Waits before a run is looked for again: 0, 1, 2, 4 milliseconds and so on. Two attempts right after one another are mostly enough.
    async fn pause(&self, attempt: u32) -> Result<(), ResumeError> {
        let Some(before) = attempt.checked_sub(1) else {
            return Ok(());
        };
        let after = (1 << before).min(LONGEST_PAUSE);
        let sleep = self.shared().work(move |clock| clock.sleep(after));
        let over = sleep.map_err(ResumeError::Refused)?;
        // A host that has stopped waits for nothing.
        let _: Result<(), Lost> = over.wait().await;
        Ok(())
    }

    /// Tells a run that this process carries; false where it does not, or not any more.
    async fn tell_here(&self, run_id: &str, told: Steering) -> Result<bool, ResumeError> {
        let Some(run) = self.find(run_id) else { return Ok(false) };
        match told {
            Steering::Answer {
                interaction_id,
                answer,
                by,
            } => match run.answer_as(by.map(Into::into), &interaction_id, answer).await {
                Err(AnswerRefused::NotOpen) if !self.shared().carries(run_id) => Ok(false),
                answered => answered.map(|()| true).map_err(ResumeError::Answer),
            },
            Steering::Emit { name, data } => {
                run.emit(name, data);
                match run.kept().await {
                    // It may have ended with that before it was asked whether it is kept.
                    Err(error) if error.code == RunErrorCode::Cancelled => self.has_ended(run_id).await,
                    kept => kept.map(|()| true).map_err(ResumeError::Refused),
                }
            }
            Steering::Cancel { reason } => {
                run.cancel(reason);
                match run.kept().await {
                    // It may have ended with that before it was asked whether it is kept.
                    Err(error) if error.code == RunErrorCode::Cancelled => {
                        Ok(run.outcome().await.status == ThreadStatus::Cancelled)
                    }
                    kept => kept.map(|()| true).map_err(ResumeError::Refused),
                }
            }
        }
    }

    /// True where a run that was here has come to its end; false where it was left to the store.
    async fn has_ended(&self, run_id: &str) -> Result<bool, ResumeError> {
        let Some(store) = self.store() else { return Ok(true) };
        let run = store.run(run_id).await?;
        Ok(run.is_none_or(|run| run.status.is_final()))
    }

    /// Tells a run that no process carries.
    async fn tell_kept(&self, run_id: &str, told: Steering) -> Result<Steered, ResumeError> {
        let run = self.resume(run_id);
        match told {
            Steering::Answer {
                interaction_id,
                answer,
                by,
            } => run.answer(by.map(Into::into), &interaction_id, answer).await?,
            Steering::Emit { name, data } => run.emit(name, data).await?,
            Steering::Cancel { reason } => {
                let run = run.cancel(reason).await?;
                run.outcome().await;
                run.settled().await;
                return Ok(Steered::Ended);
            }
        }
        Ok(Steered::Kept)
    }

    /// Tells a run that another process carries something, by way of that process. It is durable then. False where no process
    /// carries it, or only this one has the store.
    ///
    /// # Errors
    /// The run, or its process, refuses it.
    pub async fn steer(&self, run_id: &str, told: &Steering) -> Result<bool, ResumeError> {
        let durable = self.durable()?;
        let Some(claims) = durable.store.claims() else {
            return Ok(false);
        };
        let body = serde_json::to_string(told).unwrap_or_default();
        let Some(reply) = claims.tell(run_id, body).await? else {
            return Ok(false);
        };
        let unreadable = |error: serde_json::Error| AnswerRefused::NotKept {
            reason: format!("the process that carries the run is of another version: {error}"),
        };
        let reply: Reply = serde_json::from_str(&reply).map_err(|error| ResumeError::Answer(unreadable(error)))?;
        match reply {
            Reply::Done => Ok(true),
            Reply::Gone => Ok(false),
            Reply::NotOpen => Err(ResumeError::Answer(AnswerRefused::NotOpen)),
            Reply::Invalid { reason } => Err(ResumeError::Answer(AnswerRefused::Invalid { reason })),
            Reply::NotKept { reason } => Err(ResumeError::Answer(AnswerRefused::NotKept { reason })),
        }
    }
}

/// Tells a run of this process what another process asked for.
pub(super) async fn told(engine: &Engine, run_id: &str, body: &str) -> String {
    let reply = match serde_json::from_str(body) {
        Err(error) => Reply::Invalid {
            reason: format!("this process is of another version: {error}"),
        },
        Ok(steering) => match engine.tell_here(run_id, steering).await {
            Ok(true) => Reply::Done,
            Ok(false) => Reply::Gone,
            Err(ResumeError::Answer(AnswerRefused::NotOpen)) => Reply::NotOpen,
            Err(ResumeError::Answer(AnswerRefused::Invalid { reason })) => Reply::Invalid { reason },
            Err(error) => Reply::NotKept {
                reason: error.to_string(),
            },
        },
    };
    serde_json::to_string(&reply).unwrap_or_default()
}
