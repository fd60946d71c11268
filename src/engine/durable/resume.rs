//! Resumption of runs from their stored records.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::engine::OnEnd;
use pirn_actors::events::{Deliver, Subscription};
use pirn_actors::journal::Graphs;
use pirn_actors::rebuilt::{Rebuilt, Resumed};
use pirn_core::definition::{Fault, SourceFile};
use pirn_core::error::RunError;
use pirn_core::event::EventType;
use pirn_core::run::{AnswerRefused, Begun, BegunRecord, Control, Diverged, Message, RunReport, ToSupervisor, Told};
use pirn_core::thread::{FiringId, Interaction};
use pirn_store::{Content, ContentHash, Run, RunStatus, Store, StoreError};
use serde_json::Value;

use super::super::{Answers, BlockingEvents, Engine, Events, RunHandle, blocking, stream};
use super::Durable;
use super::claim::Claim;
use super::doubts::{DoubtQuestion, give_up_calls, settle};
use super::journal::StoredRun;
use super::migrate::{Migration, check};
use super::parts::Conversations;
use super::results::with_result;
use super::sessions::with_conversation;

/// Number of journal records read per page.
const PAGE: usize = 1_000;

/// Reasons why a run cannot be resumed or inspected. Its stored state is unchanged.
#[derive(Debug)]
pub enum ResumeError {
    /// The engine has no store.
    NoStore,
    /// The store failed or refused the request.
    Store(StoreError),
    /// The run has ended.
    HasEnded {
        /// The run.
        run_id: String,
        /// The run's status.
        status: RunStatus,
    },
    /// This engine already owns the run.
    UnderWay {
        /// The run.
        run_id: String,
    },
    /// The run has fewer steps.
    NoSuchStep {
        /// The run.
        run_id: String,
        /// The requested step.
        step: u64,
        /// The last step of the run.
        last: u64,
    },
    /// The run's stored record cannot be read: it was written by another version.
    Unreadable {
        /// The run.
        run_id: String,
        /// The step; 0 is the record of the start.
        step: u64,
        /// The reason.
        why: String,
    },
    /// The run's workflows do not compile in this engine, for example because a function is missing.
    Definition {
        /// The run.
        run_id: String,
        /// The faults.
        faults: Vec<Fault>,
    },
    /// The run may call tools or profiles that this engine lacks and that were available when the run started. Its stored state is
    /// unchanged.
    Missing {
        /// The run.
        run_id: String,
        /// `tool NAME`, `profile ID`.
        names: Vec<String>,
    },
    /// A fork is to assign a variable that its workflows do not declare.
    NoSuchVariable {
        /// The run.
        run_id: String,
        /// The requested name.
        name: String,
        /// The most similar declared name.
        near: Option<String>,
    },
    /// The run's steps do not fit its workflows.
    Diverged {
        /// The run.
        run_id: String,
        /// The first step that does not fit.
        diverged: Diverged,
    },
    /// An effect is in doubt, a person must decide, and the engine has no function that asks one.
    Undecided(Box<DoubtQuestion>),
    /// The tool or function that reconciles an effect in doubt did not return its outcome.
    NotReconciled {
        /// The effect.
        effect_id: String,
        /// The tool or function.
        name: String,
        /// The reason.
        why: String,
    },
    /// An answer to one of the run's questions was refused.
    Answer(AnswerRefused),
    /// The run waits for its session, and an earlier run of that session has no owner. Resume the earlier run first.
    SessionBusy {
        /// The run.
        run_id: String,
        /// The session.
        session: String,
        /// The earlier run of the session.
        before: String,
    },
    /// The engine did not admit the run.
    Refused(RunError),
}

