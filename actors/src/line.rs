//! The handle of a run's supervisor: what is told it comes in the order in which it was told.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::Addr;
use pirn_core::event::RaisedEvent;
use pirn_sync::Batches;

use crate::mailbox::RunActor;
use crate::supervisor::SupervisorMsg;

/// How many events the supervisor takes in one message at most.
const MOST: usize = 256;

/// A run's supervisor. Events come in their order too: those that were raised one after another come as one message, where
/// nothing else was told between them.
pub(crate) struct SupervisorLine {
    address: Addr<RunActor>,
    /// Whether it was told anything.
    is_told: AtomicBool,
    /// Most runs never hear an event from outside.
    raised: OnceLock<Batches<RaisedEvent>>,
}

impl SupervisorLine {
    pub(crate) fn new(address: Addr<RunActor>) -> Self {
        Self {
            address,
            is_told: AtomicBool::new(false),
            raised: OnceLock::new(),
        }
    }

    /// Whether the supervisor was told anything yet. What another thread tells it just now may have come before or after.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    pub(crate) fn do_send(&self, message: SupervisorMsg) {
        self.is_told.store(true, Ordering::Relaxed);
        self.address.do_send(message);
        if let Some(raised) = self.raised.get() {
            raised.seal();
        }
    }

    pub(crate) fn raise(&self, event: RaisedEvent) {
        self.is_told.store(true, Ordering::Relaxed);
        let raised = self.raised.get_or_init(|| Batches::new(MOST));
        raised.put(event, |batch| self.address.do_send(SupervisorMsg::Raise(batch)));
    }
}
