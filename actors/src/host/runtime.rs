//! Real threads: an actix system on a control thread of its own, and its arbiters.
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

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use actix_rt::{Arbiter, System};
use pirn_core::Millis;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::Host;
use super::arbiter::{self, Job, Shared};
use super::load::{Bell, Count, Loads, Seat};
use super::own_thread::THREAD_OF;
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
    state: Mutex<State>,
}

/// What a sender needs to reach one arbiter.
struct ArbiterDoor {
    jobs: UnboundedSender<Job>,
    tasks: Arc<Count>,
}

enum State {
    Running {
        stop: oneshot::Sender<Duration>,
        report: Receiver<StopReport>,
        control: JoinHandle<()>,
    },
    Stopped(StopReport),
}

thread_local! {
    /// Dropped when the arbiter's thread ends, after all its tasks.
    static GONE: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}

impl HostRuntime {
    /// Starts the threads. May be called anywhere, also on a tokio worker; waits until they are up.
    ///
    /// # Errors
    /// A thread or a tokio runtime could not be made.
    pub fn start(config: HostConfig) -> io::Result<Self> {
        static RUNTIMES: AtomicU64 = AtomicU64::new(0);
        let id = RUNTIMES.fetch_add(1, Ordering::Relaxed);
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
            let pool = Arc::clone(&pool);
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
                state: Mutex::new(State::Running { stop, report, control }),
            }),
        })
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
        let job = Job {
            run: Box::new(job),
            alive: door.tasks.guard(),
        };
        door.jobs.send(job).map_err(|_| HostStopped)
    }

    /// Whether the calling thread is one of this runtime's.
    pub fn is_own_thread(&self) -> bool {
        self.inner.is_own_thread()
    }

    /// Stops: waits up to `grace` milliseconds until nothing is alive, then ends every thread. Blocks; the second
    /// caller waits for the first and gets the same report.
    ///
    /// On a thread of this runtime it only starts the stop and reports what is alive now: a thread can not wait for
    /// its own end.
    pub fn stop(&self, grace: Millis) -> StopReport {
        self.inner.stop(Duration::from_millis(grace))
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
        THREAD_OF.get() == Some(self.id)
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
        self.stop(Duration::ZERO);
    }
}

/// What the control thread holds.
struct Control {
    system: actix_rt::SystemRunner,
    arbiters: Vec<(Arbiter, Receiver<()>, Arc<Count>)>,
    pool: Arc<WorkPool>,
    bell: Arc<Bell>,
    patience: Duration,
}

impl Control {
    fn start(
        id: u64,
        count: usize,
        patience: Duration,
        pool: Arc<WorkPool>,
        bell: Arc<Bell>,
    ) -> io::Result<(Self, Vec<ArbiterDoor>)> {
        let runtime = one_thread_runtime()?;
        let clock = runtime.handle().clone();
        let mut control = Self {
            system: System::with_tokio_rt(move || runtime),
            arbiters: Vec::with_capacity(count),
            pool,
            bell,
            patience,
        };
        let origin = Instant::now();
        let mut doors = Vec::with_capacity(count);
        for index in 0..count {
            let arbiter = match Arbiter::try_with_tokio_rt(one_thread_runtime) {
                Ok(arbiter) => arbiter,
                Err(error) => {
                    control.end_arbiters();
                    return Err(error);
                }
            };
            let tasks = Count::new(&control.bell);
            let shared = Shared {
                origin,
                pool: Arc::clone(&control.pool),
                clock: clock.clone(),
                tasks: Arc::clone(&tasks),
                seed: RandomState::new().hash_one(index),
            };
            let (jobs, inbox) = tokio::sync::mpsc::unbounded_channel();
            let (alive, gone) = mpsc::channel();
            arbiter.spawn_fn(move || {
                THREAD_OF.set(Some(id));
                GONE.set(Some(alive));
                arbiter::start(shared, inbox);
            });
            control.arbiters.push((arbiter, gone, Arc::clone(&tasks)));
            doors.push(ArbiterDoor { jobs, tasks });
        }
        Ok((control, doors))
    }

    /// Drives the system, and the clock for work, until it is told to stop and has stopped.
    fn run(mut self, stopped: oneshot::Receiver<Duration>) -> StopReport {
        let counts: Vec<Arc<Count>> = self
            .arbiters
            .iter()
            .map(|(_, _, tasks)| tasks)
            .chain([self.pool.in_flight()])
            .map(Arc::clone)
            .collect();
        self.system.block_on(async {
            // A sender that was dropped wants the same, at once.
            let grace = stopped.await.unwrap_or_default();
            if !grace.is_zero() {
                // In time or not: the counts are read next.
                let _: Result<(), _> = tokio::time::timeout(grace, self.bell.all_quiet(&counts)).await;
            }
        });
        let tasks_left = self.arbiters.iter().map(|(_, _, tasks)| tasks.alive()).sum();
        let work_left = self.pool.in_flight().alive();
        let arbiters_stuck = self.end_arbiters();
        self.pool.close(self.patience);
        StopReport {
            tasks_left,
            work_left,
            arbiters_stuck,
        }
    }

    /// Ends the arbiters' threads; says how many did not come back.
    fn end_arbiters(&mut self) -> usize {
        for (arbiter, _, _) in &self.arbiters {
            arbiter.stop();
        }
        let until = Instant::now() + self.patience;
        let mut stuck = 0;
        for (arbiter, gone, _) in self.arbiters.drain(..) {
            match gone.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    if arbiter.join().is_err() {
                        tracing::error!("an arbiter's thread panicked");
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    tracing::error!("an arbiter's thread is stuck and is left behind");
                    stuck += 1;
                }
            }
        }
        stuck
    }
}

fn one_thread_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The lock, also after a panic under it: every holder leaves what it guards whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