impl ResumeError {
    /// A stable code: the store's, the engine's, or one of `NO_STORE`, `RUN_HAS_ENDED`, `RUN_UNDER_WAY`, `NO_SUCH_STEP`,
    /// `RUN_UNREADABLE`, `INVALID_WORKFLOW`, `RESOURCE_MISSING`, `UNKNOWN_NAME`, `RUN_DIVERGED`, `EFFECT_IN_DOUBT`, `INTERACTION_CLOSED`, `INVALID_ANSWER`,
    /// `SESSION_BUSY`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoStore => "NO_STORE",
            Self::Store(error) => error.code(),
            Self::HasEnded { .. } => "RUN_HAS_ENDED",
            Self::UnderWay { .. } => "RUN_UNDER_WAY",
            Self::NoSuchStep { .. } => "NO_SUCH_STEP",
            Self::Unreadable { .. } => "RUN_UNREADABLE",
            Self::Definition { .. } => "INVALID_WORKFLOW",
            Self::Missing { .. } => "RESOURCE_MISSING",
            Self::NoSuchVariable { .. } => "UNKNOWN_NAME",
            Self::Diverged { .. } => "RUN_DIVERGED",
            Self::Undecided(_) | Self::NotReconciled { .. } => "EFFECT_IN_DOUBT",
            Self::Answer(refused) => refused.code(),
            Self::SessionBusy { .. } => "SESSION_BUSY",
            Self::Refused(error) => error.code.as_str(),
        }
    }
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStore => f.write_str("the engine has no store"),
            Self::Store(error) => error.fmt(f),
            Self::HasEnded { run_id, status } => write!(f, "run {run_id} has ended {}", status.as_str()),
            Self::UnderWay { run_id } => write!(f, "run {run_id} is under way"),
            Self::NoSuchStep { run_id, step, last } => write!(f, "run {run_id} has no step {step}; its last is {last}"),
            Self::Unreadable { run_id, step: 0, why } => write!(f, "run {run_id}, its beginning: {why}"),
            Self::Unreadable { run_id, step, why } => write!(f, "run {run_id}, step {step}: {why}"),
            Self::Definition { run_id, faults } => {
                write!(f, "the workflows of run {run_id} do not fit this engine")?;
                faults.iter().try_for_each(|fault| write!(f, "\n{fault}"))
            }
            Self::Missing { run_id, names } => write!(
                f,
                "run {run_id} is not resumed: it had what is missing here: {}",
                names.join(", ")
            ),
            Self::NoSuchVariable { run_id, name, near } => {
                write!(f, "the workflows of run {run_id} have no variable {name}")?;
                near.iter().try_for_each(|near| write!(f, "; did you mean {near}?"))
            }
            Self::Diverged { run_id, diverged } => write!(f, "run {run_id}: {diverged}"),
            Self::Undecided(question) => write!(
                f,
                "{} of node {} had begun when its process ended: whether it is done again is for a person to decide",
                question.effect_id, question.node_id
            ),
            Self::NotReconciled { effect_id, name, why } => {
                write!(f, "{name} did not say what came of {effect_id}: {why}")
            }
            Self::Answer(refused) => refused.fmt(f),
            Self::SessionBusy {
                run_id,
                session,
                before,
            } => write!(
                f,
                "run {run_id} waits for session {session}: run {before} goes on, or is cancelled, first"
            ),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResumeError {}

impl From<StoreError> for ResumeError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// All stored records of a run.
pub(crate) struct Stored {
    pub(crate) run: Run,
    /// The definition that the run currently uses.
    pub(crate) definition: Arc<str>,
    /// The definition with which the run started.
    first_definition: Arc<str>,
    pub(crate) begun: BegunRecord,
    pub(crate) told: Vec<Told>,
}

impl Stored {
    pub(crate) async fn read(durable: &Durable, run_id: &str) -> Result<Self, ResumeError> {
        Self::read_with(&*durable.store, &durable.conversations, run_id).await
    }

