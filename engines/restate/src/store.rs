//! `RestateStore`: the implementation of `Store` and `Claims`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pirn_store::command_order::{CommandOrder, Extent};
use pirn_store::{
    Assignment, Claims, Commit, ContentHash, Pending, Precondition, Record, Removed, Run, RunFilter, RunPlace,
    RunStatus, Session, Snapshot, Store, StoreError, StoreFigures, StoreMeter, Timer, advertised_in, process_label,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Mutex, Notify, oneshot};
use tokio_util::task::TaskTracker;

use crate::client::Server;
use crate::connect::{ConnectError, RestateOptions};
use crate::local_claims::{ClaimedState, LocalClaims, STEP_BYTES, random_name};
use crate::membership::Membership;
use crate::objects::{META, Target};
use crate::open_calls::{CommitAttempt, OpenCalls};
use crate::start_names::{self, StartNames};
use crate::wire::{
    CallKey, CommitCall, CommitReply, NameCall, NameReply, NotClaimed, Refusal, ReleaseCall, RemovedReply, SettleCall,
    TellCall, Ticket, UnsettleCall, WaitTurnCall,
};
use crate::{endpoint, objects, read, remove};

/// Size above which a content is sent in a call of its own before the commit, so that the commit stays small.
const LARGE_TEXT: usize = 1 << 20;
/// Size below which a content is sent with every commit: a check whether it is stored would cost as much.
const SMALL_TEXT: usize = 256;
/// Timeout of the closing call. Without it the server detects the end of this process by missing heartbeats.
const CLOSING: Duration = Duration::from_secs(5);

/// Store on a Restate server that several processes share. Dropping it waits for all pending commands.
pub struct RestateStore {
    inner: Arc<Inner>,
    assignments: Arc<Mutex<UnboundedReceiver<Assignment>>>,
    handle: Handle,
    /// Pending commands.
    commands: TaskTracker,
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    server: Server,
    held: Arc<LocalClaims>,
    membership: Membership,
    command_order: CommandOrder,
    start_names: StartNames,
    meter: StoreMeter,
    /// Prefix of the idempotency keys of this store.
    writer: String,
    number: AtomicU64,
}

impl RestateStore {
    /// Connects to a server by the URL of its ingress. If the options contain an endpoint, starts it and registers it first. Blocks
    /// until the server has answered.
    ///
    /// # Errors
    /// The server does not answer, no worker has registered the objects, or one of another version has.
    pub fn connect(url: &str, options: RestateOptions) -> Result<Self, ConnectError> {
        let server = Server::parse(url, &options)?;
        let failed = |why: String| ConnectError::Refused {
            server: url.to_owned(),
            why,
        };
        let (ready, is_ready) = oneshot::channel();
        let end = Arc::new(Notify::new());
        let (ended, to) = (Arc::clone(&end), server.clone());
        let offered = options.endpoint.clone();
        let held = Arc::new(LocalClaims::default());
        let (assign, assignments) = unbounded_channel();
        let open = Arc::new(OpenCalls::new(Arc::clone(&held), assign));
        let own = Arc::clone(&open);
        let live = async move {
            let tasks = TaskTracker::new();
            let offering = async {
                if let Some(endpoint) = &offered {
                    let objects = objects::endpoint(&endpoint.identity_keys, own)?;
                    let listener = endpoint::listen(endpoint.listen).map_err(|error| ConnectError::Listen {
                        address: endpoint.listen,
                        why: error.to_string(),
                    })?;
                    // Before the registration, in which the server calls the endpoint to read its services.
                    tasks.spawn(endpoint::serve(listener, objects, tasks.clone()));
                    to.register(&endpoint.shown()).await?;
                }
                to.check().await
            };
            let offered = offering.await;
            // After a failed start the thread ends at once, because no store exists that could end it.
            let is_offered = offered.is_ok();
            if ready.send(offered.map(|()| Handle::current())).is_ok() && is_offered {
                // Keeps the runtime alive: all tasks of the store run on this thread.
                ended.notified().await;
            }
        };
        let thread = start(live).map_err(failed)?;
        // Blocks on a separate thread: the caller may be on a tokio worker, where blocking panics.
        let begun = std::thread::scope(|scope| scope.spawn(|| is_ready.blocking_recv()).join());
        let begun = begun.map_err(|_| failed("its thread panicked".to_owned()))?;
        let handle = begun.map_err(|_| failed("its thread ended".to_owned()))??;
        let membership = Membership {
            server: server.clone(),
            held: Arc::clone(&held),
            // A shorter claim would expire during an ordinary call.
            claim: options.claim.max(Duration::from_secs(1)),
            name: process_label(options.name, options.advertise.as_deref()),
            process: Mutex::default(),
            is_known: Notify::new(),
            open,
        };
        let inner = Arc::new(Inner {
            server,
            held,
            membership,
            command_order: CommandOrder::default(),
            start_names: StartNames::default(),
            meter: StoreMeter::default(),
            writer: random_name(),
            number: AtomicU64::new(0),
        });
        let kept = Arc::clone(&inner);
        // The task ends with the runtime of the thread.
        drop(handle.spawn(async move { kept.membership.live().await }));
        Ok(Self {
            inner,
            assignments: Arc::new(Mutex::new(assignments)),
            handle,
            commands: TaskTracker::new(),
            end,
            thread: Some(thread),
        })
    }

