//! `PostgresStore`: the implementation of `Store` and `Claims`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use pirn_store::command_order::Extent;
use pirn_store::{
    Assignment, Claims, Commit, ContentHash, Pending, Precondition, Record, Removed, Run, RunFilter, RunPlace, Session,
    Snapshot, Store, StoreError, StoreFigures, StoreMeter, Timer, advertised_in, process_label,
};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::claims::{ClaimMaintainer, LocalClaims};
use crate::commit::PendingCommit;
use crate::connection::connect::{ConnectError, Server};
use crate::queue::{Job, Queue};
use crate::{executor, names, read, thread};

/// Options of a [`PostgresStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Duration of a claim without a heartbeat (default 30 s). After it, another process takes over the runs of a process that has
    /// died or hangs. Whole seconds, at least 1.
    pub claim: Duration,
    /// Label of this process in its claims, for error messages (default: its process id).
    pub name: Option<String>,
    /// Base URL at which the service of this process is reachable for the services of other processes, such as `http://svc-a:7474`
    /// (default: none). Services forward requests about a run to the service of its owner.
    pub advertise: Option<String>,
    /// Retry time for an unreachable server (default 60 s). When it is over, the runs in this process end with `STORE_ERROR`;
    /// their stored state stays resumable.
    pub patience: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            claim: Duration::from_secs(30),
            name: None,
            advertise: None,
            patience: Duration::from_mins(1),
        }
    }
}

impl PostgresOptions {
    /// Sets the duration of a claim without a heartbeat.
    #[must_use]
    pub fn claim(mut self, lasts: Duration) -> Self {
        self.claim = lasts;
        self
    }

    /// Sets the label of this process.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the base URL of the service of this process. A URL with spaces is not found by other processes.
    #[must_use]
    pub fn advertise(mut self, url: impl Into<String>) -> Self {
        self.advertise = Some(url.into());
        self
    }

    /// Sets the time for which an unreachable server is retried.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// Store in a database that several processes share. Dropping it waits for all pending commands.
pub struct PostgresStore {
    queue: Option<Queue>,
    held: Arc<LocalClaims>,
    location: Arc<str>,
    meter: Arc<StoreMeter>,
    assignments: Arc<Mutex<UnboundedReceiver<Assignment>>>,
    thread: Option<JoinHandle<()>>,
}

impl PostgresStore {
    /// Connects to a database that [`setup`](crate::setup) has prepared. Blocks until the server has answered.
    ///
    /// # Errors
    /// The server does not answer, or its schema is missing or of another version.
    pub fn connect(url: &str, options: PostgresOptions) -> Result<Self, ConnectError> {
        let server = Server::parse(url)?;
        let location = Arc::clone(&server.name);
        let failed = |why: String| ConnectError::Refused {
            server: location.to_string(),
            why,
        };
        // Also proves that the server answers and has the right schemas, before the store is returned.
        let writer = thread::block_on(async {
            let on = server.open(None).await?;
            server.one::<String>(&on, "SELECT gen_random_uuid()::text").await
        })
        .map_err(failed)??;
        let name = process_label(options.name, options.advertise.as_deref());
        // Makes the name unique among processes.
        let worker = format!("{name} {}", &writer[..8]);
        // A claim has whole seconds, and one of 0 would expire at once.
        let seconds = i32::try_from(options.claim.as_secs().max(1)).unwrap_or(i32::MAX);
        let held = Arc::new(LocalClaims::new(writer, worker, seconds));
        let (jobs, given) = unbounded_channel();
        let (assign, assignments) = unbounded_channel();
        let meter = Arc::<StoreMeter>::default();
        let carried = executor::execute(server.clone(), options.patience, Arc::clone(&meter), given);
        let keeper = ClaimMaintainer {
            server,
            held: Arc::clone(&held),
            assignments: assign,
            connection: None,
            asked: BTreeSet::new(),
            // No claim exists yet, so the first heartbeat is due after an interval.
            last_heartbeat: Instant::now(),
        };
        let thread = thread::start(async move {
            // The commands end when the last sender is dropped. That cancels the keeper, which never ends.
            tokio::select! {
                () = carried => {}
                () = keeper.live() => {}
            }
        })
        .map_err(failed)?;
        Ok(Self {
            queue: Some(Queue {
                jobs,
                command_order: Arc::default(),
                name: Arc::clone(&location),
            }),
            held,
            location,
            meter,
            assignments: Arc::new(Mutex::new(assignments)),
            thread: Some(thread),
        })
    }