    /// Like [`Self::read`], without an engine: from a store and a cache of conversations.
    pub(super) async fn read_with(
        store: &dyn Store,
        conversations: &Conversations,
        run_id: &str,
    ) -> Result<Self, ResumeError> {
        let unreadable = |step: u64, why: String| ResumeError::Unreadable {
            run_id: run_id.to_owned(),
            step,
            why,
        };
        let run = store
            .run(run_id)
            .await?
            .ok_or_else(|| StoreError::NoSuchRun { run: run_id.to_owned() })?;
        let Some((_, named)) = run.contents.split_first() else {
            return Err(unreadable(0, "nothing says what it started from".to_owned()));
        };
        let mut hashes = vec![run.definition];
        hashes.extend_from_slice(&run.contents);
        let contents = store.contents(hashes);
        let mut asked = Some(store.journal(run_id, 0, PAGE));
        let contents = contents.await?;
        let [definition, start, chunks @ ..] = &contents[..] else {
            return Err(unreadable(0, "the store has fewer texts than it names".to_owned()));
        };
        let definition = Arc::clone(definition);
        let texts: BTreeMap<ContentHash, Arc<str>> = named.iter().copied().zip(chunks.iter().cloned()).collect();
        let begun: BegunRecord = serde_json::from_str(start).map_err(|error| unreadable(0, error.to_string()))?;
        let session = begun.session().map(|session| Arc::clone(&session.id));
        let mut told = Vec::with_capacity(run.steps as usize);
        while let Some(asking) = asked.take() {
            let page = asking.await?;
            if page.len() == PAGE {
                // The store reads the next page while this one is decoded.
                asked = Some(store.journal(run_id, (told.len() + PAGE) as u64, PAGE));
            }
            for record in page {
                let step = told.len() as u64 + 1;
                let read = with_result(&record.body, &texts)
                    .unwrap_or_else(|| serde_json::from_str(&record.body).map_err(|error| error.to_string()));
                let mut read = read.map_err(|why| unreadable(step, why))?;
                let joined = with_conversation(&mut read, session.as_ref(), store, conversations).await;
                joined.map_err(|why| unreadable(step, why))?;
                told.push(read);
            }
        }
        let mut stored = Self {
            run,
            definition: Arc::clone(&definition),
            first_definition: definition,
            begun,
            told,
        };
        stored.definition = stored.definition_at(stored.told.len());
        Ok(stored)
    }

    /// Returns the definition in use after a step. A migration among the steps that a fork shares with its base run applies to the
    /// base run only.
    pub(super) fn definition_at(&self, step: usize) -> Arc<str> {
        let shared = self.run.base.as_ref().map_or(0, |base| base.step as usize);
        let own = self.told.iter().take(step).skip(shared);
        let moved = own.rev().find_map(|told| match &told.message {
            Message::Supervisor(ToSupervisor::Migrated(definition)) => Some(definition),
            _ => None,
        });
        Arc::clone(moved.unwrap_or(&self.first_definition))
    }

    fn definition_hash(&self) -> ContentHash {
        if Arc::ptr_eq(&self.definition, &self.first_definition) {
            return self.run.definition;
        }
        Content::new(&*self.definition).hash()
    }

    /// Returns an error if the run has ended.
    pub(super) fn live(self) -> Result<Self, ResumeError> {
        if self.run.status.is_final() {
            return Err(ResumeError::HasEnded {
                run_id: self.run.id,
                status: self.run.status,
            });
        }
        Ok(self)
    }

    pub(super) fn begun(&self, graphs: &Graphs) -> Result<Begun, ResumeError> {
        let mut record = self.begun.clone();
        if self.run.session.is_none() {
            record = record.aside();
        }
        let graph = graphs.get(&*record.workflow_id).cloned();
        let graph = graph.ok_or_else(|| ResumeError::Unreadable {
            run_id: self.run.id.clone(),
            step: 0,
            why: format!("its definition has no workflow {}", record.workflow_id),
        })?;
        Ok(record.named(&self.run.id).begun(graph))
    }

