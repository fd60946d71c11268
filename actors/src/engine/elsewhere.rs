//! Runs that begin where nobody carries them yet.

use std::sync::Arc;

use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventMask;
use pirn_core::run::Begun;
use pirn_sync::completion;

use super::admission::check_names;
use super::local::Local;
use super::{EngineShared, RunRequest};
use crate::cause;
use crate::journal::Graphs;
use crate::run_context::{listening, promised};
use crate::sessions::SessionSeat;

impl EngineShared {
    /// The beginning of a run, and the workflows that it begins over, for whoever keeps it: nobody carries the run, and it takes its
    /// first step where a process goes on with it. In its session it comes after the runs that were asked for before.
    ///
    /// # Errors
    /// There is no such workflow, too many runs wait for the session, or the engine has stopped.
    pub async fn begin_elsewhere(
        self: &Arc<Self>,
        run_id: Arc<str>,
        request: RunRequest,
    ) -> Result<(Begun, Graphs), RunError> {
        check_names(&run_id, &request)?;
        let graphs = self.all_graphs();
        let graph = self.asked_graph(&graphs, &request)?;
        let metadata = request.metadata.clone();
        let seat = self.seat(&run_id, &request)?;
        let session = seat.as_ref().map(SessionSeat::seed);
        let new = self.new_run(graph, request, session, (false, cause::trigger_depth()));
        let (setter, begun) = completion();
        let (uid, is_durable, run_bytes) = (self.uid, self.ports.is_durable(), self.ports.run_bytes);
        self.spawner.start(Box::new(move |host, _| {
            // Dropped without a word where the engine has stopped here.
            let Some(local) = Local::of(uid) else { return };
            let promised = if is_durable { promised() } else { EventMask::NONE };
            setter.set(Begun {
                at: host.wall_clock(),
                listening: listening(&local.interest, promised),
                uncarried: true,
                seed: new.seed(&run_id, metadata.as_ref(), host, run_bytes),
                settings: Vec::new(),
            });
        }))?;
        let stopped = |_| RunError::new(RunErrorCode::Cancelled, "the engine has stopped");
        let begun = begun.wait().await.map_err(stopped)?;
        if let Some(seat) = seat {
            seat.begins_elsewhere();
        }
        Ok((begun, graphs))
    }
}
