//! Resumption of runs from their stored records.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::engine::OnEnd;
use pirn_actors::events::{Deliver, Subscription};
use pirn_actors::rebuilt_run::{RebuiltRun, Resumed};
use pirn_core::run::{AnswerRefused, Control, Message, ToSupervisor};
use pirn_core::thread::{FiringId, Interaction, started_run_id};
use pirn_definition::definition::SourceFile;
use pirn_definition::event_type::EventType;
use pirn_store::StoreError;
use serde_json::Value;

use super::doubts::{give_up_calls, settle};
use super::migrate::{Migration, check};
use super::started_runs::{end_of, log_unsent, report_to_starter, send_end, stored_child};
use crate::engine::durable::Durable;
use crate::engine::durable::claim::Claim;
use crate::engine::durable::records::journal::StoredRun;
use crate::engine::durable::records::stored::StoredRecords;
use crate::engine::durable::resume_error::ResumeError;
use crate::engine::{AutoResponder, BlockingEvents, Engine, Events, RunHandle, blocking};

/// Builder that resumes a run: `engine.resume("run-1").start().await?`.
#[must_use = "the run is resumed only by `start`"]
pub struct ResumeBuilder {
    pub(in crate::engine::durable) engine: Engine,
    pub(in crate::engine::durable) run_id: String,
    subscriptions: Vec<Subscription>,
    answers: Option<AutoResponder>,
    mode: ResumeMode,
}

/// Kind of resumption, which determines the run's first inputs.
#[derive(Default)]
enum ResumeMode {
    /// After a crash: the first inputs are the answers about the effects in doubt.
    #[default]
    AfterCrash,
    /// A fork that this builder has created. Its open effects have never started, so none is in doubt.
    Fork(Option<Claim>),
    /// A cancellation for this reason: no open effect is performed.
    Cancel(String),
}

impl ResumeBuilder {
    pub(crate) fn new(engine: Engine, run_id: String) -> Self {
        Self {
            engine,
            run_id,
            subscriptions: Vec::new(),
            answers: None,
            mode: ResumeMode::default(),
        }
    }

    pub(in crate::engine::durable) fn of_fork(engine: Engine, run_id: String, claim: Option<Claim>) -> Self {
        Self {
            mode: ResumeMode::Fork(claim),
            ..Self::new(engine, run_id)
        }
    }

    /// Returns the run's id.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Returns a stream of the run's events after the one with this sequence number; 0 starts with the first event. An empty
    /// `types` selects all types.
    pub fn events_after(&mut self, sequence: u64, types: &[EventType], capacity: usize) -> Events {
        let (deliver, events) = self.engine.event_memory.stream(capacity);
        self.subscribe(sequence, types, deliver);
        events
    }

    /// Like [`Self::events_after`], for a thread that blocks.
    pub fn blocking_events_after(&mut self, sequence: u64, types: &[EventType], capacity: usize) -> BlockingEvents {
        let (deliver, events) = blocking(capacity, Some(self.engine.runtime()));
        self.subscribe(sequence, types, deliver);
        events
    }

    fn subscribe(&mut self, after: u64, types: &[EventType], deliver: Box<dyn Deliver>) {
        let types = types.to_vec();
        self.subscriptions.push(Subscription { types, after, deliver });
    }

    /// Like [`RunBuilder::answers`](crate::RunBuilder::answers), and also answers the questions that are already open.
    pub fn answers(
        mut self,
        give: impl Fn(&Interaction) -> Option<Value> + Send + Sync + 'static,
        refused: impl Fn(&Interaction, &AnswerRefused) + Send + Sync + 'static,
    ) -> Self {
        self.answers = Some(AutoResponder::new(
            move |question| Some((give(question)?, None, 0)),
            refused,
        ));
        self
    }

