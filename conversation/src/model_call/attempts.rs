//! The step after a failed attempt.
//!
//! | the failure | the profile has attempts left | then |
//! |---|---|---|
//! | is passing | yes | retry the profile after a delay, never before `Retry-After` |
//! | is passing, `Retry-After` beyond the maximum delay | - | the next profile |
//! | is passing | no | the next profile |
//! | is permanent (key, rejected, late, format) | - | the next profile |
//! | any | no, and there is no next profile | the call fails |

use pirn_definition::Millis;
use serde::{Deserialize, Serialize};

use super::{FailureKind, ModelFailure};

/// The attempts at one profile, and the delays between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryRule {
    /// Maximum number of attempts, including the first; 0 counts as 1.
    pub max_attempts: u32,
    /// Delay before the second attempt, in milliseconds.
    pub initial_delay: Millis,
    /// Factor from one delay to the next; below 1 counts as 1.
    pub backoff: f64,
    /// Maximum delay in milliseconds. A longer `Retry-After` is not waited for: the next profile is used.
    pub max_delay: Millis,
}

impl RetryRule {
    /// A single attempt.
    pub const ONCE: Self = Self {
        max_attempts: 1,
        initial_delay: 500,
        backoff: 2.0,
        max_delay: 60_000,
    };

    /// The delay after attempt `attempt` (from 1), without jitter.
    fn delay(&self, attempt: u32) -> Millis {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let delay = self.initial_delay as f64 * self.backoff.max(1.0).powi(exponent);
        if delay < self.max_delay as f64 {
            delay as Millis
        } else {
            self.max_delay
        }
    }
}

/// The step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Retry the current profile.
    Retry {
        /// Delay in milliseconds.
        after: Millis,
    },
    /// Send the request to this profile, without delay.
    Fallback {
        /// Index in the list that [`Attempts::new`] was given.
        profile: usize,
    },
    /// Fail the call: no profile remains.
    GiveUp,
}

/// The attempts of one call, over a profile and its fallbacks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempts {
    rules: Vec<RetryRule>,
    profile: usize,
    attempt: u32,
}

impl Attempts {
    /// Starts a call that tries the profiles in this order, at the first attempt of the first profile.
    pub fn new(rules: Vec<RetryRule>) -> Self {
        Self {
            rules,
            profile: 0,
            attempt: 1,
        }
    }

    /// Index of the current profile.
    pub fn profile(&self) -> usize {
        self.profile
    }

    /// Number of the current attempt at this profile, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Decides the step after the current attempt failed. `random` is the jitter of the delay.
    pub fn failed(&mut self, failure: ModelFailure, random: u64) -> Next {
        let Some(rule) = self.rules.get(self.profile) else {
            return Next::GiveUp;
        };
        let is_left = self.attempt < rule.max_attempts;
        if let Some(after) = wait(rule, self.attempt, failure, random).filter(|_| is_left) {
            self.attempt += 1;
            return Next::Retry { after };
        }
        self.profile += 1;
        self.attempt = 1;
        if self.profile < self.rules.len() {
            Next::Fallback { profile: self.profile }
        } else {
            Next::GiveUp
        }
    }
}

/// Returns the delay before the next attempt, or `None` if a retry cannot help or the delay would exceed the maximum. The delay
/// is random between half and all of the backoff, so that calls that failed together are not retried together, and not earlier
/// than `Retry-After`.
fn wait(rule: &RetryRule, attempt: u32, failure: ModelFailure, random: u64) -> Option<Millis> {
    if !failure.kind.is_passing() {
        return None;
    }
    let delay = rule.delay(attempt);
    let half = delay / 2;
    let own = half + random % (delay - half + 1);
    match failure.retry_after {
        None => Some(own),
        Some(asked) if asked > rule.max_delay => None,
        // All waiting clients received one `Retry-After`, so the jitter is added to it.
        Some(asked) => Some(own.max(asked.saturating_add(random % (delay / 4 + 1)))),
    }
}

