//! Real threads: an actix system on a control thread of its own, and its arbiters; or the caller's thread alone.
//!
//! 1. `System::new`, `Arbiter::new` and dropping a tokio runtime panic on a tokio worker. So all of that happens on
//!    the control thread; the caller's thread only sends on channels and waits.
//! 2. Stopping: wait until nothing is alive or the grace is over, end the arbiters (every task is dropped there, on
//!    its own thread), join them, end the work threads, then the system.
//! 3. Every thread is waited for, but for bounded time: one that does not come back is reported, not waited for.
//! 4. Nothing here is global but actix's thread-locals on threads of ours: several runtimes in one process are
//!    strangers.

// This file starts the threads and runtimes that the rest of the crate must not start.
#![allow(clippy::disallowed_methods)]

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pirn_core::Millis;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::Host;
use super::arbiter::{Job, Shared};
use super::control::Control;
use super::load::{Bell, Count, Loads, Seat};
use super::local::{self, End, NoHome};
use super::own_thread::{CARRIES_ACTORS, Here, THREAD_OF};
use super::pool::WorkPool;

/// How a [`HostRuntime`] is built.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Actor threads; at least one is started. Default: one a core.
    pub arbiters: usize,
    /// Names the control and work threads. Default: `pirn`.
    pub name: String,
    /// Where [`Host::work`] runs: the embedding program's tokio runtime. None: threads of our own, started when
    /// the first work comes. A current-thread runtime runs work only while somebody drives it.
    pub work: Option<tokio::runtime::Handle>,
    /// How many milliseconds threads may take to end, once the grace is over and they were told to. Those that
    /// block for longer are left behind and reported. Default: 5000.
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

/// The runtime has stopped, or is about to: nothing runs on it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStopped;

impl std::fmt::Display for HostStopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the host has stopped")
    }
}

impl std::error::Error for HostStopped {}

/// What was left when a runtime stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Tasks (actors among them) still alive when the grace was over; they were dropped.
    pub tasks_left: usize,
    /// Work still in flight when the grace was over; what an actor held was aborted, detached work on the embedding
    /// program's runtime goes on.
    pub work_left: usize,
    /// Arbiters whose thread did not come back; it is left behind.
    pub arbiters_stuck: usize,
}

/// Arbiters on real threads. A cheap handle: the runtime stops, with no grace, when the last clone is dropped.
///
/// ```
/// # use pirn_actors::host::{HostConfig, HostRuntime};
/// let runtime = HostRuntime::start(HostConfig::default())?;
/// let seat = runtime.seat();
/// let (told, heard) = std::sync::mpsc::channel();
/// runtime.run_on(seat.arbiter(), move |host| told.send(host.now()).unwrap_or(()))?;
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
    arbiters: Vec<ArbiterDoor>,
    pool: Arc<WorkPool>,
    loads: Loads,
    /// Rings when something is no longer alive.
    bell: Arc<Bell>,
    patience: Duration,
    state: Mutex<State>,
}

/// What a sender needs to reach one arbiter.
pub(super) struct ArbiterDoor {
    pub(super) jobs: UnboundedSender<Job>,
    pub(super) tasks: Arc<Count>,
}

enum State {
    Running {
        stop: oneshot::Sender<Duration>,
        report: Receiver<StopReport>,
        control: JoinHandle<()>,
    },
    /// On a thread that is not ours.
    Local,
    Stopped(StopReport),
}

/// The number of a runtime, which no other of the process has.
fn next_id() -> u64 {
    static RUNTIMES: AtomicU64 = AtomicU64::new(0);
    RUNTIMES.fetch_add(1, Ordering::Relaxed)
}

impl HostRuntime {
    /// Starts the threads. May be called anywhere, also on a tokio worker; waits until they are up.
    ///
    /// # Errors
    /// A thread or a tokio runtime could not be made.
    pub fn start(config: HostConfig) -> io::Result<Self> {
        let id = next_id();
        let HostConfig {
            arbiters,
            name,
            work,
            patience,
        } = config;
        let patience = Duration::from_millis(patience);
        let count = arbiters.max(1);
        let bell = Arc::new(Bell::default());
        let pool = Arc::new(WorkPool::new(id, &name, count, work, &bell));
        let (stop, stopped) = oneshot::channel();
        let (report_sender, report) = mpsc::channel();
        let (ready_sender, ready) = mpsc::channel();
        let control = std::thread::Builder::new().name(format!("{name}-control")).spawn({
            let (pool, bell) = (Arc::clone(&pool), Arc::clone(&bell));
            move || match Control::start(id, count, patience, pool, bell) {
                Ok((control, doors)) => {
                    // Nobody waits any more: `stopped` says so at once.
                    ready_sender.send(Ok(doors)).unwrap_or(());
                    report_sender.send(control.run(stopped)).unwrap_or(());
                }
                Err(error) => ready_sender.send(Err(error)).unwrap_or(()),
            }
        })?;
        let arbiters = ready
            .recv()
            .map_err(|_| io::Error::other("the control thread ended while it started"))??;
        Ok(Self {
            inner: Arc::new(Inner {
                id,
                arbiters,
                pool,
                loads: Loads::new(count),
                bell,
                patience,
                state: Mutex::new(State::Running { stop, report, control }),
            }),
        })
    }

