//! The executor of the simulated host.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use futures::future::{BoxFuture, LocalBoxFuture};
use pirn_core::thread::Interaction;
use pirn_definition::Millis;

use super::super::chance::{Chance, mix};
use super::super::explorer::{Choices, Next};
use super::super::timers::{TimerKey, Timers};
use super::super::{GiveAnswer, Label, Observation, Port, WorkClock, WorkHandle, survive};
use super::SimulatedConfig;
use super::clock::VirtualTime;
use super::external::ExternalPlace;
use super::order::{Random, Schedule};
use super::ready::{Ready, Shared, TaskState};

/// Slot of the `block_on` future, which is on the caller's stack.
pub(super) const MAIN_SLOT: usize = usize::MAX;

/// Condition under which the executor stops.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// No task is ready.
    Quiet,
    /// The clock has reached this time.
    Time(Millis),
    /// No task is ready, no timer is pending and no external work is in flight.
    Idle,
}

pub(super) struct Simulation {
    pub(super) shared: Arc<Shared>,
    /// Decides what runs next.
    order: RefCell<Option<Box<dyn Schedule>>>,
    /// Source of [`Port::random`].
    chance: Chance,
    wall_clock_origin: Millis,
    tasks: RefCell<Vec<Option<LocalBoxFuture<'static, ()>>>>,
    free: RefCell<Vec<usize>>,
    pub(super) alive: Cell<usize>,
    timers: RefCell<Timers<Box<dyn FnOnce()>>>,
    /// Number of tasks spawned so far.
    numbers: Cell<u64>,
    pub(super) fingerprint: Cell<u64>,
    external: ExternalPlace,
    /// Real and virtual time at which external work started to bind the clock. None if there is no such work.
    bound_since: Cell<Option<(Instant, Millis)>>,
    is_running: Cell<bool>,
    is_closed: Cell<bool>,
    choices: Option<Choices>,
}

impl Simulation {
    pub(super) fn new(config: SimulatedConfig) -> Self {
        Self {
            shared: Shared::new(),
            order: RefCell::new(config.schedule.or_else(|| {
                let seed = config.seed.filter(|_| config.choosing.is_none())?;
                Some(Box::new(Random::new(seed)))
            })),
            // Mixed, so that the numbers are independent of the order, which is seeded with the seed itself.
            chance: Chance::new(mix(config.seed.unwrap_or_default())),
            wall_clock_origin: config.wall_clock_origin,
            tasks: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            alive: Cell::new(0),
            timers: RefCell::new(Timers::new()),
            numbers: Cell::new(0),
            fingerprint: Cell::new(0),
            external: ExternalPlace::new(config.external),
            bound_since: Cell::new(None),
            is_running: Cell::new(false),
            is_closed: Cell::new(false),
            choices: config.choosing.map(Choices::new),
        }
    }

    /// Runs until `until`, or until `poll_main` returns true.
    pub(super) fn run(&self, until: Until, mut poll_main: impl FnMut() -> bool) {
        if self.is_running.replace(true) {
            // Called from inside a task, which is on the stack and cannot be polled.
            return;
        }
        let _running = Running(&self.is_running);
        loop {
            let next = match &mut *self.order.borrow_mut() {
                Some(order) => self.shared.pop_by(&mut **order),
                None => self.shared.pop(),
            };
            match next {
                Some(Ready::Task(task)) => {
                    // A task that was woken during its last poll is still in the queue.
                    if task.is_ended() {
                        continue;
                    }
                    self.note(task.number);
                    if task.slot != MAIN_SLOT {
                        self.run_task(&task);
                        continue;
                    }
                    task.leave_queue();
                    if poll_main() {
                        return;
                    }
                }
                Some(Ready::Timer(key)) => {
                    // Removed before it fires, because the callback may set and cancel timers.
                    let due = self.timers.borrow_mut().take(key);
                    if let Some(fire) = due {
                        // Inverted, so that a timer differs from a task with this number.
                        self.note(!key.sequence);
                        survive("a timer", fire);
                    }
                }
                None => {
                    let goes_on = match &self.choices {
                        Some(choices) => self.choose(choices),
                        None => self.wait(until),
                    };
                    if !goes_on {
                        return;
                    }
                }
            }
        }
    }

    fn run_task(&self, task: &Arc<TaskState>) {
        task.leave_queue();
        // Taken out while it is polled, because the task may spawn others.
        let Some(mut future) = self.tasks.borrow_mut()[task.slot].take() else {
            return;
        };
        let is_over = task.is_aborted() || {
            let waker = Waker::from(Arc::clone(task));
            let poll = catch_unwind(AssertUnwindSafe(|| {
                future.as_mut().poll(&mut Context::from_waker(&waker))
            }));
            match poll {
                Ok(Poll::Pending) => false,
                Ok(Poll::Ready(())) => true,
                Err(payload) => {
                    let message = crate::panic_text::panic_message(payload);
                    tracing::error!(message, "a task's panic was contained");
                    true
                }
            }
        };
        if is_over {
            task.end();
            // Dropped before its slot is free, because the destructor may spawn tasks.
            survive("the end of a task", move || drop(future));
            self.alive.set(self.alive.get() - 1);
            self.free.borrow_mut().push(task.slot);
        } else {
            self.tasks.borrow_mut()[task.slot] = Some(future);
        }
    }

