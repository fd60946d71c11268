//! The host of one actix arbiter, or of any thread that runs tokio's local tasks: one of those, the driver, runs
//! everything here: tasks, timers, what comes from other threads.
//!
//! 1. One driver, however many timers: it sleeps until the first deadline and is woken by an earlier one.
//! 2. Ticks are microseconds, so that a wait set in the middle of a millisecond is not short by the half.
//! 3. When the driver is dropped the host is closed: see [`super`] about refusing.
//! 4. Nothing is asked of tokio outside of the driver's turns, so a host may be used wherever its thread stands.

// The one place under actors/ that may ask tokio and the clock: everything else asks this port.
#![allow(clippy::disallowed_methods)]

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{BoxFuture, LocalBoxFuture};
use pirn_core::Millis;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep};

use super::buckets::Buckets;
use super::chance::Chance;
use super::load::{Count, Counted};
use super::local::{End, Home};
use super::pool::WorkPool;
use super::tasks::Tasks;
use super::timers::TimerKey;
use super::{Host, Port, WorkClock, WorkHandle, WorkTime, survive};

/// How many jobs run before the tasks have their turn.
const JOBS: usize = 256;

/// How many timers fire before they have theirs: each may be a thread's whole turn.
const TIMERS: usize = 64;

/// How many tasks have their turn before the thread's other tasks, as many as tokio's own `LocalSet` takes.
const TURNS: usize = 61;

/// What comes from another thread.
pub(super) enum Job {
    /// To be done here, counted as alive from the moment it was sent.
    Run {
        run: Box<dyn FnOnce(&Host) + Send>,
        alive: Counted,
    },
    /// The driver is to end, once it is quiet or the grace is over. Arbiters end with their thread.
    End(End),
}

/// What an arbiter shares with its runtime.
pub(super) struct Shared {
    /// What [`Port::now`] counts from.
    pub(super) origin: Instant,
    /// Where work runs.
    pub(super) pool: Arc<WorkPool>,
    /// A runtime whose timers work may use; the embedding program's need not have any.
    pub(super) clock: tokio::runtime::Handle,
    /// The tasks and jobs of this arbiter.
    pub(super) tasks: Arc<Count>,
    /// Seeds [`Port::random`].
    pub(super) seed: u64,
}

/// Makes this thread's host and starts its driver. Must run on the arbiter.
pub(super) fn start(shared: Shared, jobs: UnboundedReceiver<Job>) {
    tokio::task::spawn_local(driver(shared, jobs, Box::pin(tokio::time::sleep(Duration::ZERO))));
}

/// This thread's host and its driver, which is to be polled on this thread by one task.
pub(super) fn driver(shared: Shared, jobs: UnboundedReceiver<Job>, sleep: Pin<Box<Sleep>>) -> Driver {
    let chance = Chance::new(shared.seed);
    let port = Rc::new(ArbiterPort {
        shared,
        chance,
        tasks: Tasks::new(),
        timers: RefCell::new(Buckets::new()),
        driver: RefCell::new(None),
        is_in_turn: Cell::new(false),
        work_handle: OnceCell::new(),
        is_closed: Cell::new(false),
    });
    let host = Host::new(Rc::clone(&port) as Rc<dyn Port>);
    Driver {
        port,
        host,
        jobs,
        sleep,
        slept_until: None,
        ending: None,
        home: None,
    }
}

struct ArbiterPort {
    shared: Shared,
    chance: Chance,
    tasks: Tasks,
    timers: RefCell<Buckets<Box<dyn FnOnce()>>>,
    driver: RefCell<Option<Waker>>,
    /// Whether the driver is having its turn: it looks at the timers before it rests.
    is_in_turn: Cell<bool>,
    work_handle: OnceCell<tokio::runtime::Handle>,
    is_closed: Cell<bool>,
}

impl ArbiterPort {
    fn now_micros(&self) -> u64 {
        micros(self.shared.origin.elapsed())
    }

    fn wake_driver(&self) {
        if let Some(driver) = self.driver.borrow().as_ref() {
            driver.wake_by_ref();
        }
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

    fn spawn(&self, task: LocalBoxFuture<'static, ()>) {
        if self.is_closed.get() {
            return survive("a task refused at shutdown", move || drop(task));
        }
        self.tasks.spawn(task, self.shared.tasks.guard());
    }

    fn set_timer(&self, after: Millis, fire: Box<dyn FnOnce()>) -> TimerKey {
        let deadline = self.now_micros().saturating_add(after.saturating_mul(1_000));
        let key = self.timers.borrow_mut().set(deadline, fire);
        if self.is_closed.get() {
            self.cancel_timer(key);
        } else if !self.is_in_turn.get() {
            self.wake_driver();
        }
        key
    }

    fn cancel_timer(&self, key: TimerKey) {
        let cancelled = self.timers.borrow_mut().take(key);
        // Dropped only now: what the callback holds may set or cancel timers.
        drop(cancelled);
    }

    fn work(&self, work: BoxFuture<'static, ()>) -> WorkHandle {
        if self.is_closed.get() {
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
        let abort = handle
            .spawn(Tracked {
                future: work,
                _alive: self.shared.pool.in_flight().guard(),
            })
            .abort_handle();
        WorkHandle::new(move || abort.abort())
    }

    fn external(&self, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.work(work)
    }

    fn work_clock(&self) -> WorkClock {
        WorkClock::new(Arc::new(RealTime {
            origin: self.shared.origin,
            clock: self.shared.clock.clone(),
        }))
    }

    fn random(&self) -> u64 {
        self.chance.next()
    }
}

/// A future that is counted as alive until it has been dropped. The order of the fields is the order of their end.
struct Tracked<F: ?Sized> {
    future: Pin<Box<F>>,
    _alive: Counted,
}

impl<F: Future<Output = ()> + ?Sized> Future for Tracked<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(task)
    }
}

