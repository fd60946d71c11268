//! Steering of the runs that a service knows: those of its own, and those of its engine's store, whichever process carries them.

use std::sync::Arc;

use super::problem::Problem;
use super::runs::Run;
use super::start::{not_resumed, not_taken, unknown};
use super::state::Service;
use crate::{Interaction, ResumeError, Steering};

impl Service {
    /// Tells a run something: one that the service carries, or one of a store that several processes share, wherever it is. There it is
    /// durable then.
    pub(super) async fn tell(&self, id: &str, told: Steering) -> Result<(), Problem> {
        let Some(run) = self.here(id)? else {
            let told = self.engine().tell(id, &told).await;
            return told.map(drop).map_err(|error| not_resumed(&error));
        };
        match told {
            Steering::Answer {
                interaction_id,
                answer,
                by,
            } => {
                let taken = run.handle.answer_as(by.map(Into::into), &interaction_id, answer);
                taken.await.map_err(|refused| not_taken(&refused))
            }
            Steering::Emit { name, data } => {
                run.live()?.emit(name, data);
                Ok(())
            }
            Steering::Cancel { reason } => {
                run.live()?.cancel(reason);
                Ok(())
            }
        }
    }

    /// The questions of a run that wait for a person.
    pub(super) async fn questions(&self, id: &str) -> Result<Vec<Interaction>, Problem> {
        if let Some(run) = self.here(id)? {
            return Ok(run.handle.interactions().await);
        }
        match self.engine().resume(id).interactions().await {
            Ok(questions) => Ok(questions),
            Err(ResumeError::HasEnded { .. }) => Ok(Vec::new()),
            Err(error) => Err(not_resumed(&error)),
        }
    }

    /// The run, where it is the service's own to tell; none where a process that shares the store may carry it.
    fn here(&self, id: &str) -> Result<Option<Arc<Run>>, Problem> {
        let is_shared = self.engine().store().is_some_and(|store| store.claims().is_some());
        let run = self.runs().find(id);
        if is_shared {
            return Ok(run.filter(|_| self.engine().find(id).is_some()));
        }
        run.map(Some).ok_or_else(|| unknown(id))
    }
}
