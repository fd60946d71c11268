//! The things that commands tell a run of a store, in whichever process it is.

use futures::executor::block_on;
use pirn::{AnswerRefused, Engine, RunErrorCode, RunHandle, Steering, ThreadStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::store::not_resumed;

/// As it is said to the process that holds the store, too.
#[derive(Clone, Serialize, Deserialize)]
#[serde(
    tag = "do",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(crate) enum Request {
    /// Answers a question.
    Answer {
        run_id: String,
        interaction_id: String,
        answer: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Raises a CUSTOM event.
    Emit {
        run_id: String,
        name: String,
        #[serde(default)]
        data: Map<String, Value>,
    },
    /// Ends the run.
    Cancel { run_id: String, reason: String },
}

/// The state of a run that was told something.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Told {
    /// A process carries it.
    UnderWay,
    /// It has ended.
    Ended,
    /// No process carries it: what it was told takes effect when it goes on.
    Kept,
}

impl Request {
    /// Tells the run, which this engine carries or has in its store. What it was told is durable then.
    pub(super) fn tell(self, engine: &Engine) -> Result<Told, Failure> {
        loop {
            let elsewhere = block_on(engine.steer(self.run_id(), &self.steering()));
            if elsewhere.map_err(|error| not_resumed(&error))? {
                return Ok(Told::UnderWay);
            }
            match self.clone().tell_here(engine) {
                // Somebody has taken it up since.
                Err(failure) if failure.code() == "RUN_HELD" => {}
                told => return told,
            }
        }
    }

    fn run_id(&self) -> &str {
        match self {
            Self::Answer { run_id, .. } | Self::Emit { run_id, .. } | Self::Cancel { run_id, .. } => run_id,
        }
    }

    /// For another process that carries the run.
    fn steering(&self) -> Steering {
        match self.clone() {
            Self::Answer {
                interaction_id,
                answer,
                by,
                ..
            } => Steering::Answer {
                interaction_id,
                answer,
                by,
            },
            Self::Emit { name, data, .. } => Steering::Emit { name, data },
            Self::Cancel { reason, .. } => Steering::Cancel { reason },
        }
    }

    fn tell_here(self, engine: &Engine) -> Result<Told, Failure> {
        match self {
            Self::Answer {
                run_id,
                interaction_id: id,
                answer,
                by,
            } => {
                if let Some(run) = engine.find(&run_id) {
                    let answered = match by {
                        Some(by) => block_on(run.answer_by(by, &id, answer)),
                        None => block_on(run.answer(&id, answer)),
                    };
                    answered.map(|()| Told::UnderWay).map_err(|refused| not_taken(&refused))
                } else {
                    let kept = block_on(engine.resume(run_id).answer(by.map(Into::into), &id, answer));
                    kept.map(|()| Told::Kept).map_err(|error| not_resumed(&error))
                }
            }
            Self::Emit { run_id, name, data } => {
                if let Some(run) = engine.find(&run_id) {
                    run.emit(name, data);
                    is_kept(&run)?;
                    Ok(Told::UnderWay)
                } else {
                    let kept = block_on(engine.resume(run_id).emit(name, data));
                    kept.map(|()| Told::Kept).map_err(|error| not_resumed(&error))
                }
            }
            Self::Cancel { run_id, reason } => {
                if let Some(run) = engine.find(&run_id) {
                    run.cancel(reason);
                    match is_kept(&run) {
                        // The cancel may end the run before it is asked whether it is kept.
                        Err(_) if run.outcome_blocking().status == ThreadStatus::Cancelled => {}
                        kept => kept?,
                    }
                    Ok(Told::UnderWay)
                } else {
                    let run = block_on(engine.resume(run_id).cancel(reason)).map_err(|error| not_resumed(&error))?;
                    run.outcome_blocking();
                    run.settled_blocking();
                    Ok(Told::Ended)
                }
            }
        }
    }
}

fn is_kept(run: &RunHandle) -> Result<(), Failure> {
    block_on(run.kept()).map_err(|error| match error.code {
        RunErrorCode::Cancelled => {
            let ended = run.outcome_blocking().status;
            Failure::failed(
                "RUN_HAS_ENDED",
                format!("run {} has ended {}", run.run_id(), ended.as_str()),
            )
        }
        code => Failure::failed(code.as_str(), error.to_string()),
    })
}

fn not_taken(refused: &AnswerRefused) -> Failure {
    Failure::failed(refused.code(), refused.to_string())
}