    /// Executes a command in the order of its lane, even if its future is dropped.
    fn give<T, C, F>(&self, extent: Extent<'_>, command: C) -> Pending<T>
    where
        T: Send + 'static,
        C: FnOnce(Arc<Inner>) -> F + Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        // Entered before the task starts, because the order of calls is the order of commands.
        let mut lane = self.inner.command_order.enter(extent);
        let inner = Arc::clone(&self.inner);
        self.spawn(async move {
            lane.turn().await;
            let answer = command(inner).await;
            // Before the answer is returned, so that the caller finds the next command of the run not blocked.
            drop(lane);
            answer
        })
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Pending<T> {
        // A task of the store's thread, so that the command is executed even if the caller drops the future.
        let given = self.commands.spawn_on(work, &self.handle);
        let file = Arc::clone(&self.inner.server.name);
        Box::pin(async move {
            given.await.unwrap_or_else(|_| {
                Err(StoreError::Stopped {
                    file,
                    why: "the store was closed".to_owned(),
                })
            })
        })
    }

    /// Executes a call that is aborted if its future is dropped.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Pending<T> {
        let (end, file) = (Arc::clone(&self.end), Arc::clone(&self.inner.server.name));
        let handle = self.handle.clone();
        Box::pin(async move {
            let waiting = tokio_util::task::AbortOnDropHandle::new(handle.spawn(work));
            drop(end);
            waiting.await.unwrap_or_else(|_| {
                Err(StoreError::Stopped {
                    file,
                    why: "the store was closed".to_owned(),
                })
            })
        })
    }
}

/// Starts a thread with a runtime for this store.
fn start(work: impl Future<Output = ()> + Send + 'static) -> Result<JoinHandle<()>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let thread = std::thread::Builder::new().name("pirn-restate".to_owned());
    let started = thread.spawn(move || runtime.block_on(work));
    started.map_err(|error| error.to_string())
}

impl Drop for RestateStore {
    fn drop(&mut self) {
        // First, so that the queue assigns no more runs.
        self.inner.held.carry(0);
        self.inner.membership.open.registered(None);
        // Released now, so that other processes need not wait until the process expires.
        for run in self.inner.held.runs() {
            Claims::release(self, &run, 0);
        }
        // A tracker must be closed before `wait` can end.
        self.commands.close();
        let (commands, end, inner) = (self.commands.clone(), Arc::clone(&self.end), Arc::clone(&self.inner));
        // The last task on the thread: it ends the runtime.
        drop(self.handle.spawn(async move {
            commands.wait().await;
            // Taken, so that no later command uses the closed process.
            let process = inner.membership.process.lock().await.take();
            if let Some(process) = process {
                let closing = Target::process(&process, "close");
                let closed = tokio::time::timeout(CLOSING, inner.server.call::<()>(&closing, None, &()));
                if !matches!(closed.await, Ok(Ok(()))) {
                    tracing::debug!(
                        "closing the process object failed: the server will detect that this process is gone"
                    );
                }
            }
            end.notify_one();
        }));
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is not propagated, because a second panic during unwinding aborts the process.
            drop(thread.join());
        }
    }
}

