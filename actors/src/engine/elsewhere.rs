//! Runs that are created without an owner.

use std::sync::Arc;

use futures::FutureExt;
use pirn_core::run::{EventInterest, RunStart, Setting};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_events::event::EventMask;
use pirn_sync::completion;

use super::admission::check_names;
use super::local::Local;
use super::{EngineShared, RunRequest};
use crate::calls::current_call;
use crate::host::Host;
use crate::journal::Graphs;
use crate::protocol::engine::{DetachedRun, EngineHandle};
use crate::run::run_context::{listening, promised};
use crate::sessions::SessionSeat;

impl EngineShared {
    /// Creates the initial record of a run without an owner, with its workflows; the caller stores it. The first step is taken by
    /// the process that resumes the run. In its session the run comes after all earlier requests.
    ///
    /// # Errors
    /// Fails if the workflow does not exist, if too many runs wait for the session, or if the engine has stopped.
    pub async fn begin_elsewhere(
        self: &Arc<Self>,
        run_id: Arc<str>,
        request: RunRequest,
    ) -> Result<(RunStart, Graphs), RunError> {
        check_names(&run_id, &request)?;
        let graphs = self.all_graphs();
        let graph = self.asked_graph(&graphs, &request)?;
        let metadata = request.metadata.clone();
        // Reserved first, because the number of the seat is part of the run's seed.
        let seat = self.seat(&run_id, &request)?;
        let session = seat.as_ref().map(SessionSeat::seed);
        let new = self.new_run(graph, request, session, (false, current_call::trigger_depth(), None));
        let (setter, begun) = completion();
        let (uid, is_durable, run_bytes) = (self.uid, self.ports.is_durable(), self.ports.run_bytes);
        // The process that resumes the run may have another seed, or none.
        let settings = self.seed().map(Setting::ScriptSeed).into_iter().collect();
        // The record contains a time, a random number and the local interest, which only an arbiter has.
        self.spawner.start(Box::new(move |host, _| {
            // If the engine has stopped here, dropping `setter` reports it.
            let Some(local) = Local::of(uid) else { return };
            let promised = if is_durable { promised() } else { EventMask::NONE };
            setter.set(RunStart {
                at: host.wall_clock(),
                listening: listening(&local.interest, promised),
                uncarried: true,
                seed: new.seed(&run_id, metadata.as_ref(), host, run_bytes),
                settings,
            });
        }))?;
        let stopped = |_| RunError::new(RunErrorCode::Cancelled, "the engine has stopped");
        let begun = begun.wait().await.map_err(stopped)?;
        if let Some(seat) = seat {
            seat.begins_elsewhere();
        }
        Ok((begun, graphs))
    }

    /// Stores a run that a trigger starts, without an owner.
    pub(super) fn put_detached(
        self: &Arc<Self>,
        run: DetachedRun,
        host: &Host,
        listening: EventInterest,
    ) -> Result<(), RunError> {
        let no_journal = || RunError::new(RunErrorCode::Cancelled, "the engine is shutting down");
        let journal = self.ports.journal.as_ref().ok_or_else(no_journal)?;
        let (run_id, metadata) = (run.run_id, run.metadata.clone());
        let request = RunRequest::of_detached(run.workflow_id, run.input, run.messages, run.metadata);
        let graphs = self.all_graphs();
        let graph = self.asked_graph(&graphs, &request)?;
        let from_trigger = (run.is_unlimited, run.trigger_depth, run.summary_profile);
        let new = self.new_run(graph, request, None, from_trigger);
        let begun = RunStart {
            at: host.wall_clock(),
            listening,
            uncarried: true,
            seed: new.seed(&run_id, metadata.as_ref(), host, self.ports.run_bytes),
            settings: self.seed().map(Setting::ScriptSeed).into_iter().collect(),
        };
        let stored = journal.put(&begun, &graphs)?;
        let stored = stored.map(move |stored| {
            if let Err(error) = stored {
                tracing::warn!(%run_id, %error, "a run that a trigger starts was not stored");
            }
        });
        host.access_store(stored.boxed()).detach();
        Ok(())
    }
}
