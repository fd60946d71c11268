//! Which runtime a thread belongs to.

use std::cell::Cell;

thread_local! {
    /// The runtime whose thread this is: it must not wait for itself.
    pub(super) static THREAD_OF: Cell<Option<u64>> = const { Cell::new(None) };
}