    /// Returns the unique name of this process in its claims.
    pub fn worker(&self) -> &str {
        &self.held.worker
    }

    fn queue(&self) -> Result<&Queue, StoreError> {
        self.queue.as_ref().ok_or_else(|| StoreError::Stopped {
            file: Arc::clone(&self.location),
            why: "the store was closed".to_owned(),
        })
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // First, so that no released run is claimed again by this process.
        self.held.carry(0);
        // Released now, so that other processes need not wait until the claims expire.
        for run in self.held.runs() {
            Claims::release(self, &run, 0);
        }
        // The last sender: the thread ends when all commands are done.
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is not propagated, because a second panic during unwinding aborts the process.
            drop(thread.join());
        }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore")
            .field("location", &self.location)
            .field("worker", &self.held.worker)
            .finish_non_exhaustive()
    }
}

/// Enqueues a query; its parameters are moved to the store's thread.
macro_rules! ask {
    ($store:expr, $extent:expr, |$on:ident| $asking:expr) => {
        ask!($store, Job::Ask, $extent, |$on| $asking)
    };
    ($store:expr, $job:path, $extent:expr, |$on:ident| $asking:expr) => {
        match $store.queue() {
            Ok(queue) => queue.ask($job, $extent, move |$on| $asking),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    };
}

/// Enqueues a query that changes nothing.
macro_rules! read {
    ($store:expr, $extent:expr, |$on:ident| $asking:expr) => {
        ask!($store, Job::Read, $extent, |$on| $asking)
    };
}

/// Returns a lane that no run uses: run ids contain no NUL.
fn lane_of_name(name: &str) -> String {
    format!("\0{name}")
}

impl Store for PostgresStore {
    fn location(&self) -> &Arc<str> {
        &self.location
    }

    fn claims(&self) -> Option<&dyn Claims> {
        Some(self)
    }

    fn figures(&self) -> Option<StoreFigures> {
        Some(self.meter.figures())
    }

    fn commit(&self, commit: Commit) -> Pending<u64> {
        let queue = commit.check().and_then(|()| self.queue());
        let queue = match queue {
            Ok(queue) => queue,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        // An earlier commit of the base may be pending: the fork waits for all lanes.
        let is_fork = matches!(&commit.follows, Precondition::Start(new) if new.base.is_some());
        let extent = if is_fork { Extent::All } else { Extent::Run(&commit.run) };
        let lane = queue.command_order.enter(extent);
        let (answer, answered) = oneshot::channel();
        let committing = PendingCommit::new(commit, Arc::clone(&self.held), Arc::clone(&self.location), lane, answer);
        queue.give(Job::Commit(Box::new(committing)), answered)
    }

    fn run(&self, id: &str) -> Pending<Option<Run>> {
        let of: Arc<str> = id.into();
        read!(self, Extent::Run(id), |on| {
            let id = Arc::clone(&of);
            Box::pin(async move { read::run(on, &id).await })
        })
    }

    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>> {
        let asked = Arc::new((filter, after));
        read!(self, Extent::Reading, |on| {
            let asked = Arc::clone(&asked);
            Box::pin(async move { read::runs(on, &asked.0, asked.1.as_ref(), limit).await })
        })
    }

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        let of: Arc<str> = id.into();
        read!(self, Extent::Run(id), |on| {
            let id = Arc::clone(&of);
            Box::pin(async move { read::journal(on, &id, after, limit).await })
        })
    }

    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>> {
        let hashes: Arc<[ContentHash]> = hashes.into();
        read!(self, Extent::Reading, |on| {
            let hashes = Arc::clone(&hashes);
            Box::pin(async move { read::contents(on, &hashes).await })
        })
    }

    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>> {
        read!(self, Extent::Reading, |on| {
            Box::pin(async move { read::chain(on, last, limit).await })
        })
    }

    fn snapshot(&self, id: &str, at_most: u64) -> Pending<Option<Snapshot>> {
        let of: Arc<str> = id.into();
        read!(self, Extent::Run(id), |on| {
            let id = Arc::clone(&of);
            Box::pin(async move { read::snapshot(on, &id, at_most).await })
        })
    }

    fn timers(&self, until: u64, limit: usize) -> Pending<Vec<Timer>> {
        read!(self, Extent::Reading, |on| Box::pin(read::timers(on, until, limit)))
    }

    fn sessions(&self, after: Option<String>, limit: usize) -> Pending<Vec<Session>> {
        let after: Option<Arc<str>> = after.map(Into::into);
        read!(self, Extent::Reading, |on| {
            let after = after.clone();
            Box::pin(async move { read::sessions(on, after.as_deref(), limit).await })
        })
    }

    fn session(&self, id: &str) -> Pending<Option<Session>> {
        let id: Arc<str> = id.into();
        read!(self, Extent::Reading, |on| {
            let id = Arc::clone(&id);
            Box::pin(async move { read::session(on, &id).await })
        })
    }

    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        let named: Arc<(String, Option<String>)> = Arc::new((name.to_owned(), value));
        // A separate lane, so that writes of one name take effect in order.
        ask!(self, Extent::Run(&lane_of_name(name)), |on| {
            let named = Arc::clone(&named);
            Box::pin(async move { read::set_meta(on, &named.0, named.1.as_deref()).await })
        })
    }

    fn meta(&self, name: &str) -> Pending<Option<String>> {
        let name: Arc<str> = name.into();
        read!(self, Extent::Run(&lane_of_name(&name)), |on| {
            let name = Arc::clone(&name);
            Box::pin(async move { read::meta(on, &name).await })
        })
    }

    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed> {
        let ids: Arc<[String]> = ids.into();
        ask!(self, Extent::All, |on| {
            let ids = Arc::clone(&ids);
            Box::pin(async move { read::remove(on, &ids, dry_run).await })
        })
    }

    fn remove_session(&self, id: &str) -> Pending<bool> {
        let id: Arc<str> = id.into();
        ask!(self, Extent::All, |on| {
            let id = Arc::clone(&id);
            Box::pin(async move { read::remove_session(on, &id).await })
        })
    }
}

