//! Retries of failed attempts.

use pirn_definition::Millis;
use pirn_definition::definition::RetryPolicy;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::NodeKind;

use super::machine::ThreadMachine;

/// Returns the delay before the next attempt, or `None` if the failure is final.
///
/// The delay is at least 1 ms, even if the policy sets 0. Otherwise a node that fails at once would retry in a loop without passing
/// time, and no time limit could end it. A JOIN is decided once, so that it is never retried.
pub(super) fn delay(thread: &ThreadMachine, error: &RunError, random: u64) -> Option<Millis> {
    let node = thread.graph().node(thread.at);
    if matches!(node.kind, NodeKind::Join(_)) {
        return None;
    }
    // Without a policy every failure is final.
    let policy = node.retry.as_ref()?;
    // `maxAttempts` includes the first attempt.
    if thread.attempt >= policy.max_attempts || !is_retried(policy, error) {
        return None;
    }
    Some(jittered(backoff(policy, thread.attempt), random).max(1))
}

fn is_retried(policy: &RetryPolicy, error: &RunError) -> bool {
    match &policy.retry_on {
        // A list replaces the default, even for codes that the default never retries.
        Some(codes) => codes.iter().any(|code| code == error.code.as_str()),
        // A retry cannot restore a used budget.
        None => !matches!(error.code, RunErrorCode::Cancelled | RunErrorCode::TokenBudgetExceeded),
    }
}

/// Returns the delay after attempt `attempt` (from 1), without jitter.
fn backoff(policy: &RetryPolicy, attempt: u32) -> Millis {
    // Huge attempt numbers saturate: the power becomes infinite, which the maximum below bounds.
    let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    // A factor below 1 would shrink the delay with each failure.
    let delay = policy.initial_delay_ms as f64 * policy.backoff.max(1.0).powi(exponent);
    // Compared as floating-point numbers, because the power may exceed every integer.
    if delay >= policy.max_delay_ms as f64 {
        policy.max_delay_ms
    } else {
        delay as Millis
    }
}

/// Returns a delay between half and all of `delay`, so that attempts which failed together are not retried together.
fn jittered(delay: Millis, random: u64) -> Millis {
    // The number comes from the run's seed, so that a replay computes the same delay.
    let half = delay / 2;
    half + random % (delay - half + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy {
            max_attempts: 5,
            initial_delay_ms: 100,
            backoff: 2.0,
            max_delay_ms: 350,
            retry_on: None,
        }
    }

    #[test]
    fn delays_grow_by_the_factor_up_to_the_maximum() {
        let delays: Vec<_> = (1..=4).map(|attempt| backoff(&policy(), attempt)).collect();
        assert_eq!(delays, [100, 200, 350, 350]);
    }

    #[test]
    fn a_huge_attempt_number_does_not_overflow() {
        assert_eq!(backoff(&policy(), u32::MAX), 350);
    }

    #[test]
    fn jitter_stays_between_half_and_the_full_delay() {
        for random in [0, 1, 49, 50, 51, u64::MAX] {
            assert!((50..=100).contains(&jittered(100, random)));
        }
        assert_eq!(jittered(0, 7), 0);
    }
}
