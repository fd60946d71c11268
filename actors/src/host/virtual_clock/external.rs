//! External work: it waits for the outside world, on a real tokio runtime.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;

use super::ready::ExternalGuard;
use crate::host::{WorkHandle, survive};

/// External work with its guard. Fields are dropped in order: tasks woken by the end of the work are queued before the guard lets
/// the clock jump again.
struct InFlight {
    work: BoxFuture<'static, ()>,
    _guard: ExternalGuard,
}

impl Future for InFlight {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        self.work.as_mut().poll(task)
    }
}

/// The runtime of external work.
pub(super) struct ExternalPlace {
    given: Option<tokio::runtime::Handle>,
    own: OnceCell<tokio::runtime::Runtime>,
}

impl ExternalPlace {
    /// Uses `given`, or a private thread.
    pub(super) fn new(given: Option<tokio::runtime::Handle>) -> Self {
        Self {
            given,
            own: OnceCell::new(),
        }
    }

    /// Starts `work`; `guard` is dropped after it.
    #[allow(clippy::disallowed_methods)] // External work is what leaves the simulation.
    pub(super) fn start(&self, work: BoxFuture<'static, ()>, guard: ExternalGuard) -> WorkHandle {
        match self.handle() {
            Ok(handle) => {
                let abort = handle.spawn(InFlight { work, _guard: guard }).abort_handle();
                WorkHandle::new(move || abort.abort())
            }
            Err(error) => {
                // The guard is dropped on return, so that the clock does not wait for refused work.
                tracing::error!(%error, "no thread for external work");
                survive("work refused without a thread", move || drop(work));
                WorkHandle::inert()
            }
        }
    }

    fn handle(&self) -> std::io::Result<tokio::runtime::Handle> {
        if let Some(given) = &self.given {
            return Ok(given.clone());
        }
        if let Some(own) = self.own.get() {
            return Ok(own.handle().clone());
        }
        // A current-thread runtime would make progress only while it is driven.
        let own = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("pirn-external")
            .enable_all()
            .build()?;
        Ok(self.own.get_or_init(|| own).handle().clone())
    }
}

impl Drop for ExternalPlace {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            // A blocking shutdown would panic on a tokio worker.
            own.shutdown_background();
        }
    }
}
