//! The threads of an engine's actors: real arbiters, the caller's own thread, or one thread under a virtual clock.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use pirn_actors::engine::{EngineShared, Spawner, StartJob};
use pirn_actors::host::{Host, HostConfig, HostRuntime, NotLocalContext, SimulatedConfig, SimulatedHost};
use pirn_definition::Millis;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_sync::Lost;

use super::{Names, ShutdownReport};

/// Time within which cancelled runs must end at a shutdown.
const WIND_DOWN: Duration = Duration::from_secs(5);

/// Time within which actors must stop after a stop request.
const QUIET: Duration = Duration::from_secs(1);

/// A handle to the engine's threads. Dropping the last one stops them.
#[derive(Clone)]
pub(super) struct EngineRuntime {
    inner: Arc<Inner>,
}

/// A handle that does not keep the threads from being stopped.
#[derive(Clone, Debug)]
pub(crate) struct WeakRuntime(std::sync::Weak<Inner>);

impl WeakRuntime {
    pub(super) fn upgrade(&self) -> Option<EngineRuntime> {
        Some(EngineRuntime {
            inner: self.0.upgrade()?,
        })
    }

    /// Returns whether the calling thread runs the engine's actors.
    pub(super) fn carries_actors_here(&self) -> bool {
        self.upgrade().is_some_and(|runtime| runtime.carries_actors_here())
    }
}

struct Inner {
    kind: Kind,
    names: Names,
}

enum Kind {
    /// Arbiters, or a thread that the engine does not own.
    Real(HostRuntime),
    Simulated(Simulated),
}

struct Simulated {
    jobs: crossbeam_channel::Sender<Job>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Id of `thread`, also after it was joined.
    thread_id: ThreadId,
}

enum Job {
    Run(StartJob),
    Stop,
}

/// Spawner on arbiters, or on the caller's thread.
struct RealSpawner(HostRuntime);

impl Spawner for RealSpawner {
    fn arbiters(&self) -> usize {
        self.0.arbiters()
    }

    fn start_on(&self, arbiter: usize, job: StartJob) -> Result<(), RunError> {
        // The caller is on the actors' thread: a direct call saves a message, and a local engine has no other thread to wake.
        if let Some(host) = self.0.host_here() {
            job(&host, None);
            return Ok(());
        }
        self.0
            .run_on(arbiter, move |host| job(host, None))
            .map_err(|_| stopped())
    }

    fn start(&self, job: StartJob) -> Result<(), RunError> {
        if let Some(host) = self.0.host_here() {
            job(&host, None);
            return Ok(());
        }
        // The job holds the lease for the lifetime of the run, so that the next start goes to the arbiter with the fewest runs.
        let lease = self.0.lease();
        let arbiter = lease.arbiter();
        self.0
            .run_on(arbiter, move |host| job(host, Some(lease)))
            .map_err(|_| stopped())
    }
}

/// Spawner for the single thread of a virtual clock. A run that is started from it (a trigger's detached run) starts at the current
/// point of virtual time, not when the simulation is otherwise idle.
struct VirtualSpawner {
    clock: ClockId,
    /// Jobs for the clock's thread; `None` for [`with_inline_spawner`], whose engine has no thread outside of that call.
    jobs: Option<crossbeam_channel::Sender<Job>>,
}

impl Spawner for VirtualSpawner {
    fn arbiters(&self) -> usize {
        1
    }

    fn start_on(&self, _: usize, job: StartJob) -> Result<(), RunError> {
        self.start(job)
    }

    fn start(&self, job: StartJob) -> Result<(), RunError> {
        // A job in the channel would run only after the simulation is idle, which is later in virtual time.
        // The clock is compared, because a function of one engine may start a run of another, which has a thread of its own.
        let own = CURRENT_HOST.with_borrow(|current| {
            let (_, host) = current.as_ref().filter(|(clock, _)| *clock == self.clock)?;
            Some(host.clone())
        });
        if let Some(host) = own {
            job(&host, None);
            return Ok(());
        }
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(Job::Run(job)).map_err(|_| stopped())
    }
}