    /// No threads but for work: the actors are one task of the calling thread, which runs while that thread runs its local
    /// tasks, and ends with the `LocalSet`, local runtime or actix arbiter that it belongs to. `config.arbiters` is not
    /// asked. Time is that of the thread's tokio runtime; where that one is paused, so is this one.
    ///
    /// # Errors
    /// What the thread lacks.
    pub fn local(config: HostConfig) -> Result<Self, NoHome> {
        let clock = local::clock()?;
        let id = next_id();
        let HostConfig {
            arbiters: _,
            name,
            work,
            patience,
        } = config;
        let bell = Arc::new(Bell::default());
        let threads = HostConfig::default().arbiters;
        let pool = Arc::new(WorkPool::new(id, &name, threads, work, &bell));
        let tasks = Count::new(&bell);
        let (jobs, inbox) = tokio::sync::mpsc::unbounded_channel();
        let shared = Shared {
            origin: tokio::time::Instant::now(),
            pool: Arc::clone(&pool),
            clock,
            tasks: Arc::clone(&tasks),
            seed: RandomState::new().hash_one(id),
        };
        local::start(Here::of(id), shared, inbox)?;
        Ok(Self {
            inner: Arc::new(Inner {
                id,
                arbiters: vec![ArbiterDoor { jobs, tasks }],
                pool,
                loads: Loads::new(1),
                bell,
                patience: Duration::from_millis(patience),
                state: Mutex::new(State::Local),
            }),
        })
    }

    /// Tells whether a thread carries the actors of this runtime without being its own ([`HostRuntime::local`]).
    pub fn here(&self) -> Here {
        Here::of(self.inner.id)
    }

    /// The host, where the calling thread carries the actors of this [local](HostRuntime::local) runtime.
    pub fn host_here(&self) -> Option<Host> {
        self.here().host()
    }

    /// How many arbiters there are.
    pub fn arbiters(&self) -> usize {
        self.inner.arbiters.len()
    }

    /// A seat on the arbiter with the fewest.
    pub fn seat(&self) -> Seat {
        self.inner.loads.seat()
    }

    /// How many seats of `arbiter` are taken.
    pub fn load(&self, arbiter: usize) -> usize {
        self.inner.loads.of(arbiter)
    }

    /// How many tasks, jobs and works are alive.
    pub fn alive(&self) -> usize {
        let tasks: usize = self.inner.arbiters.iter().map(|door| door.tasks.alive()).sum();
        tasks + self.inner.pool.in_flight().alive()
    }

    /// Runs `job` on an arbiter's thread (its index is taken modulo the number of arbiters), after the jobs sent
    /// there before. Only sends: it may be called anywhere.
    ///
    /// # Errors
    /// The runtime has stopped; the job is dropped. A job sent while it stops may be dropped too.
    pub fn run_on(&self, arbiter: usize, job: impl FnOnce(&Host) + Send + 'static) -> Result<(), HostStopped> {
        let door = &self.inner.arbiters[arbiter % self.inner.arbiters.len()];
        let job = Job::Run {
            run: Box::new(job),
            alive: door.tasks.guard(),
        };
        door.jobs.send(job).map_err(|_| HostStopped)
    }

    /// Whether nothing runs any more: it was stopped, or whoever carries a [local](HostRuntime::local) one dropped its tasks.
    pub fn has_ended(&self) -> bool {
        self.inner.arbiters.iter().all(|door| door.jobs.is_closed())
    }

    /// Whether the calling thread is one of this runtime's, or carries its actors.
    pub fn is_own_thread(&self) -> bool {
        self.inner.is_own_thread()
    }

    /// Whether the calling thread carries actors of this runtime: who waits there for one of them may wait for itself.
    pub fn carries_actors_here(&self) -> bool {
        let is_arbiter = THREAD_OF.get() == Some(self.inner.id) && CARRIES_ACTORS.get();
        is_arbiter || self.here().is_here()
    }

