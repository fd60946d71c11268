//! The host of one thread: of an arbiter, or of any that runs tokio's local tasks. One future, the driver, runs everything
//! here: tasks, timers, what comes from other threads.
//!
//! 1. The tasks are those of a `LocalSet` that the driver runs. So a task may be spawned wherever the thread stands, also
//!    where tokio's own `spawn_local` panics because no local task is running.
//! 2. One timer of tokio's stands for all that are set here, for the first deadline. Timers fire by deadline, and of one
//!    deadline in the order they were set: tokio promises no order.
//! 3. Ticks are microseconds, so that a wait set in the middle of a millisecond is not short by the half.
//! 4. When the driver is dropped the host is closed: see [`super::super`] about refusing.

// The one place under actors/ that may ask tokio and the clock: everything else asks this port.
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
use pirn_core::Millis;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::LocalSet;
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::local::LocalGuard;
use super::work::WorkPool;
use crate::host::chance::Chance;
use crate::host::timers::{TimerKey, Timers};
use crate::host::{Host, Label, Port, WorkClock, WorkHandle, WorkTime, survive};
use crate::panic_text::panic_message;

/// Number of jobs that run before the tasks have their turn.
const JOBS: usize = 256;

/// Number of timers that fire before they have theirs: each may be a thread's whole turn.
const TIMERS: usize = 64;

/// A message from another thread.
pub(super) enum Job {
    /// To be done here, counted as alive from the moment it was sent.
    Run {
        run: Box<dyn FnOnce(&Host) + Send>,
        alive: TaskTrackerToken,
    },
    /// The driver is to end, once everything is quiet or the grace is over.
    End(End),
}

/// Has a driver end.
pub(super) struct End {
    pub(super) grace: Duration,
    /// Whoever waits for the end; it sees to the threads for work too.
    pub(super) report: Option<Sender<Ended>>,
}

/// A driver has ended, and everything it drove was dropped. The counts are those when the grace was over.
pub(super) struct Ended {
    pub(super) arbiter: usize,
    pub(super) tasks_left: usize,
    pub(super) work_left: usize,
}

/// The part of a runtime that an arbiter needs.
pub(super) struct Shared {
    /// The arbiter's index.
    pub(super) arbiter: usize,
    /// [`Port::now`] counts from here.
    pub(super) origin: Instant,
    /// The pool that work runs on.
    pub(super) pool: Arc<WorkPool>,
    /// The tasks and jobs of every arbiter of the runtime, and its work.
    pub(super) alive: Arc<[TaskTracker]>,
    /// Seeds [`Port::random`].
    pub(super) seed: u64,
}

impl Shared {
    fn tasks(&self) -> &TaskTracker {
        &self.alive[self.arbiter]
    }
}

/// A count of what is alive that can be waited for: it is closed from the start, so that it is quiet whenever it is zero.
pub(super) fn tracker() -> TaskTracker {
    let tracker = TaskTracker::new();
    tracker.close();
    tracker
}

/// Waits until nothing is alive, or the grace is over.
async fn quiet_within(grace: Duration, alive: Arc<[TaskTracker]>) {
    let all_quiet = async {
        // Two looks: what moved from a count not yet read to one read already is seen by the second.
        while !alive.iter().chain(&*alive).all(TaskTracker::is_empty) {
            for count in &*alive {
                count.wait().await;
            }
        }
    };
    if !grace.is_zero() {
        // In time or not: the counts tell.
        let _: Result<(), _> = tokio::time::timeout(grace, all_quiet).await;
    }
}