    /// Rebuilds the run as it was after these inputs.
    pub(crate) fn rebuild(&self, engine: &Engine, durable: &Durable, told: Vec<Told>) -> Result<Rebuilt, ResumeError> {
        let graphs = durable.graphs(self.definition_hash(), &self.definition, engine);
        let graphs = graphs.map_err(|faults| ResumeError::Definition {
            run_id: self.run.id.clone(),
            faults,
        })?;
        let begun = self.begun(&graphs)?;
        engine
            .shared()
            .replay(begun, told, graphs)
            .map_err(|diverged| ResumeError::Diverged {
                run_id: self.run.id.clone(),
                diverged,
            })
    }
}

impl Durable {
    /// Returns the workflows of a definition as this engine compiles them. If they equal the engine's current workflows, those are
    /// returned.
    fn graphs(&self, hash: ContentHash, text: &str, engine: &Engine) -> Result<Graphs, Vec<Fault>> {
        let own = engine.shared().all_graphs();
        if self.definitions.is(&own, hash, text) {
            return Ok(own);
        }
        self.compiled
            .get_or_compile(hash, || engine.graphs_alone("the run's definition", text))
    }
}

/// Builder that resumes a run: `engine.resume("run-1").start().await?`.
#[must_use = "nothing goes on before it is started"]
pub struct ResumeBuilder {
    pub(super) engine: Engine,
    pub(super) run_id: String,
    subscriptions: Vec<Subscription>,
    answers: Option<Answers>,
    how: How,
}

/// Kind of resumption, which determines the run's first inputs.
#[derive(Default)]
enum How {
    /// After a crash: the first inputs are the answers about the effects in doubt.
    #[default]
    AfterCrash,
    /// A fork: these are its first inputs. Its open effects have never started, so none is in doubt.
    Fork(Vec<Message>, Option<Claim>),
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
            how: How::default(),
        }
    }

    pub(super) fn of_fork(engine: Engine, run_id: String, told: Vec<Message>, claim: Option<Claim>) -> Self {
        Self {
            how: How::Fork(told, claim),
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
        let (deliver, events) = stream(capacity);
        self.subscribe(sequence, types, deliver);
        events
    }

    /// Like [`Self::events_after`], for a thread that blocks.
    pub fn blocking_events_after(&mut self, sequence: u64, types: &[EventType], capacity: usize) -> BlockingEvents {
        let (deliver, events) = blocking(capacity, self.engine.tag());
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
        self.answers = Some(Answers::new(give, refused));
        self
    }

    /// Compares the run with its definition merged with these files: an item of the files replaces the one with its id.
    ///
    /// # Errors
    /// Fails if there is no such run, it has ended or this engine owns it, or if the files have faults.
    pub async fn check_migration(&self, files: &[SourceFile]) -> Result<Migration, ResumeError> {
        Ok(check(&self.engine, &self.run_id, files).await?.0)
    }

    /// Like [`Self::check_migration`]; if the run fits, it uses the merged definition from its next step.
    ///
    /// # Errors
    /// As [`Self::check_migration`].
    pub async fn migrate(self, files: &[SourceFile]) -> Result<Migration, ResumeError> {
        let (migration, definition) = check(&self.engine, &self.run_id, files).await?;
        if migration.fits {
            self.tell(|_, _| Ok(Message::Supervisor(ToSupervisor::Migrated(definition))))
                .await?;
        }
        Ok(migration)
    }

    /// Rebuilds the run and resumes it.
    pub async fn start(self) -> Result<RunHandle, ResumeError> {
        let heard = Hearers {
            subscriptions: self.subscriptions,
            answers: self.answers,
            on_end: None,
        };
        resume(self.engine, self.run_id, heard, self.how).await
    }

    /// Rebuilds the run and cancels it: its open effects are not performed.
    pub async fn cancel(self, reason: impl Into<String>) -> Result<RunHandle, ResumeError> {
        let how = How::Cancel(reason.into());
        let heard = Hearers {
            subscriptions: self.subscriptions,
            ..Hearers::default()
        };
        resume(self.engine, self.run_id, heard, how).await
    }
}

