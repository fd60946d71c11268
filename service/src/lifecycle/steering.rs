//! Steering of runs: those of this process, and those of the engine's store, whichever process owns them.

use std::sync::Arc;

use crate::http::problem::{Problem, ProblemCode, answer_problem, message_problem, resume_problem, unknown};
use crate::runs::{Run, ended};
use crate::state::Service;
use pirn::{Interaction, ResumeError, RunCommand};

impl Service {
    /// Sends an input to a run. With a store, the run may be anywhere, and the input is durable when this returns. Without a store,
    /// the run must belong to this process.
    pub(crate) async fn send_command(&self, id: &str, mut command: RunCommand) -> Result<(), Problem> {
        let id = &*self.scope().run_id(id);
        if let RunCommand::Answer { interaction_id, .. } = &mut command {
            *interaction_id = self.scope().run_id(interaction_id).into_owned();
        }
        if let Some(refusal) = command.refusal() {
            return Err(Problem::new(ProblemCode::InvalidValue, refusal.message.clone()).at("/data"));
        }
        if self.engine().store().is_some() {
            let engine = self.engine().clone();
            let told = if engine.find(id).is_some() {
                engine.send_command(id, &command).await
            } else {
                let id = id.to_owned();
                let send = move || async move { engine.send_command(&id, &command).await };
                self.replays().run(send).await?
            };
            return told.map(drop).map_err(|error| resume_problem(&error));
        }
        let run = self.runs().find(id).ok_or_else(|| unknown(id))?;
        match command {
            RunCommand::Answer {
                interaction_id,
                answer,
                by,
            } => {
                let taken = run.handle.answer_as(by.map(Into::into), &interaction_id, answer);
                taken.await.map_err(|refused| answer_problem(&refused))
            }
            RunCommand::Say { id, text, when } => {
                let taken = run.live()?.say_as(id.map(Into::into), text, when).await;
                taken.map_err(|refused| message_problem(&refused))
            }
            RunCommand::Emit { name, data } => {
                run.live()?.emit(name, data);
                Ok(())
            }
            RunCommand::Cancel { reason } => {
                run.live()?.cancel(reason);
                Ok(())
            }
            RunCommand::Pause => {
                run.live()?.pause();
                Ok(())
            }
            RunCommand::Unpause => {
                run.live()?.resume();
                Ok(())
            }
            RunCommand::Pin { section, value } => {
                run.live()?.pin(section, value);
                Ok(())
            }
        }
    }

    /// Returns the run if this process has it in memory. Waits first until a run that has ended here is either final or, if it
    /// continues elsewhere, removed.
    pub(crate) async fn known(&self, id: &str) -> Option<Arc<Run>> {
        let run = self.runs().find(id)?;
        run.until_decided().await;
        self.runs().find(id)
    }

    /// Resumes the threads of a paused run, whichever process executes it. A run of the store without an owner is resumed in this process.
    pub(crate) async fn resume(&self, id: &str) -> Result<(), Problem> {
        while let Some(run) = self.known(id).await {
            run.live()?.resume();
            if self.engine().store().is_none() || run.handle.wait_durable().await.is_ok() {
                return Ok(());
            }
            // The run has ended, or was parked before the resume took effect.
            run.until_decided().await;
            if !run.has_left() {
                return Ok(());
            }
        }
        let own = self.scope().run_id(id);
        let is_paused_elsewhere = match self.engine().store() {
            Some(_) => self.engine().send_remote(&own, &RunCommand::Unpause).await,
            None => Ok(false),
        };
        if is_paused_elsewhere.map_err(|error| resume_problem(&error))? {
            return Ok(());
        }
        self.resume_stored(id).await.map(drop)
    }

    /// Returns a run that this process executes, to park it: other processes do not accept that command.
    pub(crate) async fn carried(&self, id: &str) -> Result<Arc<Run>, Problem> {
        if let Some(run) = self.known(id).await {
            run.live()?;
            return Ok(run);
        }
        let stored = self.in_store(id).await?.ok_or_else(|| unknown(id))?;
        Err(if stored.status.is_final() {
            ended(id)
        } else {
            let detail = format!("run {id} is in the store, and this service does not execute it: resume it first");
            Problem::new(ProblemCode::NotCarried, detail)
        })
    }

    /// Returns the open questions of a run.
    pub(crate) async fn questions(&self, id: &str) -> Result<Vec<Interaction>, Problem> {
        let id = &*self.scope().run_id(id);
        if let Some(run) = self.engine().find(id) {
            return Ok(run.interactions().await);
        }
        if self.engine().store().is_none() {
            // A run that has ended has no open question.
            return self.runs().find(id).map(|_| Vec::new()).ok_or_else(|| unknown(id));
        }
        let stored = self.engine().resume(id);
        match self.replays().run(move || stored.interactions()).await? {
            Ok(questions) => Ok(questions),
            Err(ResumeError::HasEnded { .. }) => Ok(Vec::new()),
            Err(error) => {
                // The run may have been resumed in between.
                let resumed = self.engine().find(id).ok_or_else(|| resume_problem(&error))?;
                Ok(resumed.interactions().await)
            }
        }
    }
}
