//! Work of a process that shares a store with others: it resumes runs without an owner, stops runs that another process has
//! claimed, and forwards inputs from other processes to its runs.

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use pirn_store::{Assignment, Claims, StoreError};

use super::run_command::execute_json;
use crate::engine::Engine;
use crate::engine::durable::claim::NOT_BEFORE_MS;
use crate::engine::durable::resume_error::ResumeError;

/// Stops claiming runs on drop.
struct ClaimingGuard<'a>(&'a dyn Claims);

impl Drop for ClaimingGuard<'_> {
    fn drop(&mut self) {
        self.0.carry(0);
    }
}

impl Engine {
    /// Executes this process's share of the runs if several processes share the engine's store. It resumes runs without an owner,
    /// up to `at_most` at once, including runs that it started. It stops runs that another process has claimed, and delivers inputs
    /// that other processes send with [`Engine::send_remote`].
    ///
    /// Returns when the store stops. Dropping the future stops the work; runs in progress continue. Returns at once if the store is
    /// not shared.
    ///
    /// # Errors
    /// Fails if the engine has no store.
    pub async fn work(&self, at_most: usize) -> Result<(), ResumeError> {
        let engine = self.clone();
        self.work_with(at_most, move |run_id| {
            let resumed = engine.resume(run_id);
            async move { resumed.start().await.map(drop) }.boxed()
        })
        .await
    }

    /// Like [`Self::work`], with a function that resumes each run. If the function fails, the store may assign the run again.
    ///
    /// # Cancel safety
    /// As [`Self::work`]: dropping the future stops the work, and runs in progress continue.
    ///
    /// # Errors
    /// As [`Self::work`].
    pub async fn work_with(
        &self,
        at_most: usize,
        resume: impl Fn(String) -> BoxFuture<'static, Result<(), ResumeError>>,
    ) -> Result<(), ResumeError> {
        let durable = self.durable()?;
        let Some(claims) = durable.store.claims() else {
            return Ok(());
        };
        // Set the limit before the guard exists, which resets it to 0 when this future ends in any way.
        claims.carry(at_most);
        let _claiming = ClaimingGuard(claims);
        let mut under_way: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let mut next = claims.assigned().fuse();
        loop {
            let assigned = futures::select! {
                assigned = next => assigned,
                // `next` keeps its request for the store, so no assignment is lost by this branch.
                () = under_way.select_next_some() => continue,
            };
            // Requested before the assignment is handled, so that the store can prepare the next one.
            next = claims.assigned().fuse();
            match assigned {
                Err(StoreError::Stopped { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
                // Resume runs concurrently: each waits for its records from the store.
                Ok(Assignment::Run(run_id)) => {
                    let resumed = resume(run_id.clone());
                    under_way.push(take_over(run_id, claims, resumed).boxed());
                }
                Ok(Assignment::Lost(run_id)) => match self.find(&run_id) {
                    Some(run) => {
                        tracing::warn!(run_id, "the run stops in this process: another process owns it");
                        run.release();
                    }
                    // The run has already ended or left here, and only the claim remains.
                    None => claims.release(&run_id, 0),
                },
                Ok(Assignment::Tell { request, run, body }) => {
                    let telling = async move { claims.answer(request, execute_json(self, &run, &body).await) };
                    // Concurrently too: an answer is only sent when the input is durable.
                    under_way.push(telling.boxed());
                }
            }
        }
    }
}

async fn take_over(run_id: String, claims: &dyn Claims, resumed: BoxFuture<'static, Result<(), ResumeError>>) {
    match resumed.await {
        Ok(()) => tracing::info!(run_id, "the run was taken over by this process"),
        // Resumed together with the run that started it, so the claim is that of the run in progress.
        Err(ResumeError::UnderWay { run_id: of }) if of == run_id => {}
        Err(error) => {
            tracing::warn!(run_id, code = error.code(), %error, "the run could not be taken over; its stored state is unchanged");
            // `resume` may have failed before it made a claim of its own, whose drop would release the run.
            claims.release(&run_id, NOT_BEFORE_MS);
        }
    }
}