/// Subscribers of a resumed run.
#[derive(Default)]
struct Hearers {
    subscriptions: Vec<Subscription>,
    answers: Option<Answers>,
    on_end: Option<OnEnd>,
}

/// Rebuilds and resumes a run. The future is boxed because the function is recursive: it also resumes the runs that this run's
/// triggers started.
fn resume(
    engine: Engine,
    run_id: String,
    heard: Hearers,
    how: How,
) -> BoxFuture<'static, Result<RunHandle, ResumeError>> {
    async move {
        let durable = engine.durable()?;
        let shared = engine.shared();
        // An input that arrives now is either committed before the journal is read, or sent to the resumed run.
        let _lock = durable.run_locks.enter(&run_id).await;
        if shared.carries(&run_id) {
            return Err(ResumeError::UnderWay { run_id });
        }
        let mut how = how;
        let claim = match &mut how {
            // The commit that created the fork also claimed it.
            How::Fork(_, claim @ Some(_)) => claim.take(),
            How::Fork(_, None) | How::AfterCrash | How::Cancel(_) => Claim::make(&durable.store, &run_id).await?,
        };
        let mut stored = Stored::read(&durable, &run_id).await?.live()?;
        let told = std::mem::take(&mut stored.told);
        let mut rebuilt = stored.rebuild(&engine, &durable, told)?;
        let is_cancelled = matches!(how, How::Cancel(_));
        if !is_cancelled {
            let missing = durable.missing(&rebuilt.graphs, &stored.begun.workflow_id);
            let known = stored.begun.missing();
            let names: Vec<String> = missing.iter().filter(|name| !known.contains(name)).cloned().collect();
            if !names.is_empty() {
                return Err(ResumeError::Missing { run_id, names });
            }
        }
        let mut told = match how {
            How::AfterCrash => settle(shared, &mut rebuilt, durable.ask.as_ref()).await?,
            How::Fork(told, _) => told,
            How::Cancel(reason) => {
                rebuilt.open.threads.clear();
                rebuilt.open.begins.clear();
                let calls = give_up_calls(&mut rebuilt, &reason);
                let cancel = Message::Supervisor(ToSupervisor::Control(Control::Cancel(reason)));
                std::iter::once(cancel).chain(calls).collect()
            }
        };
        let (ended, elsewhere) = detached(&engine, &durable, &mut rebuilt).await?;
        told.extend(ended);
        let (questions, events) = (rebuilt.machine.interactions(), rebuilt.open.events);
        let has_left = in_turn(&engine, &durable, &rebuilt, is_cancelled).await?;
        if let Some(claim) = &claim {
            claim.goes_on();
        }
        let journal = StoredRun::after((&durable, claim), &stored.run, &rebuilt, has_left);
        let resumed = Resumed {
            rebuilt,
            told,
            journal: Box::new(journal),
        };
        let Hearers {
            mut subscriptions,
            answers,
            on_end,
        } = heard;
        subscriptions.extend(answers.iter().map(|answers| answers.subscription(events)));
        let (started, admitted) = shared
            .admit_resumed(resumed, subscriptions, on_end)
            .map_err(ResumeError::Refused)?;
        if let Some(answers) = answers {
            answers.of_run(&started);
            for question in questions {
                answers.asked(question);
            }
        }
        admitted.go().map_err(ResumeError::Refused)?;
        let run = engine.handle(started);
        for (firing, child) in elsewhere {
            tell_end(&engine, run.run_id(), firing, child)?;
        }
        Ok(run)
    }
    .boxed()
}

