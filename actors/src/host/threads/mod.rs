//! Hosts on real threads: arbiters that each own a tokio runtime, or the caller's thread alone.
//!
//! 1. All arbiters, and the driver of a local engine, shut down alike. They receive the request, wait until the whole runtime is
//!    idle or the grace period ends, and drop their tasks on their own thread.
//! 2. Joining a thread has a timeout. A stuck thread is reported and left behind.
//! 3. Only `stop` blocks a thread of a tokio runtime, and it never waits for its own thread.
//! 4. No global state except a counter of runtimes and thread-locals: several runtimes in one process are independent.
//!
//! Not here: the order of timers (`timers`), which the virtual clock shares.

// This file starts the threads and runtimes that the rest of the crate must not start.
#![allow(clippy::disallowed_methods)]

mod arbiter;
mod local;
mod thread_tag;
mod work;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pirn_definition::Millis;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use self::arbiter::{Driver, End, Ended, Job, Shared, tracker};
pub use self::local::NotLocalContext;
pub use self::thread_tag::ThreadTag;
use self::thread_tag::{IS_ACTOR_THREAD, THREAD_OF};
use self::work::WorkPool;
use super::Host;

/// The settings of a [`HostRuntime`].
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Number of actor threads; at least one is started. Default: one per core.
    pub arbiters: usize,
    /// Prefix of the thread names. Default: `pirn`.
    pub name: String,
    /// The embedding program's tokio runtime, where [`Host::work`] runs. None: private threads, started on the first work. A
    /// current-thread runtime executes work only while it is driven, for example by `block_on`.
    pub work: Option<tokio::runtime::Handle>,
    /// Milliseconds that threads may take to end after the grace period. Threads that block for longer are left behind and
    /// reported. Default: 5000.
    pub patience: Millis,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            arbiters: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            name: "pirn".to_owned(),
            work: None,
            patience: 5_000,
        }
    }
}

/// Error of a runtime that has stopped or is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host has stopped")]
pub struct HostStopped;

/// Tasks, work and threads that did not end before a runtime stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Tasks (actors included) alive at the end of the grace period; they were dropped.
    pub tasks_left: usize,
    /// Work in flight at the end of the grace period. Work owned by an actor was aborted; detached work on the embedding
    /// program's runtime continues.
    pub work_left: usize,
    /// Arbiters whose thread did not end in time; it is left behind.
    pub arbiters_stuck: usize,
}

/// A share of an arbiter, held for the lifetime of a run. [`HostRuntime::lease`] chooses the arbiter with the fewest leases.
#[derive(Debug)]
pub struct ArbiterLease {
    arbiter: usize,
    /// Clone of the arbiter's `Arc`; the strong count is the number of leases plus one.
    _held: Arc<()>,
}

impl ArbiterLease {
    /// The arbiter's index, for [`HostRuntime::run_on`].
    pub fn arbiter(&self) -> usize {
        self.arbiter
    }
}

/// Arbiters on real threads. A cheap handle: the runtime stops without grace when the last clone is dropped.
///
/// ```
/// # use pirn_actors::host::{HostConfig, HostRuntime};
/// let runtime = HostRuntime::start(HostConfig::default())?;
/// let lease = runtime.lease();
/// let (told, heard) = std::sync::mpsc::channel();
/// runtime.run_on(lease.arbiter(), move |host| told.send(host.now()).unwrap_or(()))?;
/// assert!(heard.recv().is_ok());
/// let report = runtime.stop(1_000);
/// assert_eq!(report.tasks_left, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct HostRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    id: u64,
    arbiters: Vec<ArbiterHandle>,
    /// Trackers of each arbiter's tasks and jobs, followed by the tracker of the work.
    alive: Arc<[TaskTracker]>,
    pool: Arc<WorkPool>,
    patience: Duration,
    is_local: bool,
    state: Mutex<State>,
}

/// Channel and lease counter of one arbiter.
struct ArbiterHandle {
    jobs: UnboundedSender<Job>,
    leases: Arc<()>,
}

enum State {
    /// Threads of the arbiters; empty for a local runtime.
    Running(Vec<JoinHandle<()>>),
    Stopped(StopReport),
}

