//! Journal of an engine with a store: writes the inputs of runs into the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{FutureExt, TryFutureExt};
use pirn_actors::journal::{Graphs, Journal, JournalFlush, JournalRead, RunJournal};
use pirn_actors::rebuilt_run::RebuiltRun;
use pirn_core::run::{
    Effect, JournaledInput, Message, PendingWaits, RunStart, RunStartRecord, SessionLeft, Setting, ToSupervisor,
    ToThread, WaitReason, effect_key, trigger_key,
};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{FiringId, Input};
use pirn_definition::Millis;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_store::{Commit, Content, ContentHash, NewRun, Precondition, Record, Run, RunStatus, Store, WaitingFor};
use serde_json::json;

use super::parts::Conversations;
use super::results::{are_kept_apart, without_result};
use super::sessions::{self, without_conversation};
use super::stored::StoredRecords;
use crate::engine::durable::Durable;
use crate::engine::durable::claim::Claim;
use crate::engine::durable::resume_error::{ResumeError, run_error};

/// Journal that persists the runs of an engine in its store.
pub(crate) struct StoreJournal(pub(crate) Arc<Durable>);

impl Journal for StoreJournal {
    fn begun(&self, begun: &RunStart, graphs: &Graphs) -> Box<dyn RunJournal> {
        let missing = self.0.missing(graphs, &begun.seed.graph.workflow_id);
        let (start, fault) = match beginning(begun, &missing) {
            Ok(start) => (start, None),
            // The trait's method cannot fail here. The fault is returned by the first `keep`, before any effect of the run.
            Err(fault) => (Content::new(""), Some(fault)),
        };
        let next = start_of(begun, self.0.definitions.of(graphs), start);
        let run_id = Arc::clone(&begun.seed.run_id);
        let claim = Claim::of_new(&self.0.store, &run_id);
        Box::new(StoredRun {
            fault,
            // The session's state needs a time even if the run ends without a further step.
            at: begun.at,
            // Decided once for a run, because the scan covers all workflows of the engine.
            keeps_results_apart: are_kept_apart(graphs),
            ..StoredRun::new((&self.0, claim), run_id, 0, Some(Box::new(next)))
        })
    }

    fn put(&self, begun: &RunStart, graphs: &Graphs) -> Result<JournalFlush, RunError> {
        let stored = self.0.store.commit(unowned_start(&self.0, begun, graphs)?);
        let stored = stored.map(|stored| stored.map(drop).map_err(|error| run_error(&error)));
        Ok(stored.boxed())
    }

    fn is_durable(&self) -> bool {
        true
    }
}

/// Converts the reason that a run waits into the store's type.
pub(in crate::engine::durable) fn waiting_for(awaited: WaitReason) -> WaitingFor {
    match awaited {
        WaitReason::Interaction => WaitingFor::Interaction,
        WaitReason::Event => WaitingFor::Event,
        WaitReason::Timer => WaitingFor::Timer,
    }
}

/// Returns the final status of a run by the status with which its main thread ended.
pub(in crate::engine::durable) fn final_status(ended: ThreadStatus) -> RunStatus {
    match ended {
        ThreadStatus::Completed => RunStatus::Completed,
        ThreadStatus::Cancelled => RunStatus::Cancelled,
        ThreadStatus::Timeout => RunStatus::TimedOut,
        ThreadStatus::Failed | ThreadStatus::Created | ThreadStatus::Running | ThreadStatus::Paused => {
            RunStatus::Failed
        }
    }
}

/// Serialises a run's start record. `missing` names the tools and profiles that the engine lacks.
pub(in crate::engine::durable) fn beginning(begun: &RunStart, missing: &[String]) -> Result<Content, RunError> {
    // The missing names are stored, so that a resume only refuses names that have become unavailable since.
    let text = serde_json::to_string(&RunStartRecord::of(begun).without(missing)).map_err(|error| unwritten(&error))?;
    Ok(Content::new(text))
}

