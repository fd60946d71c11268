//! Rebuilding and resuming runs.

use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_core::run::{Diverged, Effect, JournaledInput, Message, ReplayStep, RunMachine, RunStart, SessionSeed};
use pirn_definition::Millis;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_sync::{Completion, completion};

use super::admission::AdmittedRun;
use super::admission::RunAttachments;
use super::{EngineShared, OnEnd, StartJob, StartedRun};
use crate::host::WorkClock;
use crate::journal::Graphs;
use crate::protocol::engine::EngineHandle;
use crate::protocol::events::Subscription;
use crate::protocol::supervisor::SupervisorMsg;
use crate::run::followed_run::FollowedRun;
use crate::run::inline_services::InlineServices;
use crate::run::rebuilt_run::{RebuiltRun, ReplayFacts, Resumed};
use crate::supervisor::Beginning;

impl EngineShared {
    /// Rebuilds a run of this engine from its [journal](crate::journal), and returns its machine with all effects that it
    /// requested. The effects are not executed, but inline calls and evaluations are repeated.
    ///
    /// # Errors
    /// Fails if the inputs do not match the workflows or the version of the machine.
    pub fn rebuild(
        self: &Arc<Self>,
        begun: RunStart,
        inputs: impl IntoIterator<Item = JournaledInput>,
    ) -> Result<(RunMachine, Vec<Effect>), Diverged> {
        let mut effects = Vec::new();
        let machine = self.replay_seen(begun, inputs, self.all_graphs(), &mut |_, seen| {
            if let ReplayStep::Effects(_, did) = seen {
                effects.append(did);
            }
        })?;
        Ok((machine, effects))
    }

    /// Rebuilds a run over the workflows that it started with.
    ///
    /// # Errors
    /// Fails if the inputs do not match the workflows or the version of the machine.
    pub fn replay(
        self: &Arc<Self>,
        begun: RunStart,
        inputs: impl IntoIterator<Item = JournaledInput>,
        graphs: Graphs,
    ) -> Result<RebuiltRun, Diverged> {
        self.replay_watched(begun, inputs, graphs, &mut |_, _| ())
    }

    /// Like [`Self::replay`]; `watch` receives every replayed input and effect, with the machine before the input or after the step.
    ///
    /// # Errors
    /// As [`Self::replay`].
    pub fn replay_watched(
        self: &Arc<Self>,
        begun: RunStart,
        inputs: impl IntoIterator<Item = JournaledInput>,
        graphs: Graphs,
        watch: &mut dyn FnMut(&RunMachine, &ReplayStep<'_>),
    ) -> Result<RebuiltRun, Diverged> {
        let (at, metadata) = (begun.at, begun.seed.metadata.clone());
        let mut seen = ReplayFacts::new(&begun);
        let saw = &mut |machine: &RunMachine, replayed: ReplayStep<'_>| {
            // Before the facts, which take the effects.
            watch(machine, &replayed);
            seen.saw(replayed);
        };
        let inline_services = self.services_apart(Arc::clone(&graphs));
        let rebuilt = inline_services.replay(begun, inputs, saw)?;
        Ok(seen.rebuilt(rebuilt, graphs, (at, metadata)))
    }

