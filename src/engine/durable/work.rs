//! The work of a process that shares a store with others: runs that nobody carries, runs that others carry by now, and what others
//! tell the runs here.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use pirn_core::run::AnswerRefused;
use pirn_store::{Assignment, Claims, Run, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::{Engine, RunHandle};
use super::claim::NOT_BEFORE_MS;
use super::resume::ResumeError;

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

/// Claims no more runs once it is dropped.
struct Carrying<'a>(&'a dyn Claims);

impl Drop for Carrying<'_> {
    fn drop(&mut self) {
        self.0.carry(0);
    }
}

impl Engine {
    /// Does this process's part where several share the engine's store: goes on with runs that nobody carries, up to `at_most` at
    /// once, those that it has begun itself included; stops those that another process carries by now; hands on what
    /// [`Engine::steer`] tells the runs here elsewhere. Ends with the store, and stops when it is dropped: runs under way go on.
    /// Of a store that one process has there is nothing to do, and it ends at once.
    ///
    /// # Errors
    /// The engine has no store.
    pub async fn work(&self, at_most: usize) -> Result<(), ResumeError> {
        self.work_by(at_most, async |run| self.resume(run.id).start().await.map(drop))
            .await
    }

    /// The same, with each run going on as `resume` has it.
    pub(crate) async fn work_by(
        &self,
        at_most: usize,
        resume: impl AsyncFn(Run) -> Result<(), ResumeError>,
    ) -> Result<(), ResumeError> {
        let durable = self.durable()?;
        let Some(claims) = durable.store.claims() else {
            return Ok(());
        };
        claims.carry(at_most);
        let _carrying = Carrying(claims);
        let mut under_way: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let mut next = claims.assigned().fuse();
        loop {
            let assigned = futures::select! {
                assigned = next => assigned,
                () = under_way.select_next_some() => continue,
            };
            next = claims.assigned().fuse();
            match assigned {
                Err(StoreError::Stopped { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
                Ok(Assignment::Run(run_id)) => self.take_over(run_id, claims, &resume).await,
                Ok(Assignment::Lost(run_id)) => match self.find(&run_id) {
                    Some(run) => {
                        tracing::warn!(run_id, "the run stops here: another process carries it");
                        run.leave();
                    }
                    None => claims.release(&run_id, 0),
                },
                Ok(Assignment::Tell { request, run, body }) => {
                    let run = self.find(&run);
                    under_way.push(
                        async move {
                            let reply = told(run, &body).await;
                            claims.answer(request, serde_json::to_string(&reply).unwrap_or_default());
                        }
                        .boxed(),
                    );
                }
            }
        }
    }

    async fn take_over(
        &self,
        run_id: String,
        claims: &dyn Claims,
        resume: &impl AsyncFn(Run) -> Result<(), ResumeError>,
    ) {
        let resumed = async {
            let store = &self.durable()?.store;
            match store.run(&run_id).await? {
                Some(run) => resume(run).await,
                None => Ok(()),
            }
        };
        match resumed.await {
            Ok(()) => tracing::info!(run_id, "the run goes on here"),
            Err(error) => {
                tracing::warn!(run_id, code = error.code(), %error, "the run does not go on here; it stays as it is in the store");
                claims.release(&run_id, NOT_BEFORE_MS);
            }
        }
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
async fn told(run: Option<RunHandle>, body: &str) -> Reply {
    let Some(run) = run else { return Reply::Gone };
    let steering: Steering = match serde_json::from_str(body) {
        Ok(steering) => steering,
        Err(error) => {
            return Reply::Invalid {
                reason: error.to_string(),
            };
        }
    };
    match steering {
        Steering::Answer {
            interaction_id,
            answer,
            by,
        } => {
            let answered = match by {
                Some(by) => run.answer_by(Arc::<str>::from(by), &interaction_id, answer).await,
                None => run.answer(&interaction_id, answer).await,
            };
            match answered {
                Ok(()) => Reply::Done,
                Err(AnswerRefused::NotOpen) => Reply::NotOpen,
                Err(AnswerRefused::Invalid { reason }) => Reply::Invalid { reason },
                Err(AnswerRefused::NotKept { reason }) => Reply::NotKept { reason },
                Err(refused) => Reply::NotKept {
                    reason: refused.to_string(),
                },
            }
        }
        Steering::Emit { name, data } => {
            run.emit(name, data);
            match run.kept().await {
                Ok(()) => Reply::Done,
                Err(error) => Reply::NotKept {
                    reason: error.to_string(),
                },
            }
        }
        Steering::Cancel { reason } => {
            run.cancel(reason);
            // It may end with that, and then nobody says that it is kept.
            drop(run.kept().await);
            Reply::Done
        }
    }
}