    /// Compares the run with its definition merged with these files: an item of the files replaces the one with its id.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    ///
    /// # Errors
    /// Fails if there is no such run, it has ended or this engine owns it, if the files have faults, or if they have workflows and
    /// none has the id of a workflow of the run (`WORKFLOW_NOT_FOUND`).
    pub async fn check_migration(&self, files: &[SourceFile]) -> Result<Migration, ResumeError> {
        Ok(check(&self.engine, &self.run_id, files).await?.0)
    }

    /// Like [`Self::check_migration`]; if the run fits, it uses the merged definition from its next step.
    ///
    /// # Cancel safety
    /// If the future is dropped, the run may or may not use the merged definition. Calling again is harmless.
    ///
    /// # Errors
    /// As [`Self::check_migration`].
    pub async fn migrate(self, files: &[SourceFile]) -> Result<Migration, ResumeError> {
        let (migration, definition) = check(&self.engine, &self.run_id, files).await?;
        if migration.fits {
            self.append_input(|_, _| Ok(Some(Message::Supervisor(ToSupervisor::Migrated(definition)))))
                .await?;
        }
        Ok(migration)
    }

    /// Rebuilds the run and resumes it. A fork that cannot be started is removed from the store.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the run is either not resumed and its claim is released, or it has been resumed
    /// and continues: [`Engine::find`](crate::Engine::find) returns its handle.
    pub async fn start(self) -> Result<RunHandle, ResumeError> {
        let subscribers = Subscribers {
            subscriptions: self.subscriptions,
            answers: self.answers,
            on_end: None,
        };
        resume(self.engine, self.run_id, subscribers, self.mode).await
    }

    /// Rebuilds the run and cancels it: its open effects are not performed.
    ///
    /// # Cancel safety
    /// As [`Self::start`].
    pub async fn cancel(self, reason: impl Into<String>) -> Result<RunHandle, ResumeError> {
        let mode = ResumeMode::Cancel(reason.into());
        let subscribers = Subscribers {
            subscriptions: self.subscriptions,
            ..Subscribers::default()
        };
        resume(self.engine, self.run_id, subscribers, mode).await
    }
}

/// Subscribers of a resumed run.
#[derive(Default)]
struct Subscribers {
    subscriptions: Vec<Subscription>,
    answers: Option<AutoResponder>,
    on_end: Option<OnEnd>,
}

/// Rebuilds and resumes a run. The future is boxed because the function is recursive: it also resumes the runs that this run's
/// triggers started.
fn resume(
    engine: Engine,
    run_id: String,
    subscribers: Subscribers,
    mode: ResumeMode,
) -> BoxFuture<'static, Result<RunHandle, ResumeError>> {
    async move {
        let durable = engine.durable()?;
        let shared = engine.shared();
        // An input that arrives now is either committed before the journal is read, or sent to the resumed run.
        let _lock = durable.peers.lock(&run_id).await;
        // Checked under the lock: a resume that held it before may have admitted the run by now.
        if shared.carries(&run_id) {
            return Err(ResumeError::UnderWay { run_id });
        }
        durable.peers.check_unowned(&run_id)?;
        let is_new = matches!(mode, ResumeMode::Fork(_));
        let resumed = resume_locked(&engine, &durable, &run_id, subscribers, mode).await;
        // A fork that has started stays, even if the end of a started run could not be delivered to it.
        if is_new && resumed.is_err() && engine.find(&run_id).is_none() {
            discard(&durable, &run_id).await;
        }
        resumed
    }
    .boxed()
}