    /// Called when nothing is ready: lets the chooser run one held step. Returns false if none is held, or if the chooser stops.
    fn choose(&self, choices: &Choices) -> bool {
        match choices.next(self.shared.now()) {
            Next::Run(Ready::Task(task), _) => {
                task.wake();
                true
            }
            Next::Run(timer @ Ready::Timer(_), due) => {
                self.shared.advance_to(due);
                self.shared.push(timer);
                true
            }
            Next::Nothing | Next::Stop => false,
        }
    }

    /// Called when nothing is ready: advances the clock or waits for external work. Returns false if neither is possible.
    fn wait(&self, until: Until) -> bool {
        let (limit, waits) = match until {
            Until::Quiet => (self.shared.now(), false),
            Until::Time(time) => (time, true),
            Until::Idle => (Millis::MAX, true),
        };
        // First, because the result may precede every timer: a store takes no virtual time, however slow it is.
        if waits && self.shared.wait_for_store() {
            return true;
        }
        if waits && self.shared.external() > 0 {
            let timer = self.timers.borrow().next_deadline();
            self.shared.wait_for_outside(timer, self.bound_now());
            // Read again, because real time has passed.
            self.shared.advance_to(self.bound_now());
            self.queue_due();
            return true;
        }
        // External work may have ended since the queue was checked: it wakes its task before it is uncounted.
        if self.shared.has_ready() {
            return true;
        }
        // Without external work the clock is free to jump again.
        self.bound_since.set(None);
        // Background timers alone must not advance the clock for ever.
        if matches!(until, Until::Idle) && !self.timers.borrow().has_foreground() && !self.shared.has_foreground() {
            return false;
        }
        match self.next_deadline() {
            Some(deadline) if deadline <= limit => {
                self.shared.advance_to(deadline);
                self.queue_due();
                true
            }
            Some(_) | None => false,
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        let timer = self.timers.borrow().next_deadline();
        let sleeper = self.shared.next_sleeper();
        match (timer, sleeper) {
            (Some(timer), Some(sleeper)) => Some(timer.min(sleeper)),
            (one, other) => one.or(other),
        }
    }

    /// Returns the virtual time while external work binds it to the real clock.
    #[allow(clippy::disallowed_methods)] // The only place where the virtual clock reads the real one.
    fn bound_now(&self) -> Millis {
        let (since, began) = self
            .bound_since
            .get()
            .unwrap_or_else(|| (Instant::now(), self.shared.now()));
        self.bound_since.set(Some((since, began)));
        let elapsed = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        began.saturating_add(elapsed)
    }

    /// Queues due callbacks, then due sleepers, each in the order they were set. A callback stays registered until it runs, so it
    /// can still be cancelled.
    fn queue_due(&self) {
        let now = self.shared.now();
        for key in self.timers.borrow().due(now) {
            self.shared.push(Ready::Timer(key));
        }
        self.shared.wake_sleepers();
    }

    fn virtual_time(&self, is_background: bool) -> WorkClock {
        WorkClock::new(Arc::new(VirtualTime {
            shared: Arc::clone(&self.shared),
            is_instant: self.choices.is_some(),
            is_background,
        }))
    }

    pub(super) fn next_number(&self) -> u64 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        number
    }

    fn note(&self, what: u64) {
        self.fingerprint.set(mix(self.fingerprint.get() ^ mix(what)));
    }

    /// Starts work; an explorer holds it.
    fn start_work(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        let started = match &self.choices {
            Some(choices) => self.enter(work).inspect(|task| choices.hold_task(label, task)),
            None => self.start(work),
        };
        started.map_or_else(WorkHandle::inert, |task| WorkHandle::new(move || task.abort()))
    }

    fn start(&self, future: LocalBoxFuture<'static, ()>) -> Option<Arc<TaskState>> {
        self.enter(future).inspect(|task| Arc::clone(task).wake())
    }

    /// Creates a task that is not queued.
    fn enter(&self, future: LocalBoxFuture<'static, ()>) -> Option<Arc<TaskState>> {
        if self.is_closed.get() {
            survive("a task refused at shutdown", move || drop(future));
            return None;
        }
        // Slots are reused, so that the table does not grow with the number of tasks ever spawned.
        let slot = self.free.borrow_mut().pop();
        let mut tasks = self.tasks.borrow_mut();
        let slot = if let Some(slot) = slot {
            tasks[slot] = Some(future);
            slot
        } else {
            tasks.push(Some(future));
            tasks.len() - 1
        };
        drop(tasks);
        self.alive.set(self.alive.get() + 1);
        Some(TaskState::new(slot, self.next_number(), &self.shared))
    }

