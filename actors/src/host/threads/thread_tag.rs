//! The runtime that a thread belongs to.

use std::cell::{Cell, RefCell};

use crate::host::Host;

thread_local! {
    /// The runtime that started this thread: it must not wait for itself.
    pub(super) static THREAD_OF: Cell<Option<u64>> = const { Cell::new(None) };

    /// True on a thread that carries that runtime's actors, false on one for work.
    pub(super) static IS_ACTOR_THREAD: Cell<bool> = const { Cell::new(false) };

    /// The local runtimes whose actors are tasks of this thread.
    static LOCAL_HOSTS: RefCell<Vec<(u64, Host)>> = const { RefCell::new(Vec::new()) };
}

/// Tells whether the calling thread carries the actors of one local runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTag(u64);

impl ThreadTag {
    pub(super) fn of(runtime: u64) -> Self {
        Self(runtime)
    }

    /// True if it does: it would wait for itself.
    pub fn is_here(self) -> bool {
        // A thread that is ending carries nobody any more.
        LOCAL_HOSTS
            .try_with(|hosts| hosts.borrow().iter().any(|(runtime, _)| *runtime == self.0))
            .unwrap_or(false)
    }

    /// The host, where it does.
    pub(super) fn host(self) -> Option<Host> {
        let own = |hosts: &RefCell<Vec<(u64, Host)>>| {
            let hosts = hosts.borrow();
            let own = hosts.iter().find(|(runtime, _)| *runtime == self.0);
            own.map(|(_, host)| host.clone())
        };
        LOCAL_HOSTS.try_with(own).unwrap_or(None)
    }

    /// From now on the calling thread carries it.
    pub(super) fn enter(self, host: Host) {
        LOCAL_HOSTS.with_borrow_mut(|hosts| hosts.push((self.0, host)));
    }

    /// From now on it carries it no longer.
    pub(super) fn leave(self) {
        let gone = LOCAL_HOSTS.try_with(|hosts| {
            let mut hosts = hosts.borrow_mut();
            let place = hosts.iter().position(|(runtime, _)| *runtime == self.0);
            place.map(|place| hosts.swap_remove(place))
        });
        // Dropped only now: the last of a host drops what it holds.
        drop(gone);
    }
}
