//! The threads for a runtime's work: the embedding program's tokio runtime, or a private one that is started on first use.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::HostStopped;
use super::thread_tag::THREAD_OF;

/// Runs the work of a runtime.
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
    /// A pool on `given`, or on a private runtime of `threads` threads.
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

    /// Tracker of the work in flight.
    pub(super) fn in_flight(&self) -> &TaskTracker {
        &self.in_flight
    }

    /// Returns the runtime to spawn on. The first call starts a private one.
    ///
    /// # Errors
    /// Fails if the runtime could not be created, or if the host has stopped.
    pub(super) fn handle(&self) -> io::Result<tokio::runtime::Handle> {
        // Locked until the runtime exists, so that two first calls build only one.
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
                    // A stop of the runtime on such a thread must not wait for itself.
                    .on_thread_start(move || THREAD_OF.set(Some(id)))
                    .enable_all()
                    .build()?;
                let handle = own.handle().clone();
                *runtime = WorkRuntime::Own(own);
                Ok(handle)
            }
        }
    }

    /// Returns the private runtime, if it was started.
    pub(super) fn own_handle(&self) -> Option<tokio::runtime::Handle> {
        match &*self.lock() {
            WorkRuntime::Own(own) => Some(own.handle().clone()),
            WorkRuntime::Given(_) | WorkRuntime::NotYet | WorkRuntime::Closed => None,
        }
    }

    /// Shuts down a private runtime; the embedding program's is not touched. Must not be called from async code unless `patience`
    /// is zero.
    pub(super) fn close(&self, patience: Duration) {
        let runtime = std::mem::replace(&mut *self.lock(), WorkRuntime::Closed);
        // Drop the runtime after the lock is released: destructors may request more work.
        match runtime {
            WorkRuntime::Own(own) => own.shutdown_timeout(patience),
            WorkRuntime::Given(_) | WorkRuntime::NotYet | WorkRuntime::Closed => {}
        }
    }

    /// Locks the mutex, ignoring poisoning: every critical section leaves the value consistent.
    fn lock(&self) -> MutexGuard<'_, WorkRuntime> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkPool {
    fn drop(&mut self) {
        // The last handle may be dropped on a thread of a runtime, which must not block.
        self.close(Duration::ZERO);
    }
}
