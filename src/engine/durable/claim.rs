//! The claim on a run that this process owns, if several processes share the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pirn_store::{Store, StoreError};

/// Milliseconds before a run that could not be resumed here may be claimed again: it may fail in other processes too.
pub(super) const NOT_BEFORE_MS: u64 = 5_000;

/// A claim on a run, released on drop. The claim of a run that has ended is already released.
pub(crate) struct Claim {
    store: Arc<dyn Store>,
    run_id: Arc<str>,
    health: ClaimHealth,
}

/// Flag of a claimed run: true if its next owner can resume it at once, false if it is stuck.
#[derive(Clone)]
pub(super) struct ClaimHealth(Arc<AtomicBool>);

impl ClaimHealth {
    fn new(goes_on: bool) -> Self {
        Self(Arc::new(AtomicBool::new(goes_on)))
    }

    /// Marks the run as one that could not be resumed here, and may fail elsewhere too.
    pub(super) fn stuck(&self) {
        // Relaxed, because the flag alone is read and orders no other memory.
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Claim {
    /// Claims a run that is to be resumed here. Returns `None` if the store is not shared: then this process owns all of its runs.
    ///
    /// # Errors
    /// Fails if another process owns the run.
    pub(super) async fn make(store: &Arc<dyn Store>, run_id: &str) -> Result<Option<Self>, StoreError> {
        let Some(claims) = store.claims() else { return Ok(None) };
        claims.claim(run_id).await?;
        Ok(Some(Self {
            store: Arc::clone(store),
            run_id: run_id.into(),
            // Not resumable yet: an early return before `goes_on` drops the claim, and the next attempt must then wait.
            health: ClaimHealth::new(false),
        }))
    }

    /// Returns the claim on a run that starts here; the run's first commit makes it.
    pub(super) fn of_new(store: &Arc<dyn Store>, run_id: &Arc<str>) -> Option<Self> {
        store.claims()?;
        Some(Self {
            store: Arc::clone(store),
            run_id: Arc::clone(run_id),
            // A new run has nothing that could fail to be rebuilt.
            health: ClaimHealth::new(true),
        })
    }

    /// Marks the run as resumed: the next owner may resume it at once after a release.
    pub(super) fn goes_on(&self) {
        self.health.0.store(true, Ordering::Relaxed);
    }

    /// Returns a handle that can mark the run as stuck.
    pub(super) fn health(&self) -> ClaimHealth {
        self.health.clone()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(claims) = self.store.claims() {
            let goes_on = self.health.0.load(Ordering::Relaxed);
            // The delay keeps processes from passing a run that none can resume to each other without pause.
            claims.release(&self.run_id, if goes_on { 0 } else { NOT_BEFORE_MS });
        }
    }
}
