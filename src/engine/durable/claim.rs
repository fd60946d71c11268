//! The claim on a run that this process carries, where several share the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pirn_store::{Store, StoreError};

/// A run that did not go on here is anybody's again after so many milliseconds: it may not go on elsewhere either.
pub(super) const NOT_BEFORE_MS: u64 = 5_000;

/// Given up when it is dropped. A run that has ended has none any more.
pub(crate) struct Claim {
    store: Arc<dyn Store>,
    run_id: Arc<str>,
    standing: Standing,
}

/// The standing of a claimed run: it goes on in whichever process has it next, or is stuck.
#[derive(Clone)]
pub(super) struct Standing(Arc<AtomicBool>);

impl Standing {
    fn new(goes_on: bool) -> Self {
        Self(Arc::new(AtomicBool::new(goes_on)))
    }

    /// It did not go on here, and may not elsewhere.
    pub(super) fn stuck(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Claim {
    /// Claims a run that is to go on here; none where this process has the store for itself, and every run of it.
    ///
    /// # Errors
    /// Another process carries it.
    pub(super) async fn make(store: &Arc<dyn Store>, run_id: &str) -> Result<Option<Self>, StoreError> {
        let Some(claims) = store.claims() else { return Ok(None) };
        claims.claim(run_id).await?;
        Ok(Some(Self {
            store: Arc::clone(store),
            run_id: run_id.into(),
            standing: Standing::new(false),
        }))
    }

    /// The claim on a run that begins here, which comes with its first commit.
    pub(super) fn of_new(store: &Arc<dyn Store>, run_id: &Arc<str>) -> Option<Self> {
        store.claims()?;
        Some(Self {
            store: Arc::clone(store),
            run_id: Arc::clone(run_id),
            standing: Standing::new(true),
        })
    }

    /// The run goes on here: whoever has it next may go on at once.
    pub(super) fn goes_on(&self) {
        self.standing.0.store(true, Ordering::Relaxed);
    }

    /// For whoever finds out that it does not.
    pub(super) fn standing(&self) -> Standing {
        self.standing.clone()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(claims) = self.store.claims() {
            let goes_on = self.standing.0.load(Ordering::Relaxed);
            claims.release(&self.run_id, if goes_on { 0 } else { NOT_BEFORE_MS });
        }
    }
}