/// Rebuilds and resumes a run that the caller has locked.
async fn resume_locked(
    engine: &Engine,
    durable: &Durable,
    run_id: &str,
    subscribers: Subscribers,
    mut mode: ResumeMode,
) -> Result<RunHandle, ResumeError> {
    let shared = engine.shared();
    let claim = match &mut mode {
        // The commit that created the fork also claimed it.
        ResumeMode::Fork(claim @ Some(_)) => claim.take(),
        ResumeMode::Fork(None) | ResumeMode::AfterCrash | ResumeMode::Cancel(_) => {
            Claim::make(&durable.store, run_id).await?
        }
    };
    let mut stored = StoredRecords::read_live(durable, run_id).await?;
    let inputs = std::mem::take(&mut stored.inputs);
    let mut rebuilt = stored.rebuild(engine, durable, inputs)?;
    let is_cancelled = matches!(mode, ResumeMode::Cancel(_));
    // A cancelled run performs no further call, so it needs no resources.
    if !is_cancelled {
        let missing = durable.missing(&rebuilt.graphs, &stored.begun.workflow_id);
        // A name that was missing at the start too is no reason to refuse: the run has been executed without it.
        let known = stored.begun.missing();
        let names: Vec<String> = missing.iter().filter(|name| !known.contains(name)).cloned().collect();
        if !names.is_empty() {
            let run_id = run_id.to_owned();
            return Err(ResumeError::Missing { run_id, names });
        }
    }
    let mut inputs = match mode {
        ResumeMode::AfterCrash => settle(shared, &mut rebuilt, durable.ask.as_ref()).await?,
        // Recorded before the first effect, so that a later resume treats the effects as possibly started.
        ResumeMode::Fork(_) if rebuilt.is_uncarried => {
            vec![Message::Supervisor(ToSupervisor::Recovered(Vec::new()))]
        }
        ResumeMode::Fork(_) => Vec::new(),
        ResumeMode::Cancel(reason) => {
            rebuilt.open.threads.clear();
            // Threads that were about to start would perform their first effects.
            rebuilt.open.begins.clear();
            let calls = give_up_calls(&mut rebuilt, &reason);
            let cancel = Message::Supervisor(ToSupervisor::Control(Control::Cancel(reason)));
            std::iter::once(cancel).chain(calls).collect()
        }
    };
    // Children are queried before this run is admitted, because a child's end is one of its first inputs.
    let (ended, elsewhere) = resume_children(engine, durable, &mut rebuilt).await?;
    inputs.extend(ended);
    // Read now, because the rebuilt run moves into the admission.
    let (questions, events) = (rebuilt.machine.interactions(), rebuilt.open.events);
    let has_left = check_session_turn(engine, durable, &rebuilt, is_cancelled).await?;
    if let Some(claim) = &claim {
        // The run has been rebuilt without an error. An early return above releases the claim with a delay.
        claim.goes_on();
    }
    let journal = StoredRun::after((durable, claim), &stored.run, &rebuilt, has_left);
    let Subscribers {
        mut subscriptions,
        answers,
        on_end,
    } = subscribers;
    let on_end = match on_end {
        Some(on_end) => Some(on_end),
        None => report_to_starter(durable, &stored.run).await?,
    };
    let resumed = Resumed {
        rebuilt,
        inputs,
        journal: Box::new(journal),
    };
    subscriptions.extend(answers.iter().map(|answers| answers.subscription(events)));
    let (started, admitted) = shared
        .admit_resumed(resumed, subscriptions, on_end)
        .map_err(ResumeError::Refused)?;
    if let Some(answers) = answers {
        answers.of_run(&started);
        // Their events were raised before the crash, and the subscription starts after these.
        for question in questions {
            answers.asked(question);
        }
    }
    admitted.go().map_err(ResumeError::Refused)?;
    let run = engine.handle(started);
    for firing in elsewhere {
        // The end is sent only now, because the run was not registered before.
        send_end(engine, run.run_id(), firing)?;
    }
    Ok(run)
}

/// Removes a fork that could not be started, unless another process has claimed it since.
async fn discard(durable: &Durable, run_id: &str) {
    let removed = async {
        // The refusal has released the first claim. No other process may start the run during the removal.
        let _claim = Claim::make(&durable.store, run_id).await?;
        durable.store.remove(vec![run_id.to_owned()], false).await
    };
    if let Err(error) = removed.await {
        tracing::warn!(run_id, %error, "a fork that could not be started stays in the store");
    }
}

