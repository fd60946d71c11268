//! The tasks of one thread: its driver polls them, in the order in which they became ready.
//!
//! 1. A task is ready once, however often it is woken; what it is woken for while it is polled makes it ready again.
//! 2. Spawning and waking only queue, so both may be done anywhere on the thread, outside of any executor's turn too; a
//!    driver that rests is woken, from whichever thread that is.
//! 3. A task ends on this thread, with nothing borrowed: what its destructor spawns or wakes is queued like everything else.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures::future::LocalBoxFuture;
use pirn_sync::{ReadyQueue, WakeFlag};

use super::load::Counted;
use super::survive;

/// The tasks, and which of them are ready.
pub(super) struct Tasks {
    slots: RefCell<Slots>,
    ready: Arc<ReadyQueue<Ready>>,
    /// Taken from the queue, to be polled next.
    batch: RefCell<VecDeque<Ready>>,
}

#[derive(Default)]
struct Slots {
    all: Vec<Option<Task>>,
    free: Vec<usize>,
    born: u64,
}

struct Task {
    future: LocalBoxFuture<'static, ()>,
    awake: Arc<Awake>,
    waker: Waker,
    _alive: Counted,
}

/// A task that is ready: its slot, and which of the slot's tasks.
#[derive(Clone, Copy, PartialEq)]
struct Ready {
    slot: usize,
    born: u64,
}

/// A task's way back into the queue.
struct Awake {
    ready: Ready,
    flag: WakeFlag,
    queue: Arc<ReadyQueue<Ready>>,
}

impl Tasks {
    /// No tasks.
    pub(super) fn new() -> Self {
        Self {
            slots: RefCell::default(),
            ready: Arc::default(),
            batch: RefCell::default(),
        }
    }

    /// A task that is ready; it is counted as alive until it has been dropped.
    pub(super) fn spawn(&self, future: LocalBoxFuture<'static, ()>, alive: Counted) {
        let ready = {
            let slots = &mut *self.slots.borrow_mut();
            slots.born += 1;
            let born = slots.born;
            let slot = slots.free.pop().unwrap_or_else(|| {
                slots.all.push(None);
                slots.all.len() - 1
            });
            let ready = Ready { slot, born };
            let awake = Arc::new(Awake {
                ready,
                flag: WakeFlag::new(true),
                queue: Arc::clone(&self.ready),
            });
            slots.all[slot] = Some(Task {
                future,
                waker: Waker::from(Arc::clone(&awake)),
                awake,
                _alive: alive,
            });
            ready
        };
        self.ready.push(ready);
    }

    /// Polls at most so many tasks. True if there may be more that are ready.
    pub(super) fn poll(&self, at_most: usize) -> bool {
        for _ in 0..at_most {
            let Some(ready) = self.next() else { return false };
            self.poll_one(ready);
        }
        true
    }

    /// The driver: rests until a task is ready. False where one is already.
    pub(super) fn rest(&self, driver: &Waker) -> bool {
        self.batch.borrow().is_empty() && self.ready.rest(driver)
    }

    /// Ends every task.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.slots.borrow_mut()).all;
        for task in all.into_iter().flatten() {
            survive("a task left at shutdown", move || drop(task));
        }
        // Nobody rests here any more either.
        self.ready.take(&mut self.batch.borrow_mut());
    }

    fn next(&self) -> Option<Ready> {
        let mut batch = self.batch.borrow_mut();
        if batch.is_empty() {
            self.ready.take(&mut batch);
        }
        batch.pop_front()
    }

    fn poll_one(&self, ready: Ready) {
        // Taken out while it is polled: it may spawn.
        let Some(mut task) = self.slots.borrow_mut().take(ready) else {
            return;
        };
        task.awake.flag.lower();
        let mut is_pending = false;
        survive("a task", || {
            let mut context = Context::from_waker(&task.waker);
            is_pending = Pin::new(&mut task.future).poll(&mut context) == Poll::Pending;
        });
        if is_pending {
            self.slots.borrow_mut().put_back(ready, task);
        } else {
            survive("the end of a task", move || drop(task));
            self.slots.borrow_mut().free.push(ready.slot);
        }
    }
}

impl Slots {
    /// The task, where it has not ended.
    fn take(&mut self, ready: Ready) -> Option<Task> {
        let slot = self.all.get_mut(ready.slot)?;
        if slot.as_ref()?.awake.ready == ready {
            slot.take()
        } else {
            None
        }
    }

    fn put_back(&mut self, ready: Ready, task: Task) {
        self.all[ready.slot] = Some(task);
    }
}

impl Wake for Awake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.flag.raise() {
            self.queue.push(self.ready);
        }
    }
}
