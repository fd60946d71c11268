//! Where a runtime's work runs: on the embedding program's tokio runtime, or on threads of our own, started late.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::HostStopped;
use super::load::{Bell, Count};
use super::own_thread::THREAD_OF;

/// Where work runs.
pub(super) struct WorkPool {
    id: u64,
    name: String,
    threads: usize,
    in_flight: Arc<Count>,
    place: Mutex<Place>,
}

enum Place {
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
        bell: &Arc<Bell>,
    ) -> Self {
        Self {
            id,
            name: format!("{name}-work"),
            threads,
            in_flight: Count::new(bell),
            place: Mutex::new(given.map_or(Place::NotYet, Place::Given)),
        }
    }

    /// The work in flight.
    pub(super) fn in_flight(&self) -> &Arc<Count> {
        &self.in_flight
    }

    /// The runtime to spawn on; our own is started by the first who asks.
    ///
    /// # Errors
    /// It could not be made, or the host has stopped.
    pub(super) fn handle(&self) -> io::Result<tokio::runtime::Handle> {
        let mut place = self.lock();
        match &*place {
            Place::Given(handle) => Ok(handle.clone()),
            Place::Own(runtime) => Ok(runtime.handle().clone()),
            Place::Closed => Err(io::Error::other(HostStopped)),
            Place::NotYet => {
                let id = self.id;
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(self.threads)
                    .thread_name(&self.name)
                    .on_thread_start(move || THREAD_OF.set(Some(id)))
                    .enable_all()
                    .build()?;
                let handle = runtime.handle().clone();
                *place = Place::Own(runtime);
                Ok(handle)
            }
        }
    }

    /// Ends our own threads; the embedding program's are its own business.
    pub(super) fn close(&self, patience: Duration) {
        let place = std::mem::replace(&mut *self.lock(), Place::Closed);
        // Not under the lock: what ends here may ask for more work.
        match place {
            Place::Own(runtime) => runtime.shutdown_timeout(patience),
            Place::Given(_) | Place::NotYet | Place::Closed => {}
        }
    }

    /// The lock, also after a panic under it: every holder leaves the place whole.
    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