/// Returns the first commit of a run that is stored before a process executes it.
///
/// # Errors
/// Fails if the start record cannot be serialised.
pub(in crate::engine::durable) fn unowned_start(
    durable: &Durable,
    begun: &RunStart,
    graphs: &Graphs,
) -> Result<Commit, RunError> {
    let missing = durable.missing(graphs, &begun.seed.graph.workflow_id);
    let start = beginning(begun, &missing)?;
    Ok(start_of(begun, durable.definitions.of(graphs), start))
}

/// Returns the first commit of a run: its definition and its start record.
pub(in crate::engine::durable) fn start_of(begun: &RunStart, definition: Content, start: Content) -> Commit {
    let mut new = NewRun::new(&*begun.seed.graph.workflow_id, definition.hash(), begun.at);
    new.contents = vec![start.hash()];
    // A run of `RunBuilder::enqueue` has no owner until a process claims it.
    new.is_carried = !begun.uncarried;
    new.session = begun.seed.session.as_ref().map(|session| session.id.to_string());
    Commit::start(&*begun.seed.run_id, new)
        .content(definition)
        .content(start)
}

/// Journal of one run.
pub(crate) struct StoredRun {
    store: Arc<dyn Store>,
    conversations: Arc<Conversations>,
    /// Claim on the run, released on drop.
    claim: Option<Claim>,
    run_id: Arc<str>,
    /// Next commit, if it has any content, and the number of recorded steps. Optional and boxed, because many runs wait for a
    /// long time.
    next: Option<Box<Commit>>,
    steps: u64,
    /// Final status of the main thread; written to the store when the run settles.
    ended: Option<RunStatus>,
    /// True once the run has settled and the next commit contains its final status.
    is_settled: bool,
    /// Error of serialising a record; every later write fails with it.
    fault: Option<RunError>,
    /// True if large tool results are stored as separate contents; `results` contains the hashes of those already written.
    keeps_results_apart: bool,
    results: BTreeSet<ContentHash>,
    /// True if the record of the last step already contains the settings that the step used.
    has_settings: bool,
    /// Time of the last step in milliseconds since 1970.
    at: u64,
    /// True once the run's session update has been added to a commit.
    has_left: bool,
    /// Open effects, and the run's current status in the store until the run ends.
    waits: PendingWaits,
    standing: RunStatus,
    /// Time in milliseconds after which a waiting run is parked; `None` for never.
    parks_after: Option<Millis>,
}

impl StoredRun {
    /// Returns a journal that continues after the last stored step of a run.
    pub(crate) fn after(kept: (&Durable, Option<Claim>), run: &Run, rebuilt: &RebuiltRun, has_left: bool) -> Self {
        Self {
            has_left,
            keeps_results_apart: are_kept_apart(&rebuilt.graphs),
            // A result that the run has named already is not named again.
            results: run.contents.iter().copied().collect(),
            waits: PendingWaits::of(&rebuilt.open),
            standing: run.status,
            ..Self::new(kept, run.id.as_str().into(), run.steps, None)
        }
    }

    fn new(
        (durable, claim): (&Durable, Option<Claim>),
        run_id: Arc<str>,
        steps: u64,
        next: Option<Box<Commit>>,
    ) -> Self {
        Self {
            store: Arc::clone(&durable.store),
            conversations: Arc::clone(&durable.conversations),
            claim,
            run_id,
            next,
            steps,
            ended: None,
            is_settled: false,
            fault: None,
            keeps_results_apart: false,
            results: BTreeSet::new(),
            has_settings: false,
            at: 0,
            has_left: false,
            waits: PendingWaits::default(),
            standing: RunStatus::Unfinished,
            parks_after: durable.parks_after,
        }
    }

    fn next(&mut self) -> &mut Commit {
        let (run_id, steps) = (&self.run_id, self.steps);
        self.next
            // The number of steps is that of the last commit here: `record` adds a record first and counts the step afterwards.
            .get_or_insert_with(|| Box::new(Commit::after(&**run_id, steps)))
    }

    /// Adds the run's status to the next commit if it has changed. Does nothing once the run has settled.
    fn stand(&mut self) {
        // Inputs that arrive after the run has settled are recorded, but do not change its status.
        if self.is_settled {
            return;
        }
        let standing = match self.waits.waits_for() {
            None => RunStatus::Unfinished,
            Some(awaited) => RunStatus::Waiting(waiting_for(awaited)),
        };
        let is_said = self.next.as_ref().is_some_and(|next| next.status.is_some());
        // Written only on a change, because the store's lists of runs by status change with it.
        if !is_said && std::mem::replace(&mut self.standing, standing) != standing {
            self.next().status = Some(standing);
        }
    }

