//! The queue of ready tasks, and its wakers.
//!
//! 1. A task is in the queue at most once, however often it is woken.
//! 2. Tasks woken on this thread are queued at once, in order. Tasks woken by other threads (external work) are held back until
//!    nothing else is ready, which limits the influence of real time on the order.
//! 3. The lock is never held while foreign code runs: wakers are called and values dropped after it is released.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use pirn_definition::Millis;

use super::order::Schedule;
use crate::host::timers::{TimerKey, Timers};

/// A ready task or timer.
pub(in crate::host) enum Ready {
    /// A task to poll, or to drop if it was aborted.
    Task(Arc<TaskState>),
    /// A timer to fire, unless it was cancelled.
    Timer(TimerKey),
}

/// State shared with wakers on other threads.
pub(in crate::host) struct Shared {
    thread: ThreadId,
    clock: AtomicU64,
    queues: Mutex<Queues>,
    changed: Condvar,
}

struct Queues {
    ready: VecDeque<Ready>,
    from_outside: VecDeque<Ready>,
    sleepers: Timers<Waker>,
    external: usize,
    /// Number of accesses of a store in flight.
    stores: usize,
    is_closed: bool,
}

impl Ready {
    /// Returns a number that identifies the task or timer.
    fn name(&self) -> u64 {
        match self {
            // The lowest bit distinguishes tasks from timers, whose numbers overlap.
            Self::Task(task) => task.number << 1,
            Self::Timer(key) => key.sequence << 1 | 1,
        }
    }
}

impl Queues {
    /// Admits the first task woken from outside if nothing else is ready. Only one: whether a second has arrived depends on
    /// another thread, and must not influence the choice.
    fn let_in(&mut self) {
        if self.ready.is_empty() {
            self.ready.extend(self.from_outside.pop_front());
        }
    }
}

