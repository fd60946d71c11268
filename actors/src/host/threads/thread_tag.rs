//! The association of threads with runtimes.

use std::cell::{Cell, RefCell};

use crate::host::Host;

thread_local! {
    /// The runtime that started this thread. Waiting for that runtime here would deadlock.
    pub(super) static THREAD_OF: Cell<Option<u64>> = const { Cell::new(None) };

    /// True on an arbiter's thread of the runtime, false on a thread for work.
    pub(super) static IS_ACTOR_THREAD: Cell<bool> = const { Cell::new(false) };

    /// The local runtimes whose actors run on this thread.
    static LOCAL_HOSTS: RefCell<Vec<(u64, Host)>> = const { RefCell::new(Vec::new()) };
}

/// Tests whether the calling thread runs the actors of a local runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTag(u64);

impl ThreadTag {
    pub(super) fn of(runtime: u64) -> Self {
        Self(runtime)
    }

    /// True if the calling thread runs the actors. Waiting for the runtime there would deadlock.
    pub fn is_here(self) -> bool {
        // During thread termination the thread-local is gone, and no actors run here.
        LOCAL_HOSTS
            .try_with(|hosts| hosts.borrow().iter().any(|(runtime, _)| *runtime == self.0))
            .unwrap_or(false)
    }

    /// Returns the host if the calling thread runs the actors.
    pub(super) fn host(self) -> Option<Host> {
        let own = |hosts: &RefCell<Vec<(u64, Host)>>| {
            let hosts = hosts.borrow();
            let own = hosts.iter().find(|(runtime, _)| *runtime == self.0);
            own.map(|(_, host)| host.clone())
        };
        LOCAL_HOSTS.try_with(own).unwrap_or(None)
    }

    /// Registers the runtime with the calling thread.
    pub(super) fn enter(self, host: Host) {
        LOCAL_HOSTS.with_borrow_mut(|hosts| hosts.push((self.0, host)));
    }

    /// Removes the runtime from the calling thread.
    pub(super) fn leave(self) {
        let gone = LOCAL_HOSTS.try_with(|hosts| {
            let mut hosts = hosts.borrow_mut();
            let place = hosts.iter().position(|(runtime, _)| *runtime == self.0);
            place.map(|place| hosts.swap_remove(place))
        });
        // Dropped after the borrow ends: dropping the last handle of a host drops everything that it owns.
        drop(gone);
    }
}
