//! Backpressure on runs while the queue of an arbiter's event bus is long.
//!
//! A turn of a run can raise events faster than the bus delivers them, because the bus has only one turn among those of all runs.
//! The queue of the bus is therefore bounded by admission:
//!
//! | messages in the queue of the bus | a run that starts | a run that has more to do |
//! |---|---|---|
//! | fewer than [`STARTS`] | starts | has its turn |
//! | fewer than [`TURNS`] | waits | has its turn |
//! | more | waits | waits |
//!
//! Waiting runs are served in FIFO order, until the queue has [`STARTS`] messages again. Their inputs are queued. The bus never
//! waits for a run, so there is no deadlock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::host::Host;
use crate::protocol::bus::BusMsg;
use crate::protocol::mailbox::{Depth, PutOff};
use crate::protocol::supervisor::{SupervisorHandle, SupervisorMsg};

/// Queue length from which no run starts.
const STARTS: usize = 512;

/// Queue length from which no run has a turn.
const TURNS: usize = 1_024;

/// Maximum number of runs that are served before other tasks of the arbiter have their turn.
const AT_ONCE: usize = 16;

/// A waiting run.
enum Waits {
    Start(Arc<SupervisorHandle>),
    // Weak, so that a waiting turn does not keep an ended run in memory.
    Turn(Weak<dyn PutOff>),
}

/// Waiting runs of an arbiter; see the module.
pub(crate) struct Backlog {
    bus: Depth<BusMsg>,
    waiting: RefCell<VecDeque<Waits>>,
    /// A task that serves the waiting runs exists.
    is_served: Cell<bool>,
    /// Waker of that task while it waits for the bus.
    asleep: RefCell<Option<Waker>>,
}

impl Backlog {
    pub(crate) fn new(bus: Depth<BusMsg>) -> Self {
        Self {
            bus,
            waiting: RefCell::default(),
            is_served: Cell::default(),
            asleep: RefCell::default(),
        }
    }

    /// True if no run may start now.
    pub(crate) fn holds_starts(&self) -> bool {
        self.bus.waiting() >= STARTS
    }

    /// True if no run may have a turn now.
    pub(crate) fn holds_turns(&self) -> bool {
        self.bus.waiting() >= TURNS
    }

    /// Starts a run once the queue is short.
    pub(crate) fn start_later(self: &Rc<Self>, run: &Arc<SupervisorHandle>, host: &Host) {
        self.put(Waits::Start(Arc::clone(run)), host);
    }

    /// Gives a run a turn once the queue is short.
    pub(crate) fn turn_later(self: &Rc<Self>, run: Weak<dyn PutOff>, host: &Host) {
        self.put(Waits::Turn(run), host);
    }

    fn put(self: &Rc<Self>, waits: Waits, host: &Host) {
        self.waiting.borrow_mut().push_back(waits);
        // One task serves all waiting runs, which preserves their FIFO order.
        if self.is_served.replace(true) {
            return;
        }
        let own = Rc::clone(self);
        host.spawn(
            None,
            Box::pin(std::future::poll_fn(move |task| own.serve(task.waker()))),
        );
    }

    /// Serves waiting runs as long as the queue is short.
    fn serve(&self, waker: &Waker) -> Poll<()> {
        for _ in 0..AT_ONCE {
            // The lower limit applies to turns too: a run that resumed just below `TURNS` would be put off again by its next
            // events.
            if self.holds_starts() {
                // `shrinks` wakes this task; polling it before would only take turns from the bus.
                self.asleep.replace(Some(waker.clone()));
                return Poll::Pending;
            }
            let next = self.waiting.borrow_mut().pop_front();
            match next {
                None => {
                    self.is_served.set(false);
                    return Poll::Ready(());
                }
                Some(Waits::Start(run)) => run.do_send(SupervisorMsg::Begin),
                Some(Waits::Turn(run)) => {
                    // A run that ended while it waited is skipped.
                    if let Some(run) = run.upgrade() {
                        run.has_turn();
                    }
                }
            }
        }
        // Yields to the other tasks of the arbiter.
        waker.wake_by_ref();
        Poll::Pending
    }

    /// Called after the bus has handled a message.
    pub(crate) fn shrinks(&self) {
        if self.asleep.borrow().is_some() && !self.holds_starts() {
            self.wake();
        }
    }

    /// Releases all waiting runs, because the bus is gone.
    pub(crate) fn wake(&self) {
        if let Some(asleep) = self.asleep.take() {
            asleep.wake();
        }
    }
}