/// Notifies a run when a run that it started, and that is executed elsewhere, has ended.
fn tell_end(engine: &Engine, parent: &str, firing: FiringId, child: String) -> Result<(), ResumeError> {
    let (of, parent) = (engine.clone(), Arc::<str>::from(parent));
    let waiting = async move {
        let durable = of.durable()?;
        if let Some(claims) = durable.store.claims() {
            claims.ended(&child).await?;
        }
        if let Some(ended) = end_of(&of, &durable, firing, &child).await? {
            of.shared().tell(&parent, ended);
        }
        Ok::<(), ResumeError>(())
    };
    let waiting = engine.shared().work(move |_| {
        waiting
            .map(|told| {
                if let Err(error) = told {
                    tracing::error!(%error, "a run is not told of the end of one that it has started");
                }
            })
            .boxed()
    });
    waiting.map(drop).map_err(ResumeError::Refused)
}

/// Returns the message about the end of a run that another has started, or `None` if it has no report yet.
async fn end_of(
    engine: &Engine,
    durable: &Durable,
    firing: FiringId,
    child: &str,
) -> Result<Option<Message>, ResumeError> {
    let mut stored = Stored::read(durable, child).await?;
    let told = std::mem::take(&mut stored.told);
    let child = stored.rebuild(engine, durable, told)?;
    let report = child.open.report.as_ref();
    Ok(report.map(|report| detached_ended(firing, report)))
}

/// Returns whether the run's session already contains this run's result. Fails if an earlier run of the session has no owner.
async fn in_turn(
    engine: &Engine,
    durable: &Durable,
    rebuilt: &Rebuilt,
    is_cancelled: bool,
) -> Result<bool, ResumeError> {
    let Some(session) = rebuilt.machine.session().filter(|session| !session.is_aside) else {
        return Ok(false);
    };
    let run_id = rebuilt.machine.run_id();
    let before = engine.shared().session_run_before(session, run_id);
    let before = before.await.map_err(ResumeError::Refused)?;
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
            Ok(kept.is_some_and(|kept| kept.version >= left.state.version))
        }
        Some(None) | None => Ok(false),
    }
}

/// Resumes the runs which this run's triggers started and whose end it has not received. Returns the messages about those that have
/// ended, and the ids of those that are executed independently.
async fn detached(
    engine: &Engine,
    durable: &Durable,
    rebuilt: &mut Rebuilt,
) -> Result<(Vec<Message>, Vec<(FiringId, String)>), ResumeError> {
    let run_id = Arc::clone(rebuilt.machine.run_id());
    let (mut ended, mut elsewhere) = (Vec::new(), Vec::new());
    let is_shared = durable.store.claims().is_some();
    let firings: Vec<FiringId> = rebuilt.open.runs.keys().copied().collect();
    for firing in firings {
        let id = format!("{run_id}-f{firing}");
        // The child run was never started: the open firing starts it as usual.
        let Some(child) = durable.store.run(&id).await? else {
            continue;
        };
        rebuilt.open.runs.remove(&firing);
        if child.status.is_final() {
            ended.extend(end_of(engine, durable, firing, &id).await?);
            continue;
        }
        let (shared, parent) = (Arc::clone(engine.shared()), Arc::clone(&run_id));
        let on_end: OnEnd = Box::new(move |report| {
            shared.tell(&parent, detached_ended(firing, report));
        });
        let heard = Hearers {
            on_end: Some(on_end),
            ..Hearers::default()
        };
        match resume(engine.clone(), id.clone(), heard, How::AfterCrash).await {
            Ok(_) => {}
            // The child run was resumed independently, by another process or this one.
            Err(ResumeError::Store(StoreError::RunHeld { .. }) | ResumeError::UnderWay { .. }) if is_shared => {
                elsewhere.push((firing, id));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((ended, elsewhere))
}

fn detached_ended(firing: FiringId, report: &RunReport) -> Message {
    let output = match &report.error {
        None => Ok(report.output.clone()),
        Some(error) => Err(error.clone()),
    };
    Message::Supervisor(ToSupervisor::DetachedEnded { firing, output })
}
