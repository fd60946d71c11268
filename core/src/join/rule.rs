//! Decision of a join, and the choice of the conversation and the variables that the parent takes over.
//!
//! | strategy | succeeds when | fails as soon as |
//! |---|---|---|
//! | ALL_COMPLETED | C = N | F >= 1 |
//! | ANY_COMPLETED | C >= 1 | F = N |
//! | ALL_FAILED | F = N | C >= 1 |
//! | ANY_FAILED | F >= 1 | C = N |
//! | SUCCESS_COUNT_THRESHOLD k | C >= k | N - F < k |

use pirn_definition::definition::{JoinStrategy, MergeVariables};
use pirn_definition::graph::JoinRule;
use serde::{Deserialize, Serialize};

use super::path::PathStatus;

/// The decision of a join. A join is decided exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", tag = "verdict")]
pub enum Verdict {
    /// The strategy is satisfied; the parent continues after the JOIN.
    #[serde(rename_all = "camelCase")]
    Succeeded {
        /// The effect on the parent's conversation.
        conversation: Conversation,
        /// The paths with thread variables to merge, in path order.
        merge: Vec<usize>,
    },
    /// The strategy cannot be satisfied with the remaining paths (`JOIN_CONDITION_NOT_MET`).
    ConditionNotMet,
    /// The timeout expired first (`JOIN_TIMEOUT`).
    TimedOut,
    /// The strategy is satisfied, but the main path has no completed thread (`MAIN_THREAD_NOT_FOUND`).
    MainThreadNotFound,
    /// The parent was cancelled first.
    Cancelled,
}

/// The effect of a successful join on the parent's conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Conversation {
    /// A snapshot of this path's conversation replaces it atomically.
    ReplaceWith(usize),
    /// The conversation stays as it was at the FORK.
    Unchanged,
}

/// Numbers of paths of a fork: all, completed, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) paths: usize,
    pub(super) completed: usize,
    pub(super) failed: usize,
}

/// Returns true if the strategy is satisfied, false if it cannot be satisfied, and `None` while it is open.
pub(super) fn decide(rule: &JoinRule, tally: Tally) -> Option<bool> {
    let Tally {
        paths,
        completed,
        failed,
    } = tally;
    let k = rule.threshold as usize;
    let (succeeds, fails) = match rule.strategy {
        JoinStrategy::AllCompleted => (completed == paths, failed >= 1),
        JoinStrategy::AnyCompleted => (completed >= 1, failed == paths),
        JoinStrategy::AllFailed => (failed == paths, completed >= 1),
        JoinStrategy::AnyFailed => (failed >= 1, completed == paths),
        // No underflow: the machine counts each path at most once.
        JoinStrategy::SuccessCountThreshold => (completed >= k, paths - failed < k),
    };
    // Both cannot hold, because completed and failed paths together are at most all paths.
    match (succeeds, fails) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

/// Returns the verdict of a satisfied strategy: the conversation and the variables to take over.
pub(super) fn success(rule: &JoinRule, paths: &[PathStatus]) -> Verdict {
    // Decided after the strategy: a missing main path does not end the join before the strategy is satisfied.
    let Some(conversation) = conversation(rule, paths) else {
        return Verdict::MainThreadNotFound;
    };
    let merge = match (rule.merge_variables, conversation) {
        (MergeVariables::None, _) | (MergeVariables::Main, Conversation::Unchanged) => Vec::new(),
        (MergeVariables::Main, Conversation::ReplaceWith(path)) => vec![path],
        (MergeVariables::All, _) => completed(paths).collect(),
    };
    Verdict::Succeeded { conversation, merge }
}

/// Returns the effect on the conversation; `None` means `MAIN_THREAD_NOT_FOUND`.
fn conversation(rule: &JoinRule, paths: &[PathStatus]) -> Option<Conversation> {
    // A MAP of an empty list has no paths, and no main path either.
    if paths.is_empty() {
        return Some(Conversation::Unchanged);
    }
    if *paths.get(rule.main_path)? == PathStatus::Completed {
        return Some(Conversation::ReplaceWith(rule.main_path));
    }
    if !rule.main_path_explicit {
        let stand_in = completed(paths).next();
        return Some(stand_in.map_or(Conversation::Unchanged, Conversation::ReplaceWith));
    }
    match rule.strategy {
        JoinStrategy::AllCompleted | JoinStrategy::AnyCompleted | JoinStrategy::SuccessCountThreshold => None,
        // These strategies can succeed without completed paths: the absence of the main path is no error.
        JoinStrategy::AllFailed | JoinStrategy::AnyFailed => Some(Conversation::Unchanged),
    }
}

/// True if a future verdict may use the state of this path. If any path may replace the main path, the result is true for each:
/// finding the first one in path order would cost a scan of all paths.
pub(super) fn may_take_over(rule: &JoinRule, paths: &[PathStatus], path: usize) -> bool {
    let status = |path: usize| paths.get(path).copied();
    match status(path) {
        // Only these can be completed at the verdict.
        Some(PathStatus::Pending | PathStatus::Running | PathStatus::Completed) => {}
        Some(
            PathStatus::Failed
            | PathStatus::Timeout
            | PathStatus::Cancelled
            | PathStatus::Stopped
            | PathStatus::Skipped
            | PathStatus::Detached,
        )
        | None => return false,
    }
    match rule.merge_variables {
        MergeVariables::All => return true,
        MergeVariables::None | MergeVariables::Main => {}
    }
    let needs_stand_in = !rule.main_path_explicit && status(rule.main_path) != Some(PathStatus::Completed);
    path == rule.main_path || needs_stand_in
}

fn completed(paths: &[PathStatus]) -> impl Iterator<Item = usize> {
    let is_completed = |(path, status): (usize, &PathStatus)| (*status == PathStatus::Completed).then_some(path);
    paths.iter().enumerate().filter_map(is_completed)
}
