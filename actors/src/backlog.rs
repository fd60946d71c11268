//! The backlog of an arbiter's event bus, and the runs that wait until it is short.
//!
//! A run's turn raises events faster than the bus, which has its own turn among those of all runs, delivers them. So what waits for
//! the bus is bounded by admission:
//!
//! | messages that wait for the bus | a run that starts | a run that has more to do |
//! |---|---|---|
//! | fewer than [`STARTS`] | starts | has its turn |
//! | fewer than [`TURNS`] | waits | has its turn |
//! | more | waits | waits |
//!
//! Runs that wait have their turns in the order in which they came, one after another, until there are [`STARTS`] again. What a run is
//! told meanwhile is put into its queue. The bus waits for no run, so nothing waits for ever.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::host::Host;
use crate::protocol::bus::BusMsg;
use crate::protocol::mailbox::{Depth, PutOff};
use crate::protocol::supervisor::{SupervisorHandle, SupervisorMsg};

/// Messages that wait for the bus: from here on no run starts.
const STARTS: usize = 512;

/// Messages that wait for the bus: from here on no run has a turn.
const TURNS: usize = 1_024;

/// Runs that have their turns before other tasks of the arbiter have theirs.
const AT_ONCE: usize = 16;

/// A run that waits.
enum Waits {
    Start(Arc<SupervisorHandle>),
    Turn(Weak<dyn PutOff>),
}

/// See the module.
pub(crate) struct Backlog {
    bus: Depth<BusMsg>,
    waiting: RefCell<VecDeque<Waits>>,
    /// A task gives those that wait their turns.
    is_served: Cell<bool>,
    /// That task's, while it waits for the bus.
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

    /// True if a run is not to start now.
    pub(crate) fn holds_starts(&self) -> bool {
        self.bus.waiting() >= STARTS
    }

    /// True if no run is to have a turn now.
    pub(crate) fn holds_turns(&self) -> bool {
        self.bus.waiting() >= TURNS
    }

    /// A run is told to begin when the backlog is short.
    pub(crate) fn start_later(self: &Rc<Self>, run: &Arc<SupervisorHandle>, host: &Host) {
        self.put(Waits::Start(Arc::clone(run)), host);
    }

    /// A run has its turn when the backlog is short.
    pub(crate) fn turn_later(self: &Rc<Self>, run: Weak<dyn PutOff>, host: &Host) {
        self.put(Waits::Turn(run), host);
    }

    fn put(self: &Rc<Self>, waits: Waits, host: &Host) {
        self.waiting.borrow_mut().push_back(waits);
        if self.is_served.replace(true) {
            return;
        }
        let own = Rc::clone(self);
        host.spawn(
            None,
            Box::pin(std::future::poll_fn(move |task| own.serve(task.waker()))),
        );
    }

    /// Gives turns while the backlog is short.
    fn serve(&self, waker: &Waker) -> Poll<()> {
        for _ in 0..AT_ONCE {
            if self.holds_starts() {
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
                    if let Some(run) = run.upgrade() {
                        run.has_turn();
                    }
                }
            }
        }
        waker.wake_by_ref();
        Poll::Pending
    }

    /// The bus has handled a message.
    pub(crate) fn shrinks(&self) {
        if self.asleep.borrow().is_some() && !self.holds_starts() {
            self.wake();
        }
    }

    /// The bus is gone: nothing waits for it any more.
    pub(crate) fn wake(&self) {
        if let Some(asleep) = self.asleep.take() {
            asleep.wake();
        }
    }
}
