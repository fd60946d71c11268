//! The threads for a runtime's work: the embedding program's tokio runtime, or some of our own, started late.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::HostStopped;
use super::thread_tag::THREAD_OF;

/// The pool that work runs on.
pub(super) struct WorkPool {
    id: u64,
    name: String,
    threads: usize,
    in_flight: TaskTracker,
    runtime: Mutex<WorkRuntime>,
}

enum WorkRuntime {
    Given(tokio::runtime::Handle),
    NotYet,
    Own(tokio::runtime::Runtime),
    Closed,
}

impl WorkPool {
    /// On `given`, or on as many `threads` of our own.
    pub(super) fn new(
        id: u64,
        name: &str,
        threads: usize,
        given: Option<tokio::runtime::Handle>,
        in_flight: TaskTracker,
    ) -> Self {
        Self {
            id,
            name: format!("{name}-work"),
            threads,
            in_flight,
            runtime: Mutex::new(given.map_or(WorkRuntime::NotYet, WorkRuntime::Given)),
        }
    }

    /// The work in flight.
    pub(super) fn in_flight(&self) -> &TaskTracker {
        &self.in_flight
    }

    /// The runtime to spawn on; our own is started by the first who asks.
    ///
    /// # Errors
    /// It could not be made, or the host has stopped.
    pub(super) fn handle(&self) -> io::Result<tokio::runtime::Handle> {
        let mut runtime = self.lock();
        match &*runtime {
            WorkRuntime::Given(handle) => Ok(handle.clone()),
            WorkRuntime::Own(own) => Ok(own.handle().clone()),
            WorkRuntime::Closed => Err(io::Error::other(HostStopped)),
            WorkRuntime::NotYet => {
                let id = self.id;
                let own = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(self.threads)
                    .thread_name(&self.name)
                    .on_thread_start(move || THREAD_OF.set(Some(id)))
                    .enable_all()
                    .build()?;
                let handle = own.handle().clone();
                *runtime = WorkRuntime::Own(own);
                Ok(handle)
            }
        }
    }

    /// Our own runtime, where there is one.
    pub(super) fn own_handle(&self) -> Option<tokio::runtime::Handle> {
        match &*self.lock() {
            WorkRuntime::Own(own) => Some(own.handle().clone()),
            WorkRuntime::Given(_) | WorkRuntime::NotYet | WorkRuntime::Closed => None,
        }
    }

    /// Ends our own threads; the embedding program's are its own business. Where `patience` is not zero, not to be called
    /// from async code.
    pub(super) fn close(&self, patience: Duration) {
        let runtime = std::mem::replace(&mut *self.lock(), WorkRuntime::Closed);
        // Not under the lock: what ends here may ask for more work.
        match runtime {
            WorkRuntime::Own(own) => own.shutdown_timeout(patience),
            WorkRuntime::Given(_) | WorkRuntime::NotYet | WorkRuntime::Closed => {}
        }
    }

    /// The lock, also after a panic under it: every holder leaves the runtime whole.
    fn lock(&self) -> MutexGuard<'_, WorkRuntime> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkPool {
    fn drop(&mut self) {
        // Whoever is last may be a thread of a runtime, which must not wait.
        self.close(Duration::ZERO);
    }
}
