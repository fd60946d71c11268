//! The bus's way to the trigger matcher, which lives on the same thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::Addr;
use pirn_core::event::Event;

use crate::triggers::{MatcherMsg, TriggerMatcherActor};

/// Events that the bus has left for the matcher.
pub(crate) type Inbox = Rc<RefCell<Vec<Arc<Event>>>>;

/// The bus's way to the matcher. They live on one thread: events lie in an inbox, and one message announces as many as
/// come before it is handled.
pub(crate) struct MatcherAddr {
    address: Addr<TriggerMatcherActor>,
    inbox: Inbox,
}

impl MatcherAddr {
    pub(crate) fn new(address: Addr<TriggerMatcherActor>, inbox: Inbox) -> Self {
        Self { address, inbox }
    }

    pub(crate) fn do_send(&self, message: MatcherMsg) {
        self.address.do_send(message);
    }

    pub(crate) fn happened(&self, event: Arc<Event>) {
        let mut events = self.inbox.borrow_mut();
        if events.is_empty() {
            self.address.do_send(MatcherMsg::Happened);
        }
        events.push(event);
    }
}