impl From<FailureKind> for ModelFailure {
    fn from(kind: FailureKind) -> Self {
        Self::new(kind)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: RetryRule = RetryRule {
        max_attempts: 3,
        initial_delay: 100,
        backoff: 2.0,
        max_delay: 1_000,
    };

    fn limited(retry_after: Millis) -> ModelFailure {
        ModelFailure {
            retry_after: Some(retry_after),
            ..FailureKind::RateLimited.into()
        }
    }

    #[test]
    fn a_transient_failure_is_retried_until_the_attempts_are_used_up() {
        let mut attempts = Attempts::new(vec![RULE]);
        for (attempt, after) in [(2, 50), (3, 100)] {
            let next = attempts.failed(FailureKind::Provider.into(), 0);
            assert_eq!(next, Next::Retry { after });
            assert_eq!(attempts.attempt(), attempt);
        }
        assert_eq!(attempts.failed(FailureKind::Provider.into(), 0), Next::GiveUp);
        assert_eq!(attempts.failed(FailureKind::Provider.into(), 0), Next::GiveUp);
    }

    #[test]
    fn a_permanent_failure_is_not_retried() {
        for kind in [
            FailureKind::Key,
            FailureKind::Rejected,
            FailureKind::Late,
            FailureKind::BadFormat,
        ] {
            let mut attempts = Attempts::new(vec![RULE, RULE]);
            assert_eq!(
                attempts.failed(kind.into(), 0),
                Next::Fallback { profile: 1 },
                "{kind:?}"
            );
            assert_eq!(attempts.failed(kind.into(), 0), Next::GiveUp, "{kind:?}");
        }
    }

    #[test]
    fn a_fallback_has_a_separate_number_of_attempts() {
        let mut attempts = Attempts::new(vec![RetryRule::ONCE, RULE]);
        let mut seen = Vec::new();
        loop {
            let next = attempts.failed(FailureKind::Dropped.into(), 0);
            seen.push((next, attempts.profile()));
            if next == Next::GiveUp {
                break;
            }
        }
        let expected = [
            (Next::Fallback { profile: 1 }, 1),
            (Next::Retry { after: 50 }, 1),
            (Next::Retry { after: 100 }, 1),
            (Next::GiveUp, 2),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_retry_after_over_the_maximum_delay_skips_to_the_fallback() {
        let mut attempts = Attempts::new(vec![RULE, RULE]);
        assert_eq!(attempts.failed(limited(1_001), 0), Next::Fallback { profile: 1 });
        assert_eq!(attempts.failed(limited(1_000), 0), Next::Retry { after: 1_000 });
    }

    proptest! {
        #[test]
        fn every_delay_is_between_retry_after_and_the_maximum_with_jitter(
            attempt in 1u32..40, random: u64, asked in proptest::option::of(0u64..5_000), backoff in 0.0f64..4.0,
        ) {
            let rule = RetryRule { max_attempts: 50, backoff, ..RULE };
            let failure = ModelFailure { retry_after: asked, ..FailureKind::RateLimited.into() };
            match wait(&rule, attempt, failure, random) {
                None => prop_assert!(asked.is_some_and(|asked| asked > rule.max_delay)),
                Some(after) => {
                    prop_assert!(after >= asked.unwrap_or(0));
                    prop_assert!(after >= rule.delay(attempt) / 2);
                    prop_assert!(after <= rule.max_delay + rule.max_delay / 4);
                }
            }
        }

        #[test]
        fn every_call_ends_after_at_most_all_attempts(
            rules in proptest::collection::vec((0u32..5).prop_map(|max_attempts| RetryRule { max_attempts, ..RULE }), 0..5),
            random: u64,
        ) {
            let most: u32 = rules.iter().map(|rule| rule.max_attempts.max(1)).sum();
            let mut attempts = Attempts::new(rules);
            let mut failed = 0;
            while attempts.failed(FailureKind::Stalled.into(), random) != Next::GiveUp {
                failed += 1;
            }
            prop_assert_eq!(failed + 1, most.max(1));
        }
    }
}