    pub(super) fn close(&self) {
        // Set first, so that the destructors below cannot add tasks or timers.
        self.is_closed.set(true);
        self.shared.close();
        // Moved out first, because destructors of tasks may use the simulation.
        let tasks = self.tasks.take();
        for task in tasks.into_iter().flatten() {
            survive("a task left at the end", move || drop(task));
        }
        let timers = self.timers.replace(Timers::new());
        // Breaks a reference cycle: callbacks hold hosts, a host its port, and the port its timers.
        survive("the timers left at the end", move || drop(timers));
        self.alive.set(0);
    }
}

impl Port for Simulation {
    fn now(&self) -> Millis {
        self.shared.now()
    }

    fn wall_clock(&self) -> Millis {
        self.wall_clock_origin.saturating_add(self.shared.now())
    }

    fn spawn(&self, label: Option<Label<'_>>, task: LocalBoxFuture<'static, ()>) {
        match &self.choices {
            // A task without a label is no step of a run, and thus no choice.
            Some(choices) if label.is_some() => {
                if let Some(task) = self.enter(task) {
                    choices.hold_task(label, &task);
                }
            }
            Some(_) | None => {
                self.start(task);
            }
        }
    }

    fn set_timer(&self, label: Option<Label<'_>>, after: Millis, fire: Box<dyn FnOnce()>) -> TimerKey {
        let deadline = self.shared.now().saturating_add(after);
        let key = self.timers.borrow_mut().set(deadline, fire);
        // A refused timer needs a key too, so it is set and removed.
        if self.is_closed.get() {
            self.cancel_timer(key);
        } else if let Some(choices) = &self.choices {
            choices.hold_timer(label, key, self.shared.now(), after);
        }
        key
    }

    fn set_background_timer(&self, after: Millis, fire: Box<dyn FnOnce()>) -> TimerKey {
        // For an explorer no timer is in the background: it holds all of them.
        if self.is_closed.get() || self.choices.is_some() {
            return self.set_timer(None, after, fire);
        }
        let deadline = self.shared.now().saturating_add(after);
        self.timers.borrow_mut().set_in_background(deadline, fire)
    }

    fn set_quiet_timer(&self, after: Millis, fire: Box<dyn FnOnce()>) -> Option<TimerKey> {
        if self.choices.is_some() {
            return None;
        }
        Some(self.set_background_timer(after, fire))
    }

    fn cancel_timer(&self, key: TimerKey) {
        let cancelled = self.timers.borrow_mut().take(key);
        if let Some(choices) = &self.choices {
            choices.forget_timer(key);
        }
        // Dropped after the borrow ends: the callback's destructor may set or cancel timers.
        drop(cancelled);
    }

    fn work(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.start_work(label, work)
    }

    fn external(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        if self.is_closed.get() {
            survive("work refused at shutdown", move || drop(work));
            return WorkHandle::inert();
        }
        if self.choices.is_some() {
            return self.start_work(label, work);
        }
        // Counted before the work starts, so that the clock cannot jump in between.
        self.external.start(work, self.shared.enter_external())
    }

    fn access_store(&self, work: BoxFuture<'static, ()>) -> WorkHandle {
        if self.is_closed.get() || self.choices.is_some() {
            return self.external(None, work);
        }
        self.external.start(work, self.shared.enter_store())
    }

    fn offer_answers(&self, label: Label<'_>, question: &Arc<Interaction>, give: GiveAnswer) -> Vec<WorkHandle> {
        let Some(choices) = &self.choices else {
            return Vec::new();
        };
        let offered = choices.answers_to(question).into_iter().filter_map(|answer| {
            let (shown, question, give) = (answer.to_string(), Arc::clone(question), Rc::clone(&give));
            let task = self.enter(Box::pin(async move { give(&question, answer) }))?;
            choices.hold_answer(label, shown, &task);
            Some(WorkHandle::new(move || task.abort()))
        });
        offered.collect()
    }

    fn work_clock(&self) -> WorkClock {
        self.virtual_time(false)
    }

    fn background_work_clock(&self) -> WorkClock {
        self.virtual_time(true)
    }

    fn random(&self) -> u64 {
        // Random numbers must not depend on the order that is being explored.
        if self.choices.is_some() { 0 } else { self.chance.next() }
    }

    fn picks_order(&self) -> bool {
        self.choices.is_some() || self.order.borrow().is_some()
    }

    fn waits_for_threads(&self) -> bool {
        true
    }

    fn observes(&self) -> bool {
        self.choices.is_some()
    }

    fn observe(&self, observation: Observation) {
        if let Some(released) = self.choices.as_ref().and_then(|choices| choices.note(observation)) {
            released.wake();
        }
    }
}

/// Resets the flag at the end of a run, also on a panic.
struct Running<'a>(&'a Cell<bool>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