impl HostRuntime {
    /// Starts the threads. May be called from any thread, including a tokio worker.
    ///
    /// # Errors
    /// A thread or a tokio runtime could not be created.
    pub fn start(config: HostConfig) -> io::Result<Self> {
        // `run_on` divides by the number of arbiters.
        let count = config.arbiters.max(1);
        let (mut inner, starts) = Inner::new(config, count, false);
        let mut threads = Vec::with_capacity(count);
        let started = starts
            .into_iter()
            .try_for_each(|start| start.on_a_thread().map(|thread| threads.push(thread)));
        inner.state = Mutex::new(State::Running(threads));
        // On failure `inner` is dropped, which stops the threads that were started.
        let inner = Arc::new(inner);
        started.map(|()| Self { inner })
    }

    /// Creates a runtime without actor threads. The actors are one task of the calling thread, and run while that thread drives
    /// its local tasks. They end with the `LocalSet`, local runtime or actix arbiter of that thread.
    ///
    /// `config.arbiters` is ignored. The clock is that of the thread's tokio runtime, and pauses with it.
    ///
    /// # Errors
    /// Fails if the thread cannot spawn local tasks.
    pub fn local(config: HostConfig) -> Result<Self, NotLocalContext> {
        let (inner, starts) = Inner::new(config, 1, true);
        for start in starts {
            local::start(ThreadTag::of(inner.id), start.shared, start.jobs)?;
        }
        let inner = Arc::new(inner);
        Ok(Self { inner })
    }

    /// Returns a tag that tests whether a thread runs the actors of this [local](HostRuntime::local) runtime.
    pub fn tag(&self) -> ThreadTag {
        ThreadTag::of(self.inner.id)
    }

    /// Returns the host if the calling thread runs the actors of this [local](HostRuntime::local) runtime.
    pub fn host_here(&self) -> Option<Host> {
        self.tag().host()
    }

    /// Number of arbiters.
    pub fn arbiters(&self) -> usize {
        self.inner.arbiters.len()
    }

    /// Returns a lease on the arbiter with the fewest leases, the first of several. Concurrent callers may choose the same
    /// arbiter; later leases even this out.
    pub fn lease(&self) -> ArbiterLease {
        let arbiters = self.inner.arbiters.iter().enumerate();
        let least = arbiters.min_by_key(|(_, arbiter)| Arc::strong_count(&arbiter.leases));
        let arbiter = least.map_or(0, |(index, _)| index);
        ArbiterLease {
            arbiter,
            _held: Arc::clone(&self.inner.arbiters[arbiter].leases),
        }
    }

    /// Number of leases on `arbiter`.
    pub fn load(&self, arbiter: usize) -> usize {
        let arbiter = self.inner.arbiters.get(arbiter);
        arbiter.map_or(0, |arbiter| Arc::strong_count(&arbiter.leases) - 1)
    }

    /// Number of live tasks, jobs and work items.
    pub fn alive(&self) -> usize {
        self.inner.alive.iter().map(TaskTracker::len).sum()
    }

    /// Queues `job` on an arbiter's thread (the index is taken modulo the number of arbiters), in FIFO order. Never blocks; may
    /// be called from any thread.
    ///
    /// # Errors
    /// Fails if the runtime has stopped; the job is dropped. A job sent during the stop may be dropped too.
    pub fn run_on(&self, arbiter: usize, job: impl FnOnce(&Host) + Send + 'static) -> Result<(), HostStopped> {
        let arbiter = arbiter % self.inner.arbiters.len();
        let job = Job::Run {
            run: Box::new(job),
            alive: self.inner.alive[arbiter].token(),
        };
        self.inner.arbiters[arbiter].jobs.send(job).map_err(|_| HostStopped)
    }

    /// True once nothing runs: the runtime was stopped, or the thread of a [local](HostRuntime::local) one dropped its tasks.
    pub fn has_ended(&self) -> bool {
        self.inner.arbiters.iter().all(|arbiter| arbiter.jobs.is_closed())
    }

    /// True if the calling thread belongs to this runtime or runs its actors.
    pub fn is_own_thread(&self) -> bool {
        self.inner.is_own_thread()
    }

    /// True if the calling thread runs actors of this runtime. Blocking there on one of them can deadlock.
    pub fn carries_actors_here(&self) -> bool {
        let is_arbiter = THREAD_OF.get() == Some(self.inner.id) && IS_ACTOR_THREAD.get();
        is_arbiter || self.tag().is_here()
    }

