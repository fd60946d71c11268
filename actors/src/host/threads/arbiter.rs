//! The host of one thread: an arbiter, or any thread that runs tokio's local tasks. One future, the driver, runs tasks, timers
//! and jobs of other threads.
//!
//! 1. The driver owns a `LocalSet` for its tasks. Tasks can be spawned at any time on the thread, also where tokio's
//!    `spawn_local` panics because no local task is running.
//! 2. One tokio timer serves all timers of the host and is set to the first deadline. Timers fire by deadline, then in the order
//!    they were set; tokio guarantees no order.
//! 3. Deadlines are in microseconds, so that a timer set in the middle of a millisecond does not fire early.
//! 4. Dropping the driver closes the host: see [`super::super`] about refusals.

// The only place under actors/ that may use tokio's runtime and the clock directly; other code uses this port.
#![allow(clippy::disallowed_methods)]

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use pirn_definition::Millis;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::LocalSet;
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::thread_tag::ThreadTag;
use super::work::WorkPool;
use crate::host::chance::Chance;
use crate::host::timers::{TimerKey, Timers};
use crate::host::{Host, Label, Port, WorkClock, WorkHandle, WorkTime, survive};
use crate::panic_text::panic_message;

/// Maximum number of jobs that run before the tasks have their turn.
const JOBS: usize = 256;

/// Maximum number of timers that fire before the tasks have their turn. Each may execute a whole turn of a run.
const TIMERS: usize = 64;

/// A message from another thread.
pub(super) enum Job {
    /// Runs on the driver's thread. Counted as alive from the moment it is sent.
    Run {
        run: Box<dyn FnOnce(&Host) + Send>,
        alive: TaskTrackerToken,
    },
    /// Ends the driver once everything is idle or the grace period is over.
    End(End),
}

/// Request to end a driver.
pub(super) struct End {
    pub(super) grace: Duration,
    /// Receives the result. Its receiver also closes the work pool.
    pub(super) report: Option<Sender<Ended>>,
}

/// Result of a driver that has ended and dropped its tasks. The counts are from the end of the grace period.
pub(super) struct Ended {
    pub(super) arbiter: usize,
    pub(super) tasks_left: usize,
    pub(super) work_left: usize,
}

/// The parts of a runtime that its arbiters share.
pub(super) struct Shared {
    /// The arbiter's index.
    pub(super) arbiter: usize,
    /// Zero of [`Port::now`].
    pub(super) origin: Instant,
    /// Runs the work.
    pub(super) pool: Arc<WorkPool>,
    /// Trackers of the tasks and jobs of every arbiter, followed by the tracker of the work.
    pub(super) alive: Arc<[TaskTracker]>,
    /// Seeds [`Port::random`].
    pub(super) seed: u64,
}

impl Shared {
    fn tasks(&self) -> &TaskTracker {
        &self.alive[self.arbiter]
    }
}

/// A task tracker that is closed from the start: `wait` of an open tracker never completes.
pub(super) fn tracker() -> TaskTracker {
    let tracker = TaskTracker::new();
    tracker.close();
    tracker
}

/// Waits until nothing is alive, or until the grace period is over.
async fn quiet_within(grace: Duration, alive: Arc<[TaskTracker]>) {
    let all_quiet = async {
        // Checked twice: a task may move from a tracker not yet read to one already read, and the second pass finds it.
        while !alive.iter().chain(&*alive).all(TaskTracker::is_empty) {
            for count in &*alive {
                count.wait().await;
            }
        }
    };
    if !grace.is_zero() {
        // The result is ignored; the counts are read afterwards.
        let _: Result<(), _> = tokio::time::timeout(grace, all_quiet).await;
    }
}

struct ArbiterPort {
    shared: Shared,
    /// Runtime of the driver. Its timers serve work on a runtime without timers.
    clock: tokio::runtime::Handle,
    chance: Chance,
    /// Tasks of the host; `None` after it was closed.
    tasks: RefCell<Option<Rc<LocalSet>>>,
    timers: RefCell<Timers<Box<dyn FnOnce()>>>,
    driver: RefCell<Option<Waker>>,
    /// Deadline of the driver's sleep; `u64::MAX` if there is none.
    slept_until: Cell<u64>,
    work_handle: OnceCell<tokio::runtime::Handle>,
}

impl ArbiterPort {
    fn now_micros(&self) -> u64 {
        micros(self.shared.origin.elapsed())
    }

    fn is_closed(&self) -> bool {
        self.tasks.borrow().is_none()
    }
}

impl Port for ArbiterPort {
    fn now(&self) -> Millis {
        self.now_micros() / 1_000
    }

    fn wall_clock(&self) -> Millis {
        // A clock before 1970 reads as 1970.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| micros(since) / 1_000)
    }

    fn spawn(&self, _label: Option<Label<'_>>, task: LocalBoxFuture<'static, ()>) {
        // Cloned, so that the borrow ends before the destructor of a refused task runs.
        let Some(tasks) = self.tasks.borrow().clone() else {
            survive("a task refused at shutdown", move || drop(task));
            return;
        };
        let contained = AssertUnwindSafe(task).catch_unwind().map(|ended| {
            if let Err(payload) = ended {
                let message = panic_message(payload);
                tracing::error!(message, "a task's panic was contained");
            }
        });
        tasks.spawn_local(self.shared.tasks().track_future(contained));
    }