/// The one task that runs a thread's tasks, fires its timers and does what other threads sent.
pub(super) struct Driver {
    port: Rc<ArbiterPort>,
    host: Host,
    jobs: UnboundedReceiver<Job>,
    sleep: Pin<Box<Sleep>>,
    /// What `sleep` is set to.
    slept_until: Option<u64>,
    ending: Option<Ending>,
    /// Whose thread this is, where it is not an arbiter's. Dropped when everything here has ended.
    home: Option<Home>,
}

/// Ready once it is quiet, or the grace is over.
struct Ending {
    over: LocalBoxFuture<'static, ()>,
    end: End,
}

impl Driver {
    /// The host that it drives.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// The driver of a thread that is not an arbiter's.
    pub(super) fn at(mut self, home: Home) -> Self {
        self.home = Some(home);
        self
    }

    /// Runs what other threads sent. True if there may be more.
    fn run_jobs(&mut self, task: &mut Context<'_>) -> bool {
        for _ in 0..JOBS {
            match self.jobs.poll_recv(task) {
                Poll::Ready(Some(Job::Run { run, alive })) => {
                    survive("a job", || run(&self.host));
                    drop(alive);
                }
                Poll::Ready(Some(Job::End(end))) => {
                    let counts = [&self.port.shared.tasks, self.port.shared.pool.in_flight()].map(Arc::clone);
                    let over = Box::pin(end.over(counts));
                    self.ending = Some(Ending { over, end });
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
        let next = self.port.timers.borrow().next_deadline();
        let Some(first) = next else { return true };
        if self.slept_until != next {
            let deadline = self.port.shared.origin.checked_add(Duration::from_micros(first));
            // A deadline beyond what the clock can name is never reached.
            let Some(deadline) = deadline else { return true };
            self.sleep.as_mut().reset(deadline);
            self.slept_until = next;
        }
        let is_asleep = self.sleep.as_mut().poll(task).is_pending();
        if !is_asleep {
            self.slept_until = None;
        }
        is_asleep
    }

    /// Whether it was told to end, and the time has come.
    fn is_over(&mut self, task: &mut Context<'_>) -> bool {
        let Some(ending) = &mut self.ending else { return false };
        ending.over.as_mut().poll(task).is_ready()
    }

    /// Has everybody take a turn. True if there may be more.
    fn turn(&mut self, task: &mut Context<'_>) -> bool {
        self.port.is_in_turn.set(true);
        let more_jobs = self.run_jobs(task);
        let more_timers = self.fire_timers();
        let more_tasks = self.port.tasks.poll(TURNS);
        self.port.is_in_turn.set(false);
        more_jobs || more_timers || more_tasks
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let known = self
            .port
            .driver
            .borrow()
            .as_ref()
            .is_some_and(|waker| waker.will_wake(task.waker()));
        if !known {
            self.port.driver.replace(Some(task.waker().clone()));
        }
        let is_more = self.turn(task);
        if self.is_over(task) {
            return Poll::Ready(());
        }
        if is_more || !self.port.tasks.rest(task.waker()) || !self.rest(task) {
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.port.is_closed.set(true);
        // Whoever hears of what is dropped next can ask whether it is because all of it ends.
        self.jobs.close();
        let left = (
            self.port.shared.tasks.alive(),
            self.port.shared.pool.in_flight().alive(),
        );
        let timers = self.port.timers.replace(Buckets::new());
        // A callback and a task hold hosts, a host its port, the port its timers and tasks: this ends the circle.
        survive("the timers left at shutdown", move || drop(timers));
        self.port.tasks.clear();
        self.port.driver.replace(None);
        if let Some(ending) = self.ending.take() {
            let (tasks_left, work_left) = left;
            ending.end.tell(tasks_left, work_left, self.home.take());
        }
    }
}

/// Real time for work.
struct RealTime {
    origin: Instant,
    clock: tokio::runtime::Handle,
}

impl WorkTime for RealTime {
    fn now(&self) -> Millis {
        micros(self.origin.elapsed()) / 1_000
    }

    fn sleep(&self, after: Millis) -> BoxFuture<'static, ()> {
        let _on_our_clock = self.clock.enter();
        Box::pin(tokio::time::sleep(Duration::from_millis(after)))
    }
}

/// Whole microseconds; more than 500,000 years are cut off.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