    /// Stops the runtime: waits up to `grace` milliseconds until nothing is alive, then ends every thread. Blocks. A concurrent
    /// caller waits for the first and gets an equal report.
    ///
    /// A [local](HostRuntime::local) runtime ends only while its thread drives its local tasks. Otherwise the wait times out
    /// after the grace and [`HostConfig::patience`].
    ///
    /// On a thread of this runtime the call only starts the stop and reports what is alive, because a thread cannot wait for its
    /// own end.
    pub fn stop(&self, grace: Millis) -> StopReport {
        let waits = !self.inner.is_own_thread();
        self.inner.stop(Duration::from_millis(grace), waits)
    }

    /// Stops without grace and without a report. Does not wait for a [local](HostRuntime::local) runtime.
    pub fn end(&self) {
        self.inner.end();
    }

    /// Like [`HostRuntime::stop`], without blocking. The stop continues if the future is dropped.
    pub fn stop_async(&self, grace: Millis) -> impl Future<Output = StopReport> + Send + use<> {
        let (told, heard) = oneshot::channel();
        // A separate thread, because `stop` blocks.
        let waiter = std::thread::Builder::new().name("pirn-stop".to_owned()).spawn({
            let runtime = self.clone();
            // The receiver may be dropped; the stop must complete anyway.
            move || told.send(runtime.stop(grace)).unwrap_or(())
        });
        let runtime = self.clone();
        async move {
            let report = heard.await;
            match (waiter, report) {
                (Ok(_), Ok(report)) => report,
                // The waiting thread could not be started or panicked: the stop runs here.
                (Ok(_) | Err(_), _) => runtime.stop(grace),
            }
        }
    }
}

impl std::fmt::Debug for HostRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRuntime")
            .field("arbiters", &self.arbiters())
            .field("alive", &self.alive())
            .finish_non_exhaustive()
    }
}

/// An arbiter that has not been started.
struct Start {
    name: String,
    id: u64,
    shared: Shared,
    jobs: UnboundedReceiver<Job>,
}

impl Start {
    /// Starts the arbiter on a new thread.
    fn on_a_thread(self) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let name = format!("{}-{}", self.name, self.shared.arbiter);
        std::thread::Builder::new().name(name).spawn(move || self.run(&runtime))
    }

    fn run(self, runtime: &Runtime) {
        // Must be set before the first task: a task that calls `stop` must be detected as a thread of the runtime.
        THREAD_OF.set(Some(self.id));
        IS_ACTOR_THREAD.set(true);
        runtime.block_on(async move {
            let clock = tokio::runtime::Handle::current();
            // The duration does not matter: the driver resets the sleep before it polls it.
            let sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
            Driver::new(self.shared, self.jobs, clock, sleep).run().await;
        });
    }
}

impl Inner {
    /// A runtime of `count` arbiters, not started.
    fn new(config: HostConfig, count: usize, is_local: bool) -> (Self, Vec<Start>) {
        static RUNTIMES: AtomicU64 = AtomicU64::new(0);
        let id = RUNTIMES.fetch_add(1, Ordering::Relaxed);
        // A local runtime has one driver, but its work may use all cores.
        let work_threads = if is_local {
            HostConfig::default().arbiters
        } else {
            count
        };
        let in_flight = tracker();
        let alive: Arc<[TaskTracker]> = (0..count).map(|_| tracker()).chain([in_flight.clone()]).collect();
        let pool = Arc::new(WorkPool::new(id, &config.name, work_threads, config.work, in_flight));
        // One origin, so that the clocks of all arbiters agree.
        let origin = tokio::time::Instant::now();
        // The keys of `RandomState` are random, which saves a dependency for seeds.
        let seeds = RandomState::new();
        let mut arbiters = Vec::with_capacity(count);
        let mut starts = Vec::with_capacity(count);
        for arbiter in 0..count {
            let (sender, jobs) = unbounded_channel();
            arbiters.push(ArbiterHandle {
                jobs: sender,
                leases: Arc::default(),
            });
            let shared = Shared {
                arbiter,
                origin,
                pool: Arc::clone(&pool),
                alive: Arc::clone(&alive),
                seed: seeds.hash_one(arbiter),
            };
            let name = config.name.clone();
            starts.push(Start { name, id, shared, jobs });
        }
        let inner = Self {
            id,
            arbiters,
            alive,
            pool,
            patience: Duration::from_millis(config.patience),
            is_local,
            state: Mutex::new(State::Running(Vec::new())),
        };
        (inner, starts)
    }