    fn leave(&mut self, left: &SessionLeft) {
        // A replay up to this point may already have stored the result, and a session must receive it once.
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        match sessions::write(left, self.at, &self.conversations) {
            Ok((write, parts)) => {
                let next = self.next();
                next.contents.extend(parts);
                next.session = Some(write);
            }
            Err(error) => self.fault = Some(unwritten(&error)),
        }
    }
}

impl RunJournal for StoredRun {
    fn record(&mut self, input: &JournaledInput) {
        self.at = input.at;
        self.has_settings = false;
        self.waits.received(&input.message);
        // The store already has the conversation. Without this each run of a session would write all of it again.
        let turn = without_conversation(input).map(|(bare, part)| {
            self.next().names.push(part);
            serde_json::to_string(&bare)
        });
        let result = if self.keeps_results_apart {
            without_result(input)
        } else {
            None
        };
        let turn = turn.or_else(|| {
            let written = result?;
            Some(written.map(|(body, text)| {
                // A tool that returns the same text again adds only a reference.
                if self.results.insert(text.hash()) {
                    self.next().names.push(text.hash());
                    self.next().contents.push(text);
                }
                body
            }))
        });
        match turn.unwrap_or_else(|| serde_json::to_string(input)) {
            Ok(body) => {
                let mut record = Record::new(input.at, body);
                record.effect = answered(&self.run_id, &input.message);
                self.next().records.push(record);
                self.steps += 1;
            }
            // Stored instead of returned: `keep` is the only place where the supervisor learns of failures.
            Err(error) => self.fault = Some(unwritten(&error)),
        }
    }

    fn went_by(&mut self, settings: Vec<Setting>) -> Vec<Setting> {
        // Settings fit into the step's record only until it is committed. No effect of the step starts before that.
        // Settings that do not fit here go back to the caller, which records them with the next step.
        let Some(next) = self.next.as_mut().filter(|_| !self.has_settings) else {
            return settings;
        };
        let written = match serde_json::to_string(&settings) {
            Ok(written) => written,
            Err(error) => {
                self.fault = Some(unwritten(&error));
                // The run ends with the fault at the next `keep`, so the settings are not needed.
                return Vec::new();
            }
        };
        // The last record of the commit is that of the current step.
        if let Some(record) = next.records.last_mut() {
            write_settings(&mut record.body, &written);
        } else if let Precondition::Start(new) = &mut next.follows
            && let Some(start) = new.contents.first_mut()
            && let Some(content) = next.contents.iter_mut().find(|content| content.hash() == *start)
        {
            // Contents are immutable and named by their hash, so the start record is replaced and its name changed.
            let mut text = content.text().to_string();
            write_settings(&mut text, &written);
            *content = Content::new(text);
            *start = content.hash();
        } else {
            return settings;
        }
        self.has_settings = true;
        Vec::new()
    }

    fn did(&mut self, effect: &Effect) {
        self.waits.did(effect);
        match effect {
            // Only remembered: the status is final in the store when detached work has ended too.
            Effect::Report(report) => {
                self.ended = Some(final_status(report.status));
            }
            Effect::Settled => {
                self.is_settled = self.ended.is_some();
                self.next().status = self.ended;
            }
            Effect::LeaveSession(Some(left)) => self.leave(left),
            // Listed one by one, so that a new effect needs a decision here.
            Effect::LeaveSession(None)
            | Effect::AwaitSession
            | Effect::Begin { .. }
            | Effect::Thread { .. }
            | Effect::Drop { .. }
            | Effect::AwaitTriggers { .. }
            | Effect::ThreadEnded { .. }
            | Effect::Emit { .. }
            | Effect::EmitAll { .. }
            | Effect::SetTimer { .. }
            | Effect::StopTimer { .. }
            | Effect::StartRun(_)
            | Effect::CallTrigger { .. }
            | Effect::QuiesceTriggers => {}
        }
    }

