//! Limits of each tenant: concurrent runs, starts per minute, tokens per day, stored bytes.
//!
//! [`Usage`] decides; it receives the time. [`Quotas`] has one for each tenant.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::http::problem::{Problem, ProblemCode};
use pirn::store::Run;

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

/// Maximum number of tenants in memory. Beyond it, those without runs and usage of the present day are removed.
const MAX_TENANTS: usize = 10_000;

/// Limits of each tenant; `None` for no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantLimits {
    /// Maximum number of unfinished runs that this process executes.
    pub concurrent_runs: Option<usize>,
    /// Maximum number of runs that are started within 60 seconds.
    pub runs_per_minute: Option<usize>,
    /// Maximum number of tokens that providers reported since midnight UTC, for runs that have ended. Tokens that a fork shares with
    /// its base count for the base only. A run that exceeds the limit ends as usual; no run starts afterwards.
    pub tokens_per_day: Option<u64>,
    /// Maximum size of the runs in the store, measured once in a minute.
    pub stored_bytes: Option<u64>,
}

/// A limit that a tenant has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReachedLimit {
    ConcurrentRuns,
    RunsPerMinute,
    TokensPerDay,
    StoredBytes,
}

impl ReachedLimit {
    /// Returns the name of the setting.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrentRuns => "concurrentRuns",
            Self::RunsPerMinute => "runsPerMinute",
            Self::TokensPerDay => "tokensPerDay",
            Self::StoredBytes => "storedBytes",
        }
    }

    pub(crate) fn problem(self, retry_after: u64) -> Problem {
        let detail = match self {
            Self::ConcurrentRuns => "the tenant's maximum number of runs is in progress",
            Self::RunsPerMinute => "the tenant's maximum number of runs was started within a minute",
            Self::TokensPerDay => "the tenant's runs have used the maximum number of tokens of a day",
            Self::StoredBytes => {
                "the tenant's runs use the maximum size in the store: erase runs, or wait for their removal"
            }
        };
        Problem::new(ProblemCode::TenantLimit, format!("{detail} ({})", self.as_str())).retry_after(retry_after)
    }
}

/// Tokens of a day, as they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpentTokens {
    /// Days since 1970.
    day: u64,
    tokens: u64,
}

/// The present usage of a tenant.
#[derive(Debug, Default)]
struct Usage {
    live: usize,
    /// Times of the starts within the last minute.
    starts: VecDeque<u64>,
    spent: SpentTokens,
    stored: u64,
    /// Time of the last measurement of `stored`.
    measured: Option<u64>,
}

impl Usage {
    /// Counts a start, or returns the limit that is reached, with the number of seconds to wait.
    fn admit(&mut self, limits: &TenantLimits, now: u64) -> Result<(), (ReachedLimit, u64)> {
        while self.starts.front().is_some_and(|at| at.saturating_add(MINUTE) <= now) {
            self.starts.pop_front();
        }
        if limits.concurrent_runs.is_some_and(|most| self.live >= most) {
            return Err((ReachedLimit::ConcurrentRuns, 1));
        }
        if limits.runs_per_minute.is_some_and(|most| self.starts.len() >= most) {
            let free = self.starts.front().map_or(now + MINUTE, |at| at + MINUTE);
            return Err((ReachedLimit::RunsPerMinute, free.saturating_sub(now).div_ceil(1_000)));
        }
        if limits.tokens_per_day.is_some_and(|most| self.tokens(now) >= most) {
            let next_day = (now / DAY + 1) * DAY;
            return Err((ReachedLimit::TokensPerDay, (next_day - now).div_ceil(1_000)));
        }
        if limits.stored_bytes.is_some_and(|most| self.stored >= most) {
            return Err((ReachedLimit::StoredBytes, MINUTE / 1_000));
        }
        self.live += 1;
        // Without the limit nothing is recorded, so the memory of a tenant is bounded by its limits.
        if limits.runs_per_minute.is_some() {
            self.starts.push_back(now);
        }
        Ok(())
    }

    /// Removes a start from which no run resulted.
    fn withdraw(&mut self, started_at: u64) {
        if let Some(place) = self.starts.iter().rposition(|at| *at == started_at) {
            self.starts.remove(place);
        }
    }

    fn tokens(&self, now: u64) -> u64 {
        if self.spent.day == now / DAY {
            self.spent.tokens
        } else {
            0
        }
    }

    fn spend(&mut self, tokens: u64, now: u64) -> SpentTokens {
        self.spent = SpentTokens {
            tokens: self.tokens(now).saturating_add(tokens),
            day: now / DAY,
        };
        self.spent
    }

    fn is_unused(&self, now: u64) -> bool {
        self.live == 0 && self.starts.is_empty() && self.tokens(now) == 0
    }
}

/// The usage of all tenants. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Quotas {
    limits: Arc<TenantLimits>,
    usages: Arc<Mutex<BTreeMap<String, Usage>>>,
}

/// A run that counts as one of its tenant's, until this value is dropped.
pub(crate) struct CountedRun {
    quotas: Quotas,
    owner: String,
}

impl Drop for CountedRun {
    fn drop(&mut self) {
        if let Some(usage) = self.quotas.usages().get_mut(&self.owner) {
            usage.live = usage.live.saturating_sub(1);
        }
    }
}