impl Claims for PostgresStore {
    fn claim(&self, run: &str) -> Pending<()> {
        let (of, held): (Arc<str>, _) = (run.into(), Arc::clone(&self.held));
        ask!(self, Extent::Run(run), |on| {
            let (run, held) = (Arc::clone(&of), Arc::clone(&held));
            Box::pin(async move { held.claim(on, &run).await })
        })
    }

    fn verify(&self, run: &str) -> Pending<()> {
        // The usual case, without a round trip before each effect.
        if self.held.is_surely_valid(run) {
            return Box::pin(std::future::ready(Ok(())));
        }
        let (of, held): (Arc<str>, _) = (run.into(), Arc::clone(&self.held));
        ask!(self, Extent::Run(run), |on| {
            let (run, held) = (Arc::clone(&of), Arc::clone(&held));
            Box::pin(async move { held.verify(on, &run).await })
        })
    }

    fn release(&self, run: &str, after_ms: u64) {
        let (of, held): (Arc<str>, _) = (run.into(), Arc::clone(&self.held));
        let released: Pending<()> = ask!(self, Extent::Run(run), |on| {
            let (run, held) = (Arc::clone(&of), Arc::clone(&held));
            Box::pin(async move { held.release(on, &run, after_ms).await })
        });
        // The command is executed although its future is dropped.
        drop(released);
    }

