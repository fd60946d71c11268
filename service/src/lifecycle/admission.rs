//! Admission of tenants' runs: limits and usage.

use crate::http::problem::Problem;
use crate::http::tenant::Tenant;
use crate::runs::now;
use crate::runs::quota::{CountedRun, ReachedLimit, SpentTokens};
use crate::state::Service;
use pirn::store::{Run, RunFilter, Store, StoreError};

/// Number of runs that one query reads.
const PAGE: usize = 1_000;

impl Service {
    /// Calls `start` for a run that the caller starts, with the count of the run. Returns 429 if a limit of its tenant is reached. The
    /// start is not counted if it fails.
    pub(crate) async fn admitted<T, Started: Future<Output = Result<T, Problem>>>(
        &self,
        start: impl FnOnce(Option<CountedRun>) -> Started,
    ) -> Result<T, Problem> {
        let quotas = self.quotas();
        let Some(tenant) = self.scope().0.as_ref().filter(|_| !quotas.are_off()) else {
            return start(None).await;
        };
        let owner = tenant.owner();
        self.read_usage(owner).await;
        let at = now();
        let counted = quotas.admit(owner, at);
        let counted = counted.map_err(|(limit, seconds)| self.refuse(limit, seconds))?;
        let started = start(Some(counted)).await;
        if started.is_err() {
            quotas.withdraw(owner, at);
        }
        started
    }

    /// Reads the tokens of a tenant from the store, unless they are known, and measures its stored bytes if that is due.
    async fn read_usage(&self, owner: &str) {
        let quotas = self.quotas();
        if quotas.is_unknown(owner) {
            quotas.restore(owner, self.spent_before(owner).await, now());
        }
        if quotas.begins_measurement(owner, now()) {
            match self.stored_bytes_of(owner).await {
                Ok(bytes) => quotas.measured(owner, bytes),
                Err(error) => tracing::warn!(owner, %error, "measuring the stored runs of a tenant failed"),
            }
        }
    }

    fn refuse(&self, limit: ReachedLimit, seconds: u64) -> Problem {
        let name = self.scope().0.as_ref().map_or("", Tenant::name);
        self.metrics().tenant_refused(name, limit.as_str());
        limit.problem(seconds)
    }

    /// Adds the tokens of a run that has ended to those of its tenant.
    pub(crate) async fn spend(&self, run_id: &str, tokens: u64) {
        let Some(owner) = Run::owner_of(run_id).filter(|_| self.quotas().limit_tokens() && tokens > 0) else {
            return;
        };
        if self.quotas().is_unknown(owner) {
            let before = self.spent_before(owner).await;
            self.quotas().restore(owner, before, now());
        }
        let mut spent = self.quotas().spend(owner, tokens, now());
        let Some(store) = self.engine().store() else { return };
        loop {
            let text = serde_json::to_string(&spent).unwrap_or_default();
            if let Err(error) = store.set_meta(&key(owner), Some(text)).await {
                tracing::warn!(owner, %error, "storing the tokens of a tenant failed: they are forgotten at the next start");
                return;
            }
            // Another run may have ended in between, and the two numbers may have been written in either order.
            let latest = self.quotas().spend(owner, 0, now());
            if latest == spent {
                return;
            }
            spent = latest;
        }
    }

    /// Returns the tokens that the store has for a tenant.
    async fn spent_before(&self, owner: &str) -> SpentTokens {
        let Some(store) = self.engine().store() else {
            return SpentTokens::default();
        };
        let text = store.meta(&key(owner)).await.unwrap_or_default().unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Measures the runs of a tenant in the store.
    async fn stored_bytes_of(&self, owner: &str) -> Result<u64, StoreError> {
        let Some(store) = self.engine().store() else {
            return Ok(0);
        };
        let filter = RunFilter {
            owner: Some(owner.to_owned()),
            ..RunFilter::default()
        };
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = store.runs(filter.clone(), after, PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(Run::place);
            ids.extend(page.into_iter().map(|run| run.id));
            if is_last {
                break;
            }
        }
        // What a removal would free is what the runs use.
        Ok(store.remove(ids, true).await?.bytes)
    }
}

/// Removes the usage of a tenant from a store. No service may have the store open.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn forget_usage(store: &dyn Store, tenant: &Tenant) -> Result<(), StoreError> {
    store.set_meta(&key(tenant.owner()), None).await
}

fn key(owner: &str) -> String {
    format!("tokens of tenant {owner}")
}