impl std::fmt::Debug for RestateStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestateStore")
            .field("location", &self.inner.server.name)
            .field("name", &self.inner.membership.name)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn call_key(&self) -> CallKey {
        CallKey {
            writer: self.writer.clone(),
            number: self.number.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn key(&self) -> String {
        self.call_key().to_string()
    }

    async fn commit(&self, commit: Commit) -> Result<u64, StoreError> {
        let run = commit.run.clone();
        // The state received with the claim is outdated after this commit.
        self.held.forget_claimed(&run);
        let is_carried = matches!(&commit.follows, Precondition::Start(new) if new.is_carried);
        let process = if is_carried {
            self.membership.process().await?
        } else {
            "".into()
        };
        let steps = match self.send(&commit, &process).await {
            Err(StoreError::NoSuchContent { hash }) if commit.contents.iter().any(|given| given.hash() == hash) => {
                // The content was removed after it was cached as stored: retry with all contents.
                self.held.forget_kept();
                self.send(&commit, &process).await
            }
            sent => sent,
        };
        self.meter.durable(steps.is_ok().into());
        if steps.is_ok()
            && commit.status.is_some_and(RunStatus::is_final)
            && let Some(over) = self.held.forget(&run)
        {
            // The run object has dropped the claim with the commit. The process object learns of it in a batch.
            self.held.left(&run, over.ticket.epoch);
        }
        match &steps {
            Err(StoreError::RunLost { .. }) => drop(self.held.lose(&run)),
            Err(StoreError::TooLarge { what }) => {
                tracing::error!(
                    run_id = run,
                    what,
                    "the run cannot continue: `pirn runs resume` retries it"
                );
                self.held.is_stuck(&run);
            }
            Ok(_) | Err(_) => {}
        }
        steps.map_err(|error| match error {
            StoreError::Failed { file, run: None, why } => StoreError::Failed {
                file,
                run: Some(run),
                why,
            },
            error => error,
        })
    }

    async fn send(&self, commit: &Commit, process: &str) -> Result<u64, StoreError> {
        for content in commit
            .contents
            .iter()
            .filter(|content| content.text().len() > LARGE_TEXT)
        {
            if self.held.is_kept(&content.hash()) {
                continue;
            }
            let call = NameCall {
                text: Some(content.text().to_string()),
                follows: content.follows().map(|hash| hash.to_string()),
                // The commit below names the content. If it fails, the content stays without a name until a later commit names it.
                by: None,
            };
            let target = Target::content(&content.hash().to_string(), "name");
            let named: NameReply = self.server.call(&target, Some(&self.key()), &call).await?;
            // Missing means that its predecessor is not stored, and the commit will report that.
            if named != NameReply::Missing {
                self.held.kept([content.hash()]);
            }
        }
        let key = self.call_key();
        let mut call = CommitCall::of(commit, key.clone(), process, |hash| self.held.is_kept(hash));
        // The first commit creates the claim.
        if call.start.is_none() {
            call.ticket = self.held.ticket(&commit.run);
        }
        let contents = start_names::of_start(commit);
        if let Some(start) = call.start.as_mut().filter(|_| !contents.is_empty()) {
            let namer = start_names::namer(&commit.run, &key);
            let text = |hash: &ContentHash| {
                let content = commit.contents.iter().find(|content| content.hash() == *hash);
                let content = content.filter(|_| !self.held.is_kept(hash));
                content.map(|content| content.text().to_string())
            };
            self.start_names.name(&self.server, &contents, &namer, text).await?;
            start.namer = Some(namer);
        }
        // For a small run, sending its whole state is cheaper than a round trip for each key.
        let is_little = call.start.is_some() || self.held.is_little(&commit.run);
        let handler = if is_little { "commit_little" } else { "commit" };
        let target = Target::run(&commit.run, handler);
        // With a claim the head remembers the last commit, so the server need not store an idempotency key.
        let remembered = call.ticket.is_none().then(|| key.to_string());
        let reply = match self.through_open_call(&call, commit).await? {
            Some(reply) => reply,
            None => self.server.call(&target, remembered.as_deref(), &call).await?,
        };
        match reply {
            CommitReply::Refused(refusal) => Err(refusal.error(&commit.run)),
            CommitReply::Done { steps, epoch } => {
                if let Some(epoch) = epoch {
                    let process = process.to_owned();
                    // Before the answer is returned: the next commit of the run needs the claim.
                    self.held
                        .put(&commit.run, Ticket { process, epoch }, ClaimedState::Nothing);
                }
                self.held.grew(&commit.run, kept_bytes(commit));
                let given = commit.contents.iter();
                // Smaller ones are always sent, so remembering them would only fill the cache.
                let given = given.filter(|content| content.text().len() >= SMALL_TEXT);
                self.held.kept(given.map(pirn_store::Content::hash));
                Ok(steps)
            }
        }
    }

    /// Makes a commit through the run's open call. Returns `None` if it needs a separate call.
    async fn through_open_call(&self, call: &CommitCall, commit: &Commit) -> Result<Option<CommitReply>, StoreError> {
        let open = &self.membership.open;
        let texts = commit.contents.iter().map(|content| content.text().len());
        if call.start.is_some() || kept_bytes(commit) + texts.sum::<usize>() > LARGE_TEXT {
            // The separate call would wait until the open one ends.
            open.close(&commit.run);
            return Ok(None);
        }
        match open.commit(&commit.run, call).await {
            CommitAttempt::Done(reply) => return Ok(Some(reply)),
            CommitAttempt::Interrupted => {}
            CommitAttempt::NoCall => return Ok(None),
        }
        if let Some(Ticket { process, epoch }) = &call.ticket {
            // The open call would have recorded this at its end, but it may have been killed.
            let carries = Target::process(process, "carries");
            self.server.call::<()>(&carries, None, &(&commit.run, epoch)).await?;
        }
        Ok(None)
    }

    async fn claim(&self, run: String) -> Result<(), StoreError> {
        if self.held.ticket(&run).is_some() {
            return Ok(());
        }
        let process = self.membership.process().await?;
        match self.membership.claim(&process, &run).await? {
            Ok(given) => {
                self.held.has(&process, *given);
                Ok(())
            }
            Err(NotClaimed::Held(by)) => Err(StoreError::RunHeld { run, by }),
            Err(NotClaimed::NoSuchRun) => Err(Refusal::NoSuchRun(run.clone()).error(&run)),
            // An ended run is not written any more, so it needs no claim.
            Err(NotClaimed::Ended) => Ok(()),
        }
    }

    async fn release(&self, run: &str, after_ms: u64) -> Result<(), StoreError> {
        // The release would wait until the open call ends.
        self.membership.open.close(run);
        // Forgotten before the call: if that fails, the claim ends with the process.
        let Some(given) = self.held.forget(run) else {
            return Ok(());
        };
        let call = ReleaseCall {
            ticket: given.ticket,
            after_ms,
            is_offered: given.is_offered,
        };
        self.membership.release(run, &call).await
    }

    async fn run(&self, id: &str) -> Result<Option<Run>, StoreError> {
        if let Some((head, names)) = self.held.claimed(id, |kept| (kept.head.clone(), kept.names.clone())) {
            return read::told(&self.server, head, names).map(Some);
        }
        self.membership.open.read(id).await;
        read::run(&self.server, id).await
    }

    async fn journal(&self, id: &str, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let claimed = self.held.claimed(id, |kept| {
            let records = kept.records.iter().skip(usize::try_from(after).unwrap_or(usize::MAX));
            records.take(limit).cloned().map(Record::from).collect()
        });
        // The journal is read once, for the replay: its copy is dropped to free memory.
        self.held.forget_claimed(id);
        if let Some(records) = claimed {
            return Ok(records);
        }
        self.membership.open.read(id).await;
        read::journal(&self.server, id, after, limit).await
    }

    async fn contents(&self, hashes: &[ContentHash]) -> Result<Vec<Arc<str>>, StoreError> {
        let known: Vec<Option<Arc<str>>> = hashes.iter().map(|hash| self.held.text(hash)).collect();
        let unknown: Vec<ContentHash> = hashes
            .iter()
            .zip(&known)
            .filter(|(_, text)| text.is_none())
            .map(|(hash, _)| *hash)
            .collect();
        if unknown.is_empty() {
            return Ok(known.into_iter().flatten().collect());
        }
        let read = read::contents(&self.server, &unknown).await?;
        for (hash, content) in unknown.iter().zip(&read).filter(|(_, content)| !content.is_chained) {
            self.held.remember_text(*hash, Arc::clone(&content.text));
        }
        let mut read = read.into_iter().map(|content| content.text);
        Ok(known
            .into_iter()
            .filter_map(|text| text.or_else(|| read.next()))
            .collect())
    }

    async fn remove(&self, ids: &[String]) -> Result<Removed, StoreError> {
        // The removal may free contents that are cached.
        self.held.forget_texts();
        let mut removed = Removed::default();
        // One call for each run, because each run is a separate object.
        for id in ids {
            let target = Target::run(id, "remove");
            let gone: RemovedReply = self.server.call(&target, Some(&self.key()), &()).await?;
            removed.runs += gone.runs;
            removed.bytes += gone.bytes;
        }
        Ok(removed)
    }
}

/// Estimates the number of bytes that a commit adds to the state of its run.
fn kept_bytes(commit: &Commit) -> usize {
    let records = commit.records.iter().map(|record| record.body.len() + STEP_BYTES);
    let snapshot = commit.snapshot.as_ref().map_or(0, |snapshot| snapshot.body.len());
    records.sum::<usize>() + snapshot + (commit.names.len() + commit.timers.len()) * STEP_BYTES
}

/// Returns a lane that no run uses: run ids contain no NUL.
fn lane_of_meta(name: &str) -> String {
    format!("\0meta {name}")
}

impl Store for RestateStore {
    fn location(&self) -> &Arc<str> {
        &self.inner.server.name
    }

    fn claims(&self) -> Option<&dyn Claims> {
        Some(self)
    }

    fn figures(&self) -> Option<StoreFigures> {
        Some(self.inner.meter.figures())
    }

    fn commit(&self, commit: Commit) -> Pending<u64> {
        if let Err(error) = commit.check() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let run = commit.run.clone();
        // An earlier commit of the base may be pending: the fork waits for all lanes.
        let is_fork = matches!(&commit.follows, Precondition::Start(new) if new.base.is_some());
        let extent = if is_fork { Extent::All } else { Extent::Run(&run) };
        self.give(extent, |inner| async move { inner.commit(commit).await })
    }

    fn run(&self, id: &str) -> Pending<Option<Run>> {
        let of = id.to_owned();
        self.give(Extent::Run(id), |inner| async move { inner.run(&of).await })
    }

    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>> {
        self.give(Extent::Reading, move |inner| async move {
            inner.membership.open.read_all().await;
            read::runs(&inner.server, &filter, after.as_ref(), limit).await
        })
    }

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        let of = id.to_owned();
        self.give(Extent::Run(id), move |inner| async move {
            inner.journal(&of, after, limit).await
        })
    }

    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>> {
        self.give(Extent::Reading, |inner| async move { inner.contents(&hashes).await })
    }

    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>> {
        self.give(Extent::Reading, move |inner| async move {
            read::chain(&inner.server, last, limit).await
        })
    }

    fn snapshot(&self, id: &str, at_most: u64) -> Pending<Option<Snapshot>> {
        let of = id.to_owned();
        self.give(Extent::Run(id), move |inner| async move {
            inner.membership.open.read(&of).await;
            read::snapshot(&inner.server, &of, at_most).await
        })
    }

    fn timers(&self, until: u64, limit: usize) -> Pending<Vec<Timer>> {
        self.give(Extent::Reading, move |inner| async move {
            inner.membership.open.read_all().await;
            read::timers(&inner.server, until, limit).await
        })
    }

    fn sessions(&self, after: Option<String>, limit: usize) -> Pending<Vec<Session>> {
        self.give(Extent::Reading, move |inner| async move {
            read::sessions(&inner.server, after.as_deref(), limit).await
        })
    }

    fn session(&self, id: &str) -> Pending<Option<Session>> {
        let id = id.to_owned();
        self.give(Extent::Reading, |inner| async move {
            read::session(&inner.server, &id).await
        })
    }

    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        let target = Target::of(META, name, "put");
        self.give(Extent::Run(&lane_of_meta(name)), move |inner| async move {
            inner.server.call(&target, Some(&inner.key()), &value).await
        })
    }

    fn meta(&self, name: &str) -> Pending<Option<String>> {
        let of = name.to_owned();
        self.give(Extent::Run(&lane_of_meta(name)), |inner| async move {
            read::meta(&inner.server, &of).await
        })
    }

    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed> {
        if dry_run {
            // A dry run changes nothing, so later commands need not wait for it.
            return self.give(Extent::Reading, |inner| async move {
                remove::would_remove(&inner.server, &ids).await
            });
        }
        self.give(Extent::All, |inner| async move { inner.remove(&ids).await })
    }

    fn remove_session(&self, id: &str) -> Pending<bool> {
        let target = Target::session(id, "remove");
        self.give(Extent::All, |inner| async move {
            inner.held.forget_texts();
            inner.server.call(&target, Some(&inner.key()), &()).await
        })
    }
}