    /// Like [`Self::replay`]; `saw` receives every replayed input and effect.
    ///
    /// # Errors
    /// As [`Self::replay`].
    pub fn replay_seen(
        self: &Arc<Self>,
        begun: RunStart,
        inputs: impl IntoIterator<Item = JournaledInput>,
        graphs: Graphs,
        saw: &mut dyn FnMut(&RunMachine, ReplayStep<'_>),
    ) -> Result<RunMachine, Diverged> {
        self.services_apart(graphs)
            .replay(begun, inputs, saw)
            .map(|(machine, _)| machine)
    }

    /// Rebuilds a run of another process, which [`Self::follow_on`] continues when its journal has grown.
    ///
    /// # Errors
    /// As [`Self::replay`].
    pub fn follow(
        self: &Arc<Self>,
        begun: RunStart,
        inputs: Vec<JournaledInput>,
        graphs: Graphs,
    ) -> Result<FollowedRun, Diverged> {
        let services = self.services_apart(Arc::clone(&graphs));
        FollowedRun::new(&services, begun, inputs, graphs)
    }

    /// Continues a followed run with the inputs that were recorded since.
    ///
    /// # Errors
    /// Fails if the inputs do not match the run so far, or refer to an event that is not in memory any more. The run must then be
    /// rebuilt from its start.
    pub fn follow_on(self: &Arc<Self>, run: &mut FollowedRun, inputs: Vec<JournaledInput>) -> Result<(), Diverged> {
        let services = self.services_apart(Arc::clone(run.graphs()));
        run.extend(&services, inputs)
    }

    /// Returns the services of a replay. The calling thread may be no arbiter, so the replay has its own evaluator.
    fn services_apart(self: &Arc<Self>, graphs: Graphs) -> InlineServices {
        InlineServices::apart(Arc::clone(&self.ports), self.handle(), graphs)
    }

    /// Admits a resumed run. The caller must own the run: no other process may execute it.
    pub fn admit_resumed(
        self: &Arc<Self>,
        resumed: Resumed,
        subscriptions: Vec<Subscription>,
        on_end: Option<OnEnd>,
    ) -> Result<(StartedRun, AdmittedRun), RunError> {
        let run_id = Arc::clone(resumed.rebuilt.machine.run_id());
        let graphs = Arc::clone(&resumed.rebuilt.graphs);
        let metadata = resumed.rebuilt.metadata.clone();
        // A forked run never updates the session and has no place in its queue.
        let session = resumed.rebuilt.machine.session().filter(|session| !session.is_aside);
        let seat = session.map(|session| self.sessions.enter_again(session.clone(), &run_id));
        self.let_in(
            (run_id, metadata),
            graphs,
            || Beginning::Resumed(Box::new(resumed)),
            subscriptions,
            RunAttachments {
                on_end,
                session: seat,
                is_background: false,
            },
        )
    }

    /// Returns a run without an owner that precedes this one in its session; it must be resumed or cancelled first. Loads the
    /// unfinished runs of earlier processes.
    ///
    /// # Errors
    /// The store of the sessions could not be read.
    pub async fn session_run_before(&self, session: &SessionSeed, run_id: &str) -> Result<Option<Arc<str>>, RunError> {
        self.sessions.know().await?;
        Ok(self.sessions.abandoned_before(&session.id, run_id))
    }

    /// Removes a run without an owner from the queue of its session. The next run of the session gets the turn if it waits for it.
    pub fn leave_session(&self, session: SessionSeed, run_id: &Arc<str>) {
        self.sessions.enter_again(session, run_id).leave(None);
    }

    /// Sends an external input to a run. Returns false if this engine has no run of this id.
    pub fn tell(&self, run_id: &str, message: Message) -> bool {
        self.tell_run(run_id, SupervisorMsg::Tell(message)).is_ok()
    }

    /// Returns the clock of the runs, in milliseconds since 1970.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn wall_clock(&self) -> Result<Millis, RunError> {
        let (setter, time) = completion();
        // Any arbiter can answer: all have one wall clock.
        self.spawner
            .start_on(0, Box::new(move |host, _| setter.set(host.wall_clock())))?;
        let stopped = |_| RunError::new(RunErrorCode::Cancelled, "the engine has stopped");
        time.wait().await.map_err(stopped)
    }

    /// Runs work that waits for the outside world on the engine's threads.
    pub fn work<T: Clone + Send + Sync + 'static>(
        &self,
        begin: impl FnOnce(WorkClock) -> BoxFuture<'static, T> + Send + 'static,
    ) -> Result<Completion<T>, RunError> {
        let (setter, done) = completion();
        let job: StartJob = Box::new(move |host, _| {
            let work = begin(host.work_clock());
            // Detached, because the drop of the handle would abort the work.
            host.external(None, Box::pin(async move { setter.set(work.await) }))
                .detach();
        });
        self.spawner.start(job)?;
        Ok(done)
    }

    /// True if this engine executes a run of this id.
    pub fn carries(&self, run_id: &str) -> bool {
        self.runs.find(run_id).is_some()
    }
}
