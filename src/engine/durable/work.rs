//! The work of a process that shares a store with others: runs that nobody carries, runs that others carry by now, and what others
//! tell the runs here.

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use pirn_store::{Assignment, Claims, StoreError};

use super::super::Engine;
use super::claim::NOT_BEFORE_MS;
use super::resume::ResumeError;
use super::steer::told;

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
        let engine = self.clone();
        self.work_by(at_most, move |run_id| {
            let resumed = engine.resume(run_id);
            async move { resumed.start().await.map(drop) }.boxed()
        })
        .await
    }

    /// The same, with each run going on as `resume` has it.
    pub(crate) async fn work_by(
        &self,
        at_most: usize,
        resume: impl Fn(String) -> BoxFuture<'static, Result<(), ResumeError>>,
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
                // Side by side: each waits for what the store has of it.
                Ok(Assignment::Run(run_id)) => {
                    let resumed = resume(run_id.clone());
                    under_way.push(take_over(run_id, claims, resumed).boxed());
                }
                Ok(Assignment::Lost(run_id)) => match self.find(&run_id) {
                    Some(run) => {
                        tracing::warn!(run_id, "the run stops here: another process carries it");
                        run.leave();
                    }
                    None => claims.release(&run_id, 0),
                },
                Ok(Assignment::Tell { request, run, body }) => {
                    let telling = async move { claims.answer(request, told(self, &run, &body).await) };
                    under_way.push(telling.boxed());
                }
            }
        }
    }
}

async fn take_over(run_id: String, claims: &dyn Claims, resumed: BoxFuture<'static, Result<(), ResumeError>>) {
    match resumed.await {
        Ok(()) => tracing::info!(run_id, "the run goes on here"),
        Err(error) => {
            tracing::warn!(run_id, code = error.code(), %error, "the run does not go on here; it stays as it is in the store");
            claims.release(&run_id, NOT_BEFORE_MS);
        }
    }
}
