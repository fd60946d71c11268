//! Effects of stored runs across crashes: tools, retries, called functions, effects in doubt.
//!
//! Not here: the tests that kill a run at every commit, which are in `crashes`.

mod deferred_tools;
mod effects_in_doubt;
mod random_plans;
mod retried;
mod trigger_calls;
mod workflow_tools;
