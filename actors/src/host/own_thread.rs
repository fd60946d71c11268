//! Which runtime a thread belongs to.

use std::cell::{Cell, RefCell};

use super::Host;

thread_local! {
    /// The runtime whose thread this is: it must not wait for itself.
    pub(super) static THREAD_OF: Cell<Option<u64>> = const { Cell::new(None) };

    /// Whether it is one of that runtime's that carry actors, and not one for work.
    pub(super) static CARRIES_ACTORS: Cell<bool> = const { Cell::new(false) };

    /// The runtimes whose actors are tasks of this thread, which is nobody's or another's.
    static LODGERS: RefCell<Vec<(u64, Host)>> = const { RefCell::new(Vec::new()) };
}

/// Whether the calling thread carries the actors of one runtime that has no arbiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here(u64);

impl Here {
    pub(super) fn of(runtime: u64) -> Self {
        Self(runtime)
    }

    /// Whether it does: it would wait for itself.
    pub fn is_here(self) -> bool {
        // A thread that is ending carries nobody any more.
        LODGERS
            .try_with(|lodgers| lodgers.borrow().iter().any(|(runtime, _)| *runtime == self.0))
            .unwrap_or(false)
    }

    /// The host, where it does.
    pub(super) fn host(self) -> Option<Host> {
        let lodger = |lodgers: &RefCell<Vec<(u64, Host)>>| {
            let lodgers = lodgers.borrow();
            let lodger = lodgers.iter().find(|(runtime, _)| *runtime == self.0);
            lodger.map(|(_, host)| host.clone())
        };
        LODGERS.try_with(lodger).unwrap_or(None)
    }

    /// From now on the calling thread carries it.
    pub(super) fn move_in(self, host: Host) {
        LODGERS.with_borrow_mut(|lodgers| lodgers.push((self.0, host)));
    }

    /// From now on it carries it no longer.
    pub(super) fn move_out(self) {
        let gone = LODGERS.try_with(|lodgers| {
            let mut lodgers = lodgers.borrow_mut();
            let place = lodgers.iter().position(|(runtime, _)| *runtime == self.0);
            place.map(|place| lodgers.swap_remove(place))
        });
        // Dropped only now: the last of a host drops what it holds.
        drop(gone);
    }
}