    fn set_timer(&self, _label: Option<Label<'_>>, after: Millis, fire: Box<dyn FnOnce()>) -> TimerKey {
        // A deadline beyond the range saturates to `u64::MAX`, which never comes.
        let deadline = self.now_micros().saturating_add(after.saturating_mul(1_000));
        let key = self.timers.borrow_mut().set(deadline, fire);
        // A refused timer needs a key too, so it is set and removed.
        if self.is_closed() {
            self.cancel_timer(key);
        } else if deadline < self.slept_until.get()
            && let Some(driver) = self.driver.borrow().as_ref()
        {
            // The driver sleeps until a later deadline, and must set its sleep again.
            driver.wake_by_ref();
        }
        key
    }

    fn cancel_timer(&self, key: TimerKey) {
        let cancelled = self.timers.borrow_mut().take(key);
        // Dropped after the borrow ends: the callback's destructor may set or cancel timers.
        drop(cancelled);
    }

    fn work(&self, _label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        if self.is_closed() {
            survive("work refused at shutdown", move || drop(work));
            return WorkHandle::inert();
        }
        // Cached, because the pool's handle is behind a mutex.
        let handle = match self.work_handle.get() {
            Some(handle) => handle,
            None => match self.shared.pool.handle() {
                Ok(handle) => self.work_handle.get_or_init(|| handle),
                Err(error) => {
                    tracing::error!(%error, "no worker threads");
                    survive("work refused without threads", move || drop(work));
                    return WorkHandle::inert();
                }
            },
        };
        // Tracked, so that a stop waits for the work.
        let abort = self.shared.pool.in_flight().spawn_on(work, handle).abort_handle();
        WorkHandle::new(move || abort.abort())
    }

    fn external(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.work(label, work)
    }

    fn wait(&self, wait: BoxFuture<'static, ()>) {
        self.spawn(None, wait);
    }

    fn work_clock(&self) -> WorkClock {
        WorkClock::new(Arc::new(RealTime {
            origin: self.shared.origin,
            pool: Arc::clone(&self.shared.pool),
            otherwise: self.clock.clone(),
        }))
    }

    fn random(&self) -> u64 {
        self.chance.next()
    }
}

/// Cleans up after a driver on a thread that belongs to another program.
pub(super) struct LocalGuard {
    tag: ThreadTag,
    /// The work pool, if no one else closes it.
    pool: Option<Arc<WorkPool>>,
}

impl LocalGuard {
    pub(super) fn new(tag: ThreadTag, pool: Arc<WorkPool>) -> Self {
        Self { tag, pool: Some(pool) }
    }

    /// Leaves closing the work pool to the caller.
    pub(super) fn leave_work(mut self) {
        self.pool = None;
    }
}

impl Drop for LocalGuard {
    fn drop(&mut self) {
        self.tag.leave();
        if let Some(pool) = self.pool.take() {
            // The pool is closed without waiting, because the thread belongs to the embedding program.
            pool.close(Duration::ZERO);
        }
    }
}

/// The future that runs a thread's tasks, timers and jobs.
pub(super) struct Driver {
    port: Rc<ArbiterPort>,
    host: Host,
    jobs: UnboundedReceiver<Job>,
    sleep: Pin<Box<Sleep>>,
    ending: Option<Ending>,
    /// None on an arbiter's thread. Dropped after everything else here has ended.
    guard: Option<LocalGuard>,
}

/// Completes once everything is idle or the grace period is over.
struct Ending {
    over: LocalBoxFuture<'static, ()>,
    report: Option<Sender<Ended>>,
}

impl Driver {
    /// A host for the calling thread, and its driver. `clock` is the thread's runtime, `sleep` a timer of it.
    pub(super) fn new(
        shared: Shared,
        jobs: UnboundedReceiver<Job>,
        clock: tokio::runtime::Handle,
        sleep: Pin<Box<Sleep>>,
    ) -> Self {
        let chance = Chance::new(shared.seed);
        let port = Rc::new(ArbiterPort {
            shared,
            clock,
            chance,
            tasks: RefCell::new(Some(Rc::new(LocalSet::new()))),
            timers: RefCell::new(Timers::new()),
            driver: RefCell::new(None),
            slept_until: Cell::new(u64::MAX),
            work_handle: OnceCell::new(),
        });
        let host = Host::new(Rc::clone(&port) as Rc<dyn Port>);
        Self {
            port,
            host,
            jobs,
            sleep,
            ending: None,
            guard: None,
        }
    }