/// Returns whether the run's session already contains this run's result. Fails if an earlier run of the session has no owner.
async fn check_session_turn(
    engine: &Engine,
    durable: &Durable,
    rebuilt: &RebuiltRun,
    is_cancelled: bool,
) -> Result<bool, ResumeError> {
    // A fork is aside: it reads the session's state and neither waits for a turn nor writes.
    let Some(session) = rebuilt.machine.session().filter(|session| !session.is_aside) else {
        return Ok(false);
    };
    let run_id = rebuilt.machine.run_id();
    // Queried even if the run does not wait, because the query also loads the order of the unfinished runs.
    let before = engine.shared().session_run_before(session, run_id);
    let before = before.await.map_err(ResumeError::Refused)?;
    // A run that has had its turn does not wait again, and a cancelled one needs no turn.
    if let Some(before) = before.filter(|_| rebuilt.open.awaits_session && !is_cancelled) {
        return Err(ResumeError::SessionBusy {
            run_id: run_id.to_string(),
            session: session.id.to_string(),
            before: before.to_string(),
        });
    }
    match &rebuilt.open.left {
        Some(Some(left)) => {
            let kept = durable.store.session(&left.id).await?;
            // Only this run writes its version, and later runs of the session write higher ones.
            Ok(kept.is_some_and(|kept| kept.version >= left.state.version))
        }
        Some(None) | None => Ok(false),
    }
}

/// Resumes the runs which this run's triggers started and whose end it has not received. Returns the messages about those that have
/// ended, and the firings of those that are executed independently.
async fn resume_children(
    engine: &Engine,
    durable: &Durable,
    rebuilt: &mut RebuiltRun,
) -> Result<(Vec<Message>, Vec<FiringId>), ResumeError> {
    let run_id = Arc::clone(rebuilt.machine.run_id());
    let (mut ended, mut elsewhere) = (Vec::new(), Vec::new());
    // Copied, because the loop removes entries.
    let firings: Vec<FiringId> = rebuilt.open.runs.keys().copied().collect();
    for firing in firings {
        let id = started_run_id(&run_id, firing);
        // A run that a former resume of this run has started would count as never started until its start is in the store.
        if let Some(child) = engine.find(&id) {
            // If it fails, the run has no start in the store, and the open firing reports that.
            drop(child.wait_durable().await);
        }
        // The child run was never started: the open firing starts it as usual, and fails if a user has a run of that id.
        let Some(child) = stored_child(durable, &id).await? else {
            continue;
        };
        // Removed, so that the resumed parent does not start the run a second time.
        rebuilt.open.runs.remove(&firing);
        if child.status.is_final() {
            ended.extend(end_of(engine, durable, firing, &id).await?);
            continue;
        }
        let (shared, own, parent) = (Arc::clone(engine.shared()), engine.downgrade(), Arc::clone(&run_id));
        // The callback of the process before is gone, so the child gets a new one.
        let on_end: OnEnd = Box::new(move |end| {
            // The child may end before this run is registered.
            if !shared.started_run_ended(&parent, firing, end) {
                log_unsent(own.upgrade().map(|engine| send_end(&engine, &parent, firing)));
            }
        });
        let subscribers = Subscribers {
            on_end: Some(on_end),
            ..Subscribers::default()
        };
        // Children first, and the parent fails with them: otherwise it would wait for a run without an owner.
        match resume(engine.clone(), id.clone(), subscribers, ResumeMode::AfterCrash).await {
            Ok(_) => {}
            // The child run was resumed independently, by another process or this one.
            Err(ResumeError::Store(StoreError::RunHeld { .. }) | ResumeError::UnderWay { .. }) => {
                elsewhere.push(firing);
            }
            Err(error) => return Err(error),
        }
    }
    Ok((ended, elsewhere))
}
