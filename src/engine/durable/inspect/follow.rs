//! Live events of stored runs, whichever process executes them: a reader of the journal as it grows.
//!
//! A run commits only when all of its queued messages are processed. So the replay of a complete commit raises exactly the events
//! that the owner of the run raises, in the same order, and later steps do not change them.

use std::sync::Arc;

use pirn_actors::followed_run::FollowedRun;
use pirn_core::run::{JournaledInput, Message, RunReport, ToSupervisor};
use pirn_core::thread::Interaction;
use pirn_events::event::Event;
use pirn_store::{Run, StoreError};

use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::durable::records::stored::StoredRecords;
use crate::engine::durable::resume_error::ResumeError;

/// Reader of the events of one stored run, which another process may execute ([`Engine::follow`]).
///
/// The reader holds the run's state in memory and replays each step once. The pieces of streamed replies (LLM_TOKEN) are not in the
/// journal.
pub struct RunFollower {
    engine: Engine,
    run_id: String,
    /// The run's entry in the store, as last read.
    entry: Option<Run>,
    replayed: Option<Replayed>,
    /// Sequence of the last event that was returned.
    read_to: u64,
}

/// A run after its first `steps` steps.
struct Replayed {
    run: FollowedRun,
    steps: u64,
    session: Option<Arc<str>>,
}

impl RunFollower {
    pub(crate) fn new(engine: Engine, run_id: String, after: u64) -> Self {
        Self {
            engine,
            run_id,
            entry: None,
            replayed: None,
            read_to: after,
        }
    }

    /// Returns whether [`Self::read`] has something to replay: the run has more steps than at the last call of `read`.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    ///
    /// # Errors
    /// Fails if the store cannot be read, or if the run was removed.
    pub async fn has_grown(&mut self) -> Result<bool, ResumeError> {
        let durable = self.engine.durable()?;
        let run = self.read_entry(&durable).await?;
        Ok(self
            .replayed
            .as_ref()
            .is_none_or(|replayed| replayed.steps != run.steps))
    }

    /// Returns the events of the steps since the last call, in order; empty if there is no further step. The first call replays the
    /// run from its start, and each later one only the steps since.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call replays the run from its start. No event is lost.
    ///
    /// # Errors
    /// Fails if the store cannot be read, the run was removed, or its steps do not fit its workflows. A later call tries again.
    pub async fn read(&mut self) -> Result<Vec<Arc<Event>>, ResumeError> {
        let durable = self.engine.durable()?;
        let run = self.read_entry(&durable).await?;
        // Taken out: after an error or a cancellation the state may have a part of the new steps.
        let replayed = match self.replayed.take() {
            Some(replayed) => self.continued(&durable, replayed, &run).await?,
            None => None,
        };
        let mut replayed = match replayed {
            Some(replayed) => replayed,
            None => self.rebuilt(&durable).await?,
        };
        let mut events = replayed.run.take_events();
        // A run that is rebuilt raises its events again.
        events.retain(|event| event.sequence > self.read_to);
        self.read_to = events.last().map_or(self.read_to, |event| event.sequence);
        self.replayed = Some(replayed);
        Ok(events)
    }

    /// Returns the run's entry in the store, as of the last call.
    pub fn entry(&self) -> Option<&Run> {
        self.entry.as_ref()
    }

    /// Returns true if the run has ended and all of its events were returned.
    pub fn is_over(&self) -> bool {
        let steps = self.replayed.as_ref().map(|replayed| replayed.steps);
        let is_final = |run: &Run| run.status.is_final() && Some(run.steps) == steps;
        self.entry.as_ref().is_some_and(is_final)
    }

    /// Returns the report, if the steps that were read include the outcome.
    pub fn report(&self) -> Option<&Arc<RunReport>> {
        self.replayed.as_ref()?.run.report()
    }

    /// Returns the questions that are open after the steps that were read.
    pub fn interactions(&self) -> Vec<Interaction> {
        let replayed = self.replayed.as_ref();
        replayed.map_or_else(Vec::new, |replayed| replayed.run.interactions())
    }

    async fn read_entry(&mut self, durable: &Durable) -> Result<Run, ResumeError> {
        let run = durable.store.run(&self.run_id).await?;
        // The id of a removed run may be taken by another one, whose events are others.
        let is_same = |run: &Run| {
            let known = self.entry.as_ref();
            known.is_none_or(|known| known.started_at == run.started_at)
        };
        let run = run.filter(is_same).ok_or_else(|| StoreError::NoSuchRun {
            run: self.run_id.clone(),
        })?;
        self.entry = Some(run.clone());
        Ok(run)
    }

    /// Replays the steps since the last read. Returns `None` if the run must be rebuilt from its start.
    async fn continued(
        &self,
        durable: &Durable,
        mut replayed: Replayed,
        run: &Run,
    ) -> Result<Option<Replayed>, ResumeError> {
        let session = replayed.session.clone();
        let inputs = StoredRecords::read_further(durable, run, session, replayed.steps).await?;
        // All steps of a run are replayed by its last definition.
        if inputs.iter().any(is_migration) {
            return Ok(None);
        }
        replayed.steps += inputs.len() as u64;
        let followed = self.engine.shared().follow_on(&mut replayed.run, inputs);
        Ok(followed.ok().map(|()| replayed))
    }

    async fn rebuilt(&self, durable: &Durable) -> Result<Replayed, ResumeError> {
        let mut stored = StoredRecords::read(durable, &self.run_id).await?;
        let steps = stored.inputs.len() as u64;
        let session = stored.begun.session().map(|session| Arc::clone(&session.id));
        let run = stored.follow(&self.engine, durable)?;
        Ok(Replayed { run, steps, session })
    }
}

impl std::fmt::Debug for RunFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunFollower")
            .field("run_id", &self.run_id)
            .field("read_to", &self.read_to)
            .finish_non_exhaustive()
    }
}

fn is_migration(input: &JournaledInput) -> bool {
    matches!(input.message, Message::Supervisor(ToSupervisor::Migrated(_)))
}