impl Shared {
    /// State for the calling thread.
    pub(in crate::host) fn new() -> Arc<Self> {
        Arc::new(Self {
            thread: std::thread::current().id(),
            clock: AtomicU64::new(0),
            queues: Mutex::new(Queues {
                ready: VecDeque::new(),
                from_outside: VecDeque::new(),
                sleepers: Timers::new(),
                external: 0,
                stores: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
        })
    }

    /// Returns the virtual time.
    pub(in crate::host) fn now(&self) -> Millis {
        self.clock.load(Ordering::SeqCst)
    }

    /// Advances the virtual time; never moves it back.
    pub(in crate::host) fn advance_to(&self, now: Millis) {
        self.clock.fetch_max(now, Ordering::SeqCst);
    }

    /// Queues a ready task or timer.
    pub(in crate::host) fn push(&self, ready: Ready) {
        let is_home = std::thread::current().id() == self.thread;
        let mut queues = self.lock();
        if queues.is_closed {
            // Released first, because the destructor of a task may use the host.
            drop(queues);
            return drop(ready);
        }
        if is_home {
            queues.ready.push_back(ready);
        } else {
            queues.from_outside.push_back(ready);
            // The executor may be blocked in `wait_for_outside`.
            self.changed.notify_all();
        }
    }

    /// Removes the first element of the queue.
    pub(in crate::host) fn pop(&self) -> Option<Ready> {
        let mut queues = self.lock();
        queues.let_in();
        queues.ready.pop_front()
    }

    /// Removes the element chosen by `order`.
    pub(in crate::host) fn pop_by(&self, order: &mut dyn Schedule) -> Option<Ready> {
        let mut queues = self.lock();
        queues.let_in();
        if queues.ready.len() < 2 {
            return queues.ready.pop_front();
        }
        let names: Vec<u64> = queues.ready.iter().map(Ready::name).collect();
        match order.next(&names).min(names.len() - 1) {
            // `pop_front` keeps the order of the others: a schedule that always returns 0 is FIFO.
            0 => queues.ready.pop_front(),
            place => queues.ready.swap_remove_back(place),
        }
    }

    /// Returns the first deadline of sleeping work.
    pub(in crate::host) fn next_sleeper(&self) -> Option<Millis> {
        self.lock().sleepers.next_deadline()
    }

    /// True if sleeping work counts as progress.
    pub(in crate::host) fn has_foreground(&self) -> bool {
        self.lock().sleepers.has_foreground()
    }

    /// Wakes the work that is due.
    pub(in crate::host) fn wake_sleepers(&self) {
        let now = self.now();
        loop {
            // Locked for one sleeper at a time, because a waker may be foreign code.
            let due = self.lock().sleepers.pop_due(now);
            let Some(waker) = due else { return };
            waker.wake();
        }
    }

    /// Adds a sleeper that is woken at `deadline`. None if the host is closed.
    pub(in crate::host) fn add_sleeper(&self, deadline: Millis, is_background: bool, waker: Waker) -> Option<TimerKey> {
        let mut queues = self.lock();
        if queues.is_closed {
            drop(queues);
            drop(waker);
            return None;
        }
        // An executor that waits for external work must recompute its deadline.
        self.changed.notify_all();
        Some(if is_background {
            queues.sleepers.set_in_background(deadline, waker)
        } else {
            queues.sleepers.set(deadline, waker)
        })
    }

    /// Removes a sleeper.
    pub(in crate::host) fn remove_sleeper(&self, key: TimerKey) {
        // A separate statement, so that the lock is released before the waker is dropped.
        let removed = self.lock().sleepers.take(key);
        drop(removed);
    }

    /// Number of external work items in flight.
    pub(in crate::host) fn external(&self) -> usize {
        self.lock().external
    }

    /// True if [`Self::pop`] would return an element.
    pub(in crate::host) fn has_ready(&self) -> bool {
        let queues = self.lock();
        !queues.ready.is_empty() || !queues.from_outside.is_empty()
    }

    /// Counts an external work item until the guard is dropped.
    pub(in crate::host) fn enter_external(self: &Arc<Self>) -> ExternalGuard {
        self.lock().external += 1;
        ExternalGuard {
            shared: Arc::clone(self),
            is_store: false,
        }
    }

    /// Counts an access of a store until the guard is dropped.
    pub(in crate::host) fn enter_store(self: &Arc<Self>) -> ExternalGuard {
        self.lock().stores += 1;
        ExternalGuard {
            shared: Arc::clone(self),
            is_store: true,
        }
    }

    /// Blocks until another thread changes the state if a store is accessed. Returns false if none is.
    pub(in crate::host) fn wait_for_store(&self) -> bool {
        let queues = self.lock();
        let is_accessed = queues.stores > 0;
        // With a queued task the notification was sent already.
        if is_accessed && queues.from_outside.is_empty() {
            drop(self.changed.wait(queues));
        }
        is_accessed
    }

    /// Blocks until another thread changes the state, or until the first of `timer` and the sleepers' deadlines in real time.
    /// The deadline must not be before `now`.
    pub(in crate::host) fn wait_for_outside(&self, timer: Option<Millis>, now: Millis) {
        let queues = self.lock();
        // In these cases the notification was sent already, and the wait would not end.
        if !queues.from_outside.is_empty() || queues.external == 0 {
            return;
        }
        // Read under the lock: a sleeper added later notifies the wait.
        let sleeper = queues.sleepers.next_deadline();
        match timer.into_iter().chain(sleeper).min() {
            Some(deadline) => {
                let rest = Duration::from_millis(deadline.saturating_sub(now));
                drop(self.changed.wait_timeout(queues, rest));
            }
            None => drop(self.changed.wait(queues)),
        }
    }

    /// Closes the queue and drops its contents.
    pub(in crate::host) fn close(&self) {
        let forgotten = {
            let mut queues = self.lock();
            queues.is_closed = true;
            (
                std::mem::take(&mut queues.ready),
                std::mem::take(&mut queues.from_outside),
                std::mem::replace(&mut queues.sleepers, Timers::new()),
            )
        };
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // The state is consistent even after a panic, because no foreign code runs under the lock.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts an external work item.
pub(in crate::host) struct ExternalGuard {
    shared: Arc<Shared>,
    is_store: bool,
}

impl Drop for ExternalGuard {
    fn drop(&mut self) {
        let mut queues = self.shared.lock();
        if self.is_store {
            queues.stores -= 1;
        } else {
            queues.external -= 1;
        }
        drop(queues);
        self.shared.changed.notify_all();
    }
}

/// The part of a task shared with its wakers.
pub(in crate::host) struct TaskState {
    /// Index of the future.
    pub(in crate::host) slot: usize,
    /// Sequence number of the task; part of the schedule's fingerprint.
    pub(in crate::host) number: u64,
    is_queued: AtomicBool,
    is_ended: AtomicBool,
    is_aborted: AtomicBool,
    shared: Arc<Shared>,
}

impl TaskState {
    /// A task that has not been queued yet.
    pub(in crate::host) fn new(slot: usize, number: u64, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            slot,
            number,
            is_queued: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
            shared: Arc::clone(shared),
        })
    }

    /// Called before each poll: a later wake queues the task again.
    pub(in crate::host) fn leave_queue(&self) {
        self.is_queued.store(false, Ordering::SeqCst);
    }

    /// Marks the future as dropped.
    pub(in crate::host) fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
    }

    pub(in crate::host) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }

    /// Makes the executor drop the task in its next turn.
    pub(in crate::host) fn abort(self: &Arc<Self>) {
        // Set the flag before the wake, because the executor reads it when it takes the task from the queue.
        self.is_aborted.store(true, Ordering::SeqCst);
        self.wake_by_ref();
    }

    pub(in crate::host) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }
}

impl Wake for TaskState {
    fn wake(self: Arc<Self>) {
        if !self.is_ended() && !self.is_queued.swap(true, Ordering::SeqCst) {
            let shared = Arc::clone(&self.shared);
            shared.push(Ready::Task(self));
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Arc::clone(self).wake();
    }
}