    fn carry(&self, at_most: usize) {
        self.held.carry(at_most);
    }

    fn assigned(&self) -> Pending<Assignment> {
        let (assignments, location) = (Arc::clone(&self.assignments), Arc::clone(&self.location));
        Box::pin(async move {
            // The lock makes several callers share one receiver.
            let assigned = assignments.lock().await.recv().await;
            assigned.ok_or_else(|| StoreError::Stopped {
                file: location,
                why: "the store was closed".to_owned(),
            })
        })
    }

    fn turn(&self, session: &str, run: &str) -> Pending<()> {
        let (answer, answered) = oneshot::channel();
        self.held.wait_turn(session, run, answer);
        self.answered(answered)
    }

    fn ended(&self, run: &str) -> Pending<()> {
        let (answer, answered) = oneshot::channel();
        self.held.wait_end(run, answer);
        self.answered(answered)
    }

    fn tell(&self, run: &str, request: String) -> Pending<Option<String>> {
        let asked: Arc<(String, String)> = Arc::new((run.to_owned(), request));
        let put: Pending<Option<i64>> = ask!(self, Extent::Run(run), |on| {
            let asked = Arc::clone(&asked);
            Box::pin(async move { LocalClaims::ask(on, &asked.0, &asked.1).await })
        });
        let (held, location) = (Arc::clone(&self.held), Arc::clone(&self.location));
        Box::pin(async move {
            // Stored first, so that the owner's answer cannot arrive before the request has a number.
            let Some(request) = put.await? else { return Ok(None) };
            let (answer, answered) = oneshot::channel();
            held.wait_told(request, answer);
            answered.await.unwrap_or_else(|_| {
                Err(StoreError::Stopped {
                    file: location,
                    why: "the store was closed".to_owned(),
                })
            })
        })
    }

    fn owner_address(&self, run: &str) -> Pending<Option<String>> {
        if self.held.claim_of(run).is_some() {
            return Box::pin(std::future::ready(Ok(None)));
        }
        let of: Arc<str> = run.into();
        let owner: Pending<Option<String>> = read!(self, Extent::Run(run), |on| {
            let run = Arc::clone(&of);
            Box::pin(async move { LocalClaims::owner(on, &run).await })
        });
        Box::pin(async move { Ok(owner.await?.as_deref().and_then(advertised_in).map(str::to_owned)) })
    }

    fn answer(&self, request: u64, answer: String) {
        let answer: Arc<str> = answer.into();
        // `Reading` waits for all earlier commands, and no later one waits for it.
        let answered: Pending<()> = ask!(self, Extent::Reading, |on| {
            let answer = Arc::clone(&answer);
            Box::pin(async move { LocalClaims::answer(on, request, &answer).await })
        });
        // The future is not needed: the requester polls for the answer.
        drop(answered);
    }

    fn settle(&self, name: &str, value: String, most: usize) -> Pending<String> {
        let named: Arc<(String, String)> = Arc::new((name.to_owned(), value));
        ask!(self, Extent::Run(&lane_of_name(name)), |on| {
            let named = Arc::clone(&named);
            Box::pin(async move { names::settle(on, &named.0, &named.1, most).await })
        })
    }

    fn unsettle(&self, name: &str, value: String) -> Pending<()> {
        let named: Arc<(String, String)> = Arc::new((name.to_owned(), value));
        ask!(self, Extent::Run(&lane_of_name(name)), |on| {
            let named = Arc::clone(&named);
            Box::pin(async move { names::unsettle(on, &named.0, &named.1).await })
        })
    }
}

impl PostgresStore {
    fn answered<T: Send + 'static>(&self, answered: oneshot::Receiver<Result<T, StoreError>>) -> Pending<T> {
        let location = Arc::clone(&self.location);
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| {
                Err(StoreError::Stopped {
                    file: location,
                    why: "the store was closed".to_owned(),
                })
            })
        })
    }
}