struct ArbiterPort {
    shared: Shared,
    /// A runtime whose timers work may use where its own has none: the one that runs the driver.
    clock: tokio::runtime::Handle,
    chance: Chance,
    /// None once the host is closed.
    tasks: RefCell<Option<Rc<LocalSet>>>,
    timers: RefCell<Timers<Box<dyn FnOnce()>>>,
    driver: RefCell<Option<Waker>>,
    /// The deadline that the driver sleeps until; the largest number where there is none.
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
        // A clock set before 1970 is taken as 1970.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| micros(since) / 1_000)
    }

    fn spawn(&self, _label: Option<Label<'_>>, task: LocalBoxFuture<'static, ()>) {
        let Some(tasks) = self.tasks.borrow().clone() else {
            return survive("a task refused at shutdown", move || drop(task));
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
        let deadline = self.now_micros().saturating_add(after.saturating_mul(1_000));
        let key = self.timers.borrow_mut().set(deadline, fire);
        if self.is_closed() {
            self.cancel_timer(key);
        } else if deadline < self.slept_until.get()
            && let Some(driver) = self.driver.borrow().as_ref()
        {
            driver.wake_by_ref();
        }
        key
    }

    fn cancel_timer(&self, key: TimerKey) {
        let cancelled = self.timers.borrow_mut().take(key);
        // Dropped only now: what the callback holds may set or cancel timers.
        drop(cancelled);
    }

    fn work(&self, _label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        if self.is_closed() {
            survive("work refused at shutdown", move || drop(work));
            return WorkHandle::inert();
        }
        let handle = match self.work_handle.get() {
            Some(handle) => handle,
            None => match self.shared.pool.handle() {
                Ok(handle) => self.work_handle.get_or_init(|| handle),
                Err(error) => {
                    tracing::error!(%error, "no threads for work");
                    survive("work refused without threads", move || drop(work));
                    return WorkHandle::inert();
                }
            },
        };
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

/// The future that runs a thread's tasks, fires its timers and does what other threads sent.
pub(super) struct Driver {
    port: Rc<ArbiterPort>,
    host: Host,
    jobs: UnboundedReceiver<Job>,
    sleep: Pin<Box<Sleep>>,
    ending: Option<Ending>,
    /// None on an arbiter's thread. Dropped when everything here has ended.
    guard: Option<LocalGuard>,
}

/// Over once everything is quiet, or the grace has passed.
struct Ending {
    over: LocalBoxFuture<'static, ()>,
    report: Option<Sender<Ended>>,
}

impl Driver {
    /// A host of the calling thread, and its driver. `clock` is the thread's runtime, `sleep` a timer of it.
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

    /// The host that it drives.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// The driver of a thread that is not an arbiter.
    pub(super) fn guarded_by(mut self, guard: LocalGuard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Runs until it is told to end.
    pub(super) async fn run(mut self) {
        let tasks = self.port.tasks.borrow().clone();
        if let Some(tasks) = tasks {
            tasks.run_until(std::future::poll_fn(|task| self.turn(task))).await;
        }
    }

    /// A turn of what is not a task; the tasks have theirs after it.
    fn turn(&mut self, task: &mut Context<'_>) -> Poll<()> {
        self.keep_waker(task);
        let more_jobs = self.run_jobs(task);
        let more_timers = self.fire_timers();
        if self.is_over(task) {
            return Poll::Ready(());
        }
        if more_jobs || more_timers || !self.rest(task) {
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn keep_waker(&self, task: &Context<'_>) {
        let mut driver = self.port.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            *driver = Some(task.waker().clone());
        }
    }

    /// Runs what other threads sent. True if there may be more.
    fn run_jobs(&mut self, task: &mut Context<'_>) -> bool {
        for _ in 0..JOBS {
            match self.jobs.poll_recv(task) {
                Poll::Ready(Some(Job::Run { run, alive })) => {
                    survive("a job", || run(&self.host));
                    drop(alive);
                }
                Poll::Ready(Some(Job::End(End { grace, report }))) => {
                    let over = Box::pin(quiet_within(grace, Arc::clone(&self.port.shared.alive)));
                    self.ending = Some(Ending { over, report });
                }
                Poll::Ready(None) | Poll::Pending => return false,
            }
        }
        true
    }

    /// Fires what is due. True if there may be more.
    fn fire_timers(&mut self) -> bool {
        if self.port.timers.borrow().next_deadline().is_none() {
            return false;
        }
        let now = self.port.now_micros();
        for _ in 0..TIMERS {
            // Taken before it runs: a callback sets and cancels timers.
            let due = self.port.timers.borrow_mut().pop_due(now);
            let Some(fire) = due else { return false };
            survive("a timer", fire);
        }
        true
    }

    /// Sleeps until the first deadline. False if that has passed already.
    fn rest(&mut self, task: &mut Context<'_>) -> bool {
        let first = self.port.timers.borrow().next_deadline().unwrap_or(u64::MAX);
        if self.port.slept_until.replace(first) != first {
            let deadline = self.port.shared.origin.checked_add(Duration::from_micros(first));
            // A deadline beyond what the clock can name is never reached.
            let Some(deadline) = deadline else { return true };
            self.sleep.as_mut().reset(deadline);
        }
        if first == u64::MAX || self.sleep.as_mut().poll(task).is_pending() {
            return true;
        }
        self.port.slept_until.set(u64::MAX);
        false
    }

    /// True if it was told to end, and the time has come.
    fn is_over(&mut self, task: &mut Context<'_>) -> bool {
        let Some(ending) = &mut self.ending else { return false };
        ending.over.as_mut().poll(task).is_ready()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // From here on the host refuses. Whoever hears of what is dropped next can ask whether it is because all of it ends.
        let tasks = self.port.tasks.take();
        self.jobs.close();
        let shared = &self.port.shared;
        let ended = Ended {
            arbiter: shared.arbiter,
            tasks_left: shared.tasks().len(),
            work_left: shared.pool.in_flight().len(),
        };
        let timers = self.port.timers.replace(Timers::new());
        // A callback and a task hold hosts, a host its port, the port its timers and tasks: this ends the circle.
        survive("the timers left at shutdown", move || drop(timers));
        survive("the tasks left at shutdown", move || drop(tasks));
        self.port.driver.replace(None);
        if let Some(report) = self.ending.take().and_then(|ending| ending.report) {
            if let Some(guard) = self.guard.take() {
                guard.leave_work();
            }
            // Whoever waited may have waited long enough.
            report.send(ended).unwrap_or(());
        }
    }
}

/// Real time for work.
struct RealTime {
    origin: Instant,
    pool: Arc<WorkPool>,
    /// A runtime with timers: one that the embedding program gives for work need not have any.
    otherwise: tokio::runtime::Handle,
}

impl WorkTime for RealTime {
    fn now(&self) -> Millis {
        micros(self.origin.elapsed()) / 1_000
    }

    fn sleep(&self, after: Millis) -> BoxFuture<'static, ()> {
        let own = self.pool.own_handle();
        let _timers = own.as_ref().unwrap_or(&self.otherwise).enter();
        Box::pin(tokio::time::sleep(Duration::from_millis(after)))
    }
}

/// Whole microseconds; more than 500,000 years are cut off.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