impl EngineRuntime {
    pub(super) fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(&self.inner))
    }

    pub(super) fn arbiters(config: HostConfig, names: Names) -> std::io::Result<(Self, Box<dyn Spawner>)> {
        Ok(Self::real(HostRuntime::start(config)?, names))
    }

    pub(super) fn local(config: HostConfig, names: Names) -> Result<(Self, Box<dyn Spawner>), NotLocalContext> {
        Ok(Self::real(HostRuntime::local(config)?, names))
    }

    fn real(runtime: HostRuntime, names: Names) -> (Self, Box<dyn Spawner>) {
        let spawner = Box::new(RealSpawner(runtime.clone()));
        (Self::of(Kind::Real(runtime), names), spawner)
    }

    /// Starts a virtual clock with this seed, and with this wall-clock time in milliseconds since 1970.
    pub(super) fn simulated(clock: (Option<u64>, Millis), names: Names) -> std::io::Result<(Self, Box<dyn Spawner>)> {
        let (jobs, received) = crossbeam_channel::unbounded();
        let id = next_clock();
        let thread = std::thread::Builder::new()
            .name("pirn-virtual".to_owned())
            .spawn(move || simulate(id, clock, &received))?;
        let spawner = Box::new(VirtualSpawner {
            clock: id,
            jobs: Some(jobs.clone()),
        });
        let simulated = Simulated {
            jobs,
            thread_id: thread.thread().id(),
            thread: Mutex::new(Some(thread)),
        };
        Ok((Self::of(Kind::Simulated(simulated), names), spawner))
    }

    fn of(kind: Kind, names: Names) -> Self {
        Self {
            inner: Arc::new(Inner { kind, names }),
        }
    }

    /// Returns whether the clock is virtual.
    pub(super) fn is_virtual(&self) -> bool {
        matches!(self.inner.kind, Kind::Simulated(_))
    }

    /// Returns the names that workflows may refer to.
    pub(super) fn names(&self) -> &Names {
        &self.inner.names
    }

    /// Returns whether the calling thread may block on an actor. The engine's threads may not: they would wait for themselves.
    /// Under virtual time all earlier requests are processed first anyway.
    pub(super) fn may_wait(&self) -> bool {
        match &self.inner.kind {
            Kind::Real(runtime) => !runtime.is_own_thread(),
            // Jobs are executed in the order of their arrival, each until the simulation is idle.
            Kind::Simulated(_) => false,
        }
    }

    /// Returns whether the calling thread runs the engine's actors: a run on which it blocks might wait for it.
    pub(super) fn carries_actors_here(&self) -> bool {
        match &self.inner.kind {
            Kind::Real(runtime) => runtime.carries_actors_here(),
            Kind::Simulated(simulated) => simulated.is_here(),
        }
    }

    /// Returns whether all threads have stopped.
    pub(super) fn has_ended(&self) -> bool {
        match &self.inner.kind {
            Kind::Real(runtime) => runtime.has_ended(),
            Kind::Simulated(_) => false,
        }
    }

    /// Wakes a virtual clock's thread to process a message sent from outside.
    pub(super) fn wake(&self) {
        if let Kind::Simulated(simulated) = &self.inner.kind {
            // Sending fails only after the thread has stopped; then there is nothing to process.
            // An empty job is enough, because the thread runs the simulation until it is idle after each job.
            simulated.jobs.send(Job::Run(Box::new(|_, _| ()))).unwrap_or(());
        }
    }

    /// Under virtual time, waits until started work is complete, so that the result does not depend on when the caller's thread
    /// requests the stop.
    pub(super) fn wait_idle(&self, at_most: Duration) {
        if let Kind::Simulated(simulated) = &self.inner.kind {
            // The clock's own thread becomes idle only after this call has returned.
            if simulated.is_here() {
                return;
            }
            let (told, idle) = std::sync::mpsc::channel();
            // This job starts only after the simulation is idle from the job before, so its first statement is the proof.
            let job = Job::Run(Box::new(move |_, _| told.send(()).unwrap_or(())));
            if simulated.jobs.send(job).is_ok() {
                // A clock that is still busy after this time is stopped in the middle of its work.
                let _: Result<(), _> = idle.recv_timeout(at_most);
            }
        }
    }

    fn stop(&self, grace: Duration) -> ShutdownReport {
        match &self.inner.kind {
            Kind::Real(runtime) => {
                let report = runtime.stop(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
                ShutdownReport {
                    tasks_left: report.tasks_left,
                    work_left: report.work_left,
                    ..ShutdownReport::default()
                }
            }
            Kind::Simulated(simulated) => {
                simulated.stop();
                ShutdownReport::default()
            }
        }
    }
}

