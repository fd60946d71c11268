//! Steering of the runs that a service knows: those of its own, and those of its engine's store, whichever process carries them.

use super::problem::{Problem, ProblemCode};
use super::start::{not_resumed, unknown};
use super::state::Service;
use crate::{Interaction, ResumeError, Steering};

impl Service {
    /// Tells a run something, wherever it is. Where the engine has a store it is durable then.
    pub(super) async fn tell(&self, id: &str, told: Steering) -> Result<(), Problem> {
        let here = self.runs().find(id);
        if let Some(run) = &here {
            run.live()?;
        } else if self.engine().store().is_none() {
            return Err(unknown(id));
        }
        match self.engine().tell(id, &told).await {
            Ok(_) => Ok(()),
            Err(ResumeError::NoStore) => {
                let detail = format!("run {id} has ended");
                Err(Problem::new(ProblemCode::RunEnded, detail))
            }
            Err(error) => Err(not_resumed(&error)),
        }
    }

    /// The questions of a run that wait for a person, wherever it is.
    pub(super) async fn questions(&self, id: &str) -> Result<Vec<Interaction>, Problem> {
        let here = self.runs().find(id);
        if here.is_none() && self.engine().store().is_none() {
            return Err(unknown(id));
        }
        if let Some(run) = here.filter(|_| self.engine().find(id).is_some() || self.engine().store().is_none()) {
            return Ok(run.handle.interactions().await);
        }
        match self.engine().resume(id).interactions().await {
            Ok(questions) => Ok(questions),
            Err(ResumeError::HasEnded { .. }) => Ok(Vec::new()),
            Err(error) => Err(not_resumed(&error)),
        }
    }
}
