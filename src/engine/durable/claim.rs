//! The claim on a run that this process carries, where several share the store.

use std::sync::Arc;

use pirn_store::{Store, StoreError};

/// A run that did not go on here is anybody's again after so many milliseconds: it may not go on elsewhere either.
pub(super) const NOT_BEFORE_MS: u64 = 5_000;

/// Given up when it is dropped. A run that has ended has none any more.
pub(crate) struct Claim {
    store: Arc<dyn Store>,
    run_id: Arc<str>,
    goes_on: bool,
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
            goes_on: false,
        }))
    }

    /// The claim on a run that begins here, which comes with its first commit.
    pub(super) fn of_new(store: &Arc<dyn Store>, run_id: &Arc<str>) -> Option<Self> {
        store.claims()?;
        Some(Self {
            store: Arc::clone(store),
            run_id: Arc::clone(run_id),
            goes_on: true,
        })
    }

    /// The run goes on here: whoever has it next may go on at once.
    pub(super) fn goes_on(&mut self) {
        self.goes_on = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(claims) = self.store.claims() {
            claims.release(&self.run_id, if self.goes_on { 0 } else { NOT_BEFORE_MS });
        }
    }
}