    /// The host of this driver.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Makes this the driver of a thread that is not an arbiter.
    pub(super) fn guarded_by(mut self, guard: LocalGuard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Runs until [`Job::End`] takes effect.
    pub(super) async fn run(mut self) {
        let tasks = self.port.tasks.borrow().clone();
        if let Some(tasks) = tasks {
            tasks.run_until(std::future::poll_fn(|task| self.turn(task))).await;
        }
    }

    /// Runs jobs and timers; the tasks run after it.
    fn turn(&mut self, task: &mut Context<'_>) -> Poll<()> {
        self.keep_waker(task);
        let more_jobs = self.run_jobs(task);
        let more_timers = self.fire_timers();
        if self.is_over(task) {
            return Poll::Ready(());
        }
        // With more to do the driver does not sleep, so the timer need not be set.
        if more_jobs || more_timers || !self.rest(task) {
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn keep_waker(&self, task: &Context<'_>) {
        let mut driver = self.port.driver.borrow_mut();
        // A clone of the waker costs an atomic operation, and the waker seldom changes.
        if !driver.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            *driver = Some(task.waker().clone());
        }
    }

    /// Runs jobs. Returns true if there may be more.
    fn run_jobs(&mut self, task: &mut Context<'_>) -> bool {
        for _ in 0..JOBS {
            match self.jobs.poll_recv(task) {
                Poll::Ready(Some(Job::Run { run, alive })) => {
                    survive("a job", || run(&self.host));
                    // Counted until here, so that a stop does not miss the tasks that the job spawned.
                    drop(alive);
                }
                Poll::Ready(Some(Job::End(End { grace, report }))) => {
                    let over = Box::pin(quiet_within(grace, Arc::clone(&self.port.shared.alive)));
                    self.ending = Some(Ending { over, report });
                }
                // `None`: `Inner` sent a `Job::End` before it dropped the senders.
                Poll::Ready(None) | Poll::Pending => return false,
            }
        }
        true
    }

    /// Fires the timers that are due. Returns true if there may be more.
    fn fire_timers(&mut self) -> bool {
        // Without timers the clock is not read.
        if self.port.timers.borrow().next_deadline().is_none() {
            return false;
        }
        let now = self.port.now_micros();
        for _ in 0..TIMERS {
            // Removed before it fires, because the callback may set and cancel timers.
            let due = self.port.timers.borrow_mut().pop_due(now);
            let Some(fire) = due else { return false };
            survive("a timer", fire);
        }
        true
    }

    /// Sleeps until the first deadline. Returns false if it has passed already.
    fn rest(&mut self, task: &mut Context<'_>) -> bool {
        let first = self.port.timers.borrow().next_deadline().unwrap_or(u64::MAX);
        // A reset moves the sleep in tokio's timer wheel, so an unchanged deadline is left alone.
        if self.port.slept_until.replace(first) != first {
            let deadline = self.port.shared.origin.checked_add(Duration::from_micros(first));
            // A deadline that the clock cannot represent is never reached.
            let Some(deadline) = deadline else { return true };
            self.sleep.as_mut().reset(deadline);
        }
        if first == u64::MAX || self.sleep.as_mut().poll(task).is_pending() {
            return true;
        }
        // The sleep has elapsed, so the next one is set even for an equal deadline.
        self.port.slept_until.set(u64::MAX);
        false
    }

    /// True if the driver must end now.
    fn is_over(&mut self, task: &mut Context<'_>) -> bool {
        let Some(ending) = &mut self.ending else { return false };
        ending.over.as_mut().poll(task).is_ready()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The host refuses work from here on. Destructors below can therefore detect the shutdown.
        let tasks = self.port.tasks.take();
        // Senders see the end from here on (`HostRuntime::has_ended`).
        self.jobs.close();
        let shared = &self.port.shared;
        // Counted before the drops below end them.
        let ended = Ended {
            arbiter: shared.arbiter,
            tasks_left: shared.tasks().len(),
            work_left: shared.pool.in_flight().len(),
        };
        // Moved out first, because destructors of callbacks may set or cancel timers.
        let timers = self.port.timers.replace(Timers::new());
        // Breaks a reference cycle: callbacks and tasks hold hosts, a host its port, and the port its timers and tasks.
        survive("the timers left at shutdown", move || drop(timers));
        survive("the tasks left at shutdown", move || drop(tasks));
        self.port.driver.replace(None);
        if let Some(report) = self.ending.take().and_then(|ending| ending.report) {
            if let Some(guard) = self.guard.take() {
                guard.leave_work();
            }
            // The receiver may have timed out.
            report.send(ended).unwrap_or(());
        }
    }
}

/// Real time, for work.
struct RealTime {
    origin: Instant,
    pool: Arc<WorkPool>,
    /// A runtime with timers, because the embedding program's runtime may have none.
    otherwise: tokio::runtime::Handle,
}

impl WorkTime for RealTime {
    fn now(&self) -> Millis {
        micros(self.origin.elapsed()) / 1_000
    }

    fn sleep(&self, after: Millis) -> BoxFuture<'static, ()> {
        // tokio binds a sleep to the runtime that is entered when it is created.
        let own = self.pool.own_handle();
        let _timers = own.as_ref().unwrap_or(&self.otherwise).enter();
        Box::pin(tokio::time::sleep(Duration::from_millis(after)))
    }
}

/// Converts to microseconds. Saturates after more than 500,000 years.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