    fn is_own_thread(&self) -> bool {
        THREAD_OF.get() == Some(self.id) || ThreadTag::of(self.id).is_here()
    }

    fn end(&self) {
        // A local runtime ends only while its thread drives it, so a destructor that waits could time out.
        let waits = !self.is_local && !self.is_own_thread();
        self.stop(Duration::ZERO, waits);
    }

    fn stop(&self, grace: Duration, waits: bool) -> StopReport {
        let mut state = if waits {
            locked(&self.state)
        } else {
            match self.state.try_lock() {
                Ok(state) => state,
                // Another thread is stopping the runtime, and may be waiting for this one.
                Err(_) => return self.left(),
            }
        };
        let left = self.left();
        // Replaced before the requests are sent, so that a nested call returns this report and sends none.
        let threads = match std::mem::replace(&mut *state, State::Stopped(left)) {
            State::Stopped(report) => {
                *state = State::Stopped(report);
                return report;
            }
            State::Running(threads) => threads,
        };
        let (report, reports) = mpsc::channel();
        for arbiter in &self.arbiters {
            let report = waits.then(|| report.clone());
            // The send fails if the tasks of a local runtime were dropped already.
            arbiter.jobs.send(Job::End(End { grace, report })).unwrap_or(());
        }
        // With this sender the channel would never disconnect.
        drop(report);
        if !waits {
            return left;
        }
        let report = self.wait(&reports, grace, left, threads);
        *state = State::Stopped(report);
        report
    }

    /// Waits until all arbiters have ended.
    fn wait(
        &self,
        reports: &Receiver<Ended>,
        grace: Duration,
        before: StopReport,
        threads: Vec<JoinHandle<()>>,
    ) -> StopReport {
        // On overflow the wait is unbounded.
        let until = Instant::now().checked_add(grace.saturating_add(self.patience));
        let left_until = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        let mut ended: Vec<Option<Ended>> = self.arbiters.iter().map(|_| None).collect();
        let is_in_time = loop {
            match reports.recv_timeout(left_until()) {
                Ok(report) => {
                    let place = report.arbiter;
                    ended[place] = Some(report);
                }
                // Each driver drops its sender when it ends, so a disconnect means that all have ended.
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        let is_stuck = |arbiter: usize| !is_in_time && ended[arbiter].is_none();
        let mut report = StopReport {
            // All arbiters count the same work, so the counts are not added.
            work_left: ended
                .iter()
                .flatten()
                .map(|ended| ended.work_left)
                .max()
                .unwrap_or(before.work_left),
            ..StopReport::default()
        };
        for (arbiter, reported) in ended.iter().enumerate() {
            report.arbiters_stuck += usize::from(is_stuck(arbiter));
            let now = || self.alive[arbiter].len();
            report.tasks_left += reported.as_ref().map_or_else(now, |ended| ended.tasks_left);
        }
        // A thread that has reported is about to return, so its join is short.
        for (arbiter, thread) in threads.into_iter().enumerate() {
            if is_stuck(arbiter) {
                tracing::error!(arbiter, "an arbiter's thread did not stop in time and was abandoned");
            } else if thread.join().is_err() {
                tracing::error!(arbiter, "an arbiter's thread panicked");
            }
        }
        // The pool closes after the arbiters, because their tasks may start work until they end.
        self.close_pool();
        report
    }

    /// Ends the threads for work. Uses a helper thread, because the caller may be a tokio worker, which must not block on it.
    fn close_pool(&self) {
        if self.pool.own_handle().is_none() {
            return self.pool.close(Duration::ZERO);
        }
        let closing = std::thread::Builder::new().name("pirn-stop".to_owned()).spawn({
            let (pool, patience) = (Arc::clone(&self.pool), self.patience);
            move || pool.close(patience)
        });
        match closing.map(JoinHandle::join) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!("stopping the worker threads panicked"),
            // Without a helper thread the pool is closed without waiting.
            Err(_) => self.pool.close(Duration::ZERO),
        }
    }

    fn left(&self) -> StopReport {
        let tasks = &self.alive[..self.arbiters.len()];
        StopReport {
            tasks_left: tasks.iter().map(TaskTracker::len).sum(),
            work_left: self.pool.in_flight().len(),
            arbiters_stuck: 0,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

/// Locks the mutex, ignoring poisoning: every critical section leaves the value consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