    fn parks_after(&self) -> Option<Millis> {
        // A run with an open call is not parked: the call's outcome would rebuild it.
        self.waits.waits_for().and(self.parks_after)
    }

    fn started_run_left(&mut self, firing: FiringId) {
        self.waits.started_run_left(firing);
    }

    fn waits_outside(&self) -> bool {
        match self.waits.waits_for() {
            Some(WaitReason::Interaction | WaitReason::Event) => true,
            // A timer may become due within the grace period, so a shutdown does not release such a run at once.
            Some(WaitReason::Timer) => false,
            None => self.waits.is_only_for_left_runs(),
        }
    }

    fn waits_for_session(&self) -> bool {
        self.waits.is_only_for_session()
    }

    fn read(&self, graphs: &Graphs) -> JournalRead {
        // Clones, because the returned future outlives the borrow of the journal.
        let (store, run_id, graphs) = (Arc::clone(&self.store), Arc::clone(&self.run_id), Arc::clone(graphs));
        let conversations = Arc::clone(&self.conversations);
        async move {
            let stored = StoredRecords::read_with(&*store, &conversations, &run_id)
                .await
                .map_err(|error| unread(&error))?;
            let begun = stored.begun(&graphs).map_err(|error| unread(&error))?;
            Ok((begun, stored.inputs))
        }
        .boxed()
    }

    fn keep(&mut self) -> Option<JournalFlush> {
        let health = self.claim.as_ref().map(Claim::health);
        // No later record is written either: it would follow a gap in the journal.
        if let Some(fault) = &self.fault {
            if let Some(health) = health {
                health.stuck();
            }
            return Some(std::future::ready(Err(fault.clone())).boxed());
        }
        // Last, when all inputs and effects of this commit are known.
        self.stand();
        // The record of the step is committed now, so later settings need a new one.
        self.has_settings = false;
        // An empty commit still waits for the earlier ones of the run, which `kept` promises.
        let none = || Box::new(Commit::after(&*self.run_id, self.steps));
        let commit = self.next.take().unwrap_or_else(none);
        // Called here and not in the future: the store executes commands in call order.
        let pending = self.store.commit(*commit);
        let claimed = health
            .as_ref()
            .map(|_| (Arc::clone(&self.store), Arc::clone(&self.run_id)));
        let kept = async move {
            pending.await?;
            // This process may have been suspended around the commit while another one claimed the run. In that case no effect
            // may start here.
            match claimed
                .as_ref()
                .and_then(|(store, run)| Some(store.claims()?.verify(run)))
            {
                Some(verified) => verified.await,
                None => Ok(()),
            }
        };
        Some(
            kept.map_err(move |error| {
                if let Some(health) = health {
                    // The store refused this process, and a resume by the next owner may fail for the same reason.
                    health.stuck();
                }
                run_error(&error)
            })
            .boxed(),
        )
    }
}

/// Adds the settings to the record of a step or a start: a serialised JSON object without a `settings` field.
fn write_settings(body: &mut String, settings: &str) {
    // Removes the closing brace. Parsing and writing the record again would cost as much as the step itself.
    body.pop();
    body.push_str(",\"settings\":");
    body.push_str(settings);
    body.push('}');
}

/// Returns the error of a run that cannot be rebuilt from the store.
fn unread(error: &ResumeError) -> RunError {
    let code = json!({ "code": error.code() });
    RunError::new(RunErrorCode::StoreError, error.to_string()).with_details(code)
}

/// Returns the key of the effect whose outcome a message contains. `None` for any other message.
pub(crate) fn answered(run_id: &str, message: &Message) -> Option<String> {
    match message {
        Message::Thread(thread, ToThread::Input(Input::Answer { effect, .. })) => {
            Some(effect_key(run_id, *thread, *effect))
        }
        Message::Supervisor(ToSupervisor::TriggerCalled { call, .. }) => Some(trigger_key(run_id, *call)),
        Message::Thread(..) | Message::Supervisor(_) | Message::Conversation(..) => None,
    }
}

fn unwritten(error: &dyn std::fmt::Display) -> RunError {
    RunError::new(
        RunErrorCode::StoreError,
        format!("an input of the run cannot be serialized: {error}"),
    )
}