impl Claims for RestateStore {
    fn claim(&self, run: &str) -> Pending<()> {
        let of = run.to_owned();
        self.give(Extent::Run(run), |inner| async move { inner.claim(of).await })
    }

    fn verify(&self, run: &str) -> Pending<()> {
        if self.inner.held.is_surely_valid(run, self.inner.membership.claim) {
            return Box::pin(std::future::ready(Ok(())));
        }
        let of = run.to_owned();
        self.give(Extent::Run(run), |inner| async move {
            if !inner.held.is_lost(&of) && inner.membership.is_alive().await? {
                return Ok(());
            }
            // The engine stops the run on this error, after which nothing else reports the loss.
            inner.held.lose(&of);
            Err(StoreError::RunLost { run: of })
        })
    }

    fn release(&self, run: &str, after_ms: u64) {
        let of = run.to_owned();
        let released = self.give(Extent::Run(run), move |inner| async move {
            inner.release(&of, after_ms).await
        });
        // The command is executed although its future is dropped.
        drop(released);
    }

    fn carry(&self, at_most: usize) {
        self.inner.held.carry(at_most);
    }

    fn assigned(&self) -> Pending<Assignment> {
        let (assignments, file) = (Arc::clone(&self.assignments), Arc::clone(&self.inner.server.name));
        Box::pin(async move {
            let assigned = assignments.lock().await.recv().await;
            assigned.ok_or_else(|| StoreError::Stopped {
                file,
                why: "the store was closed".to_owned(),
            })
        })
    }