    /// Stops: waits up to `grace` milliseconds until nothing is alive, then ends every thread. Blocks; the second
    /// caller waits for the first and gets the same report. A [local](HostRuntime::local) runtime ends while its thread
    /// runs its local tasks; where that does not, the wait is over after the grace and [`HostConfig::patience`].
    ///
    /// On a thread of this runtime it only starts the stop and reports what is alive now: a thread can not wait for
    /// its own end.
    pub fn stop(&self, grace: Millis) -> StopReport {
        self.inner.stop(Duration::from_millis(grace))
    }

    /// Stops with no grace; nobody wants to know what is left. A [local](HostRuntime::local) runtime is not waited for.
    pub fn end(&self) {
        self.inner.end();
    }

    /// Like [`HostRuntime::stop`], without blocking. The stop goes on if the future is dropped.
    pub fn stop_async(&self, grace: Millis) -> impl Future<Output = StopReport> + Send + use<> {
        let (told, heard) = oneshot::channel();
        let waiter = std::thread::Builder::new().name("pirn-stop".to_owned()).spawn({
            let runtime = self.clone();
            // Nobody may listen any more; the stop matters, not the report.
            move || told.send(runtime.stop(grace)).unwrap_or(())
        });
        let runtime = self.clone();
        async move {
            let report = heard.await;
            match (waiter, report) {
                (Ok(_), Ok(report)) => report,
                // No thread to wait on: then here.
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

impl Inner {
    fn is_own_thread(&self) -> bool {
        THREAD_OF.get() == Some(self.id) || Here::of(self.id).is_here()
    }

    fn stop(&self, grace: Duration) -> StopReport {
        let is_own_thread = self.is_own_thread();
        let mut state = if is_own_thread {
            match self.state.try_lock() {
                Ok(state) => state,
                // Somebody else is stopping it, and waits for this very thread.
                Err(_) => return self.left(),
            }
        } else {
            locked(&self.state)
        };
        let left = self.left();
        match std::mem::replace(&mut *state, State::Stopped(left)) {
            State::Stopped(report) => {
                *state = State::Stopped(report);
                report
            }
            State::Local => {
                let left = self.stop_local(grace, !is_own_thread);
                *state = State::Stopped(left);
                left
            }
            State::Running { stop, report, control } => {
                // The control thread is gone already only if it panicked; then there is nothing to tell.
                stop.send(grace).unwrap_or(());
                if is_own_thread {
                    return left;
                }
                let left = report.recv().unwrap_or(left);
                if control.join().is_err() {
                    tracing::error!("the control thread panicked");
                }
                *state = State::Stopped(left);
                left
            }
        }
    }

    fn end(&self) {
        if let Ok(mut state) = self.state.try_lock()
            && matches!(*state, State::Local)
        {
            *state = State::Stopped(self.stop_local(Duration::ZERO, false));
            return;
        }
        self.stop(Duration::ZERO);
    }

    /// Has the driver of another's thread end. Waits for that where it may.
    fn stop_local(&self, grace: Duration, waits: bool) -> StopReport {
        let left = self.left();
        let (report, reported) = mpsc::channel();
        let end = End {
            grace,
            bell: Arc::clone(&self.bell),
            report: waits.then_some(report),
        };
        let is_gone = self
            .arbiters
            .first()
            .is_none_or(|door| door.jobs.send(Job::End(end)).is_err());
        if is_gone || !waits {
            return left;
        }
        let ended = reported.recv_timeout(grace.saturating_add(self.patience));
        self.close_pool();
        match ended {
            Ok(report) => report,
            // Dropped before its time, by whoever drops its thread's tasks.
            Err(RecvTimeoutError::Disconnected) => left,
            Err(RecvTimeoutError::Timeout) => StopReport {
                arbiters_stuck: 1,
                ..left
            },
        }
    }

    /// Ends the threads for work. A tokio worker must not wait for that itself, and may be who is here.
    fn close_pool(&self) {
        let closing = std::thread::Builder::new().name("pirn-stop".to_owned()).spawn({
            let (pool, patience) = (Arc::clone(&self.pool), self.patience);
            move || pool.close(patience)
        });
        match closing.map(JoinHandle::join) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!("closing the threads for work panicked"),
            // No thread to wait on: nobody waits.
            Err(_) => self.pool.close(Duration::ZERO),
        }
    }

    fn left(&self) -> StopReport {
        StopReport {
            tasks_left: self.arbiters.iter().map(|door| door.tasks.alive()).sum(),
            work_left: self.pool.in_flight().alive(),
            arbiters_stuck: 0,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

/// The lock, also after a panic under it: every holder leaves what it guards whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