impl Simulated {
    /// Returns whether the calling thread is the virtual clock's.
    fn is_here(&self) -> bool {
        // `CURRENT_HOST` may be that of an explorer that a function of this engine runs on this thread.
        self.thread_id == std::thread::current().id()
    }

    fn stop(&self) {
        self.jobs.send(Job::Stop).unwrap_or(());
        // Taken, so that only the first of several stops joins the thread.
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may be dropped on the clock's own thread, by a function of a run: a thread cannot join itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id())
            && thread.join().is_err()
        {
            tracing::error!("the virtual clock's thread panicked");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        match &self.kind {
            // Runs hold the runtime too, so dropping this handle would not stop it while a run is in progress.
            Kind::Real(runtime) => runtime.end(),
            // The field's own `Drop` stops the thread.
            Kind::Simulated(_) => {}
        }
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Identifies a virtual clock in this process.
type ClockId = u64;

thread_local! {
    /// The virtual clock that runs on this thread, with its host.
    static CURRENT_HOST: RefCell<Option<(ClockId, Host)>> = const { RefCell::new(None) };
}

fn next_clock() -> ClockId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed, because only the uniqueness of the number matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the host of the virtual clock on the calling thread.
pub(crate) fn virtual_host() -> Option<Host> {
    CURRENT_HOST.with_borrow(|current| current.as_ref().map(|(_, host)| host.clone()))
}

/// Runs `call`, and starts everything that it spawns on `host`, which the calling thread executes.
pub(crate) fn with_inline_spawner<T>(host: &Host, call: impl FnOnce(Box<dyn Spawner>) -> T) -> T {
    // The value before is restored, because calls may nest.
    let clock = next_clock();
    let before = CURRENT_HOST.replace(Some((clock, host.clone())));
    let result = call(Box::new(VirtualSpawner { clock, jobs: None }));
    CURRENT_HOST.set(before);
    result
}

/// Executes jobs in order; after each, runs the simulation until it is idle.
fn simulate(id: ClockId, (seed, wall_clock_origin): (Option<u64>, Millis), jobs: &crossbeam_channel::Receiver<Job>) {
    let simulated = SimulatedHost::with_config(SimulatedConfig {
        seed,
        wall_clock_origin,
        ..SimulatedConfig::default()
    });
    let host = simulated.host();
    CURRENT_HOST.set(Some((id, host.clone())));
    while let Ok(Job::Run(job)) = jobs.recv() {
        job(&host, None);
        simulated.run_until_idle();
    }
}

/// Rejects new runs, waits, cancels the rest, waits again and stops the threads.
pub(super) fn shut_down(shared: &EngineShared, runtime: &EngineRuntime, grace: Duration) -> ShutdownReport {
    runtime.wait_idle(grace.max(WIND_DOWN));
    shared.close();
    // Sent after the close, so that no later run misses this message.
    shared.keep_waiting();
    runtime.wake();
    let mut runs_cancelled = 0;
    if !shared.gate().wait_drained(grace) {
        runs_cancelled = shared.live_runs();
        shared.cancel_all();
        runtime.wake();
        shared.gate().wait_drained(WIND_DOWN);
    }
    let runs_left = shared.live_runs();
    // Stop only after the last run has ended or was cancelled: a bus delivers the events of runs.
    for flushed in shared.stop() {
        // A bus that has stopped has nothing to flush.
        let _: Option<Result<(), Lost>> = flushed.wait_timeout(WIND_DOWN);
    }
    let report = runtime.stop(QUIET);
    // Last: a call that is still in flight may use the connections of the tools.
    shared.close_tools();
    ShutdownReport {
        runs_cancelled,
        runs_left,
        ..report
    }
}

fn stopped() -> RunError {
    RunError::new(RunErrorCode::Cancelled, "the engine has stopped")
}

/// Returns a number that differs from process to process.
pub(super) fn process_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