    fn turn(&self, session: &str, run: &str) -> Pending<()> {
        let inner = Arc::clone(&self.inner);
        let call = WaitTurnCall {
            session: session.to_owned(),
            run: run.to_owned(),
        };
        self.wait(async move { inner.server.wait("turn", &call).await })
    }

    fn ended(&self, run: &str) -> Pending<()> {
        let (inner, run) = (Arc::clone(&self.inner), run.to_owned());
        self.wait(async move { inner.server.wait("end", &run).await })
    }

    fn tell(&self, run: &str, request: String) -> Pending<Option<String>> {
        let inner = Arc::clone(&self.inner);
        let call = TellCall {
            run: run.to_owned(),
            body: request,
            every_ms: inner.membership.claim.as_millis() as u64,
        };
        // Not in a lane: the answer may take as long as the owner needs, and would block the run's commands.
        self.wait(async move { inner.server.wait("tell", &call).await })
    }

    fn owner_address(&self, run: &str) -> Pending<Option<String>> {
        if self.inner.held.ticket(run).is_some() {
            return Box::pin(std::future::ready(Ok(None)));
        }
        let target = Target::run(run, "carrier");
        self.give(Extent::Run(run), |inner| async move {
            let owner: Option<String> = inner.server.call(&target, None, &()).await?;
            Ok(owner.as_deref().and_then(advertised_in).map(str::to_owned))
        })
    }

    fn answer(&self, request: u64, answer: String) {
        // Answered already.
        let Some(promise) = self.inner.held.answer(request) else {
            return;
        };
        let inner = Arc::clone(&self.inner);
        let answered = self.spawn(async move { inner.server.keep(&promise, &answer).await });
        // The future is not needed: the requester waits for the promise.
        drop(answered);
    }

    fn settle(&self, name: &str, value: String, most: usize) -> Pending<String> {
        let call = SettleCall {
            name: name.to_owned(),
            value,
            most: most as u64,
        };
        self.give(Extent::Run(&lane_of_meta(name)), move |inner| async move {
            inner
                .server
                .call(&Target::names("settle"), Some(&inner.key()), &call)
                .await
        })
    }

    fn unsettle(&self, name: &str, value: String) -> Pending<()> {
        let call = UnsettleCall {
            name: name.to_owned(),
            value,
        };
        self.give(Extent::Run(&lane_of_meta(name)), move |inner| async move {
            inner
                .server
                .call(&Target::names("unsettle"), Some(&inner.key()), &call)
                .await
        })
    }
}