impl Quotas {
    pub(crate) fn new(limits: TenantLimits) -> Self {
        Self {
            limits: Arc::new(limits),
            usages: Arc::default(),
        }
    }

    /// True if no tenant has a limit.
    pub(crate) fn are_off(&self) -> bool {
        *self.limits == TenantLimits::default()
    }

    /// True if the tokens of a tenant have a limit.
    pub(crate) fn limit_tokens(&self) -> bool {
        self.limits.tokens_per_day.is_some()
    }

    /// True if the usage of a tenant must be read from the store before its first start.
    pub(crate) fn is_unknown(&self, owner: &str) -> bool {
        !self.usages().contains_key(owner)
    }

    /// Sets the tokens that a tenant spent before this process started.
    pub(crate) fn restore(&self, owner: &str, spent: SpentTokens, now: u64) {
        let mut usages = self.usages();
        if usages.len() >= MAX_TENANTS {
            usages.retain(|_, usage| !usage.is_unused(now));
        }
        usages.entry(owner.to_owned()).or_insert_with(|| Usage {
            spent,
            ..Usage::default()
        });
    }

    /// True if the stored bytes of a tenant must be measured now. The next call within a minute returns false.
    pub(crate) fn begins_measurement(&self, owner: &str, now: u64) -> bool {
        if self.limits.stored_bytes.is_none() {
            return false;
        }
        let mut usages = self.usages();
        let usage = usages.entry(owner.to_owned()).or_default();
        let is_due = usage.measured.is_none_or(|at| at.saturating_add(MINUTE) <= now);
        if is_due {
            usage.measured = Some(now);
        }
        is_due
    }

    pub(crate) fn measured(&self, owner: &str, bytes: u64) {
        self.usages().entry(owner.to_owned()).or_default().stored = bytes;
    }

    /// Counts a run that starts, or returns the limit that its tenant has reached, with the number of seconds to wait.
    pub(crate) fn admit(&self, owner: &str, now: u64) -> Result<CountedRun, (ReachedLimit, u64)> {
        self.usages()
            .entry(owner.to_owned())
            .or_default()
            .admit(&self.limits, now)?;
        Ok(CountedRun {
            quotas: self.clone(),
            owner: owner.to_owned(),
        })
    }

    /// Removes an admitted start from those of its tenant: no run resulted.
    pub(crate) fn withdraw(&self, owner: &str, started_at: u64) {
        if let Some(usage) = self.usages().get_mut(owner) {
            usage.withdraw(started_at);
        }
    }

    /// Counts a run that was admitted before: one that is resumed, or that another run started.
    pub(crate) fn count(&self, run_id: &str) -> Option<CountedRun> {
        let owner = Run::owner_of(run_id).filter(|_| !self.are_off())?;
        self.usages().entry(owner.to_owned()).or_default().live += 1;
        Some(CountedRun {
            quotas: self.clone(),
            owner: owner.to_owned(),
        })
    }

    /// Adds the tokens of a run that has ended; returns those of its tenant.
    pub(crate) fn spend(&self, owner: &str, tokens: u64, now: u64) -> SpentTokens {
        self.usages().entry(owner.to_owned()).or_default().spend(tokens, now)
    }

    fn usages(&self) -> MutexGuard<'_, BTreeMap<String, Usage>> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.usages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_start_is_admitted_exactly_while_no_limit_is_reached(
            steps in prop::collection::vec((0_u64..40_000, 0_u8..4, 0_u64..40), 1..200),
            (runs, minute, tokens) in (1_usize..6, 1_usize..6, 1_u64..100),
        ) {
            let limits = TenantLimits {
                concurrent_runs: Some(runs),
                runs_per_minute: Some(minute),
                tokens_per_day: Some(tokens),
                stored_bytes: None,
            };
            let mut usage = Usage::default();
            // The oracle has the whole history.
            let (mut now, mut live, mut starts, mut spent) = (DAY - 600_000, 0_usize, Vec::new(), Vec::new());
            for (later, what, amount) in steps {
                now += later;
                match what {
                    0 => {
                        let recent = starts.iter().filter(|at| **at + MINUTE > now).count();
                        let today: u64 = spent.iter().filter(|(at, _)| at / DAY == now / DAY).map(|(_, tokens)| tokens).sum();
                        let expected = live < runs && recent < minute && today < tokens;
                        let admitted = usage.admit(&limits, now);
                        prop_assert_eq!(admitted.is_ok(), expected, "{:?} at {}", admitted, now);
                        if expected {
                            live += 1;
                            starts.push(now);
                        }
                        prop_assert!(usage.starts.len() <= minute);
                        // After the time in the refusal, the rate is below its limit.
                        if let Err((ReachedLimit::RunsPerMinute, seconds)) = admitted {
                            let then = now + 1_000 * seconds;
                            let recent = starts.iter().filter(|at| **at + MINUTE > then).count();
                            prop_assert!(recent < minute && seconds <= 60);
                        }
                    }
                    1 if live > 0 => {
                        live -= 1;
                        usage.live -= 1;
                    }
                    // A start without a resulting run, withdrawn at once or later.
                    2 if !starts.is_empty() => {
                        let place = usize::try_from(amount).expect("a small number") % starts.len();
                        usage.withdraw(starts.remove(place));
                    }
                    _ => {
                        spent.push((now, amount));
                        usage.spend(amount, now);
                    }
                }
            }
        }
    }
}
