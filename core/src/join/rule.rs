//! When a join is decided, and whose conversation and variables come back.
//!
//! | strategy | succeeds when | fails as soon as |
//! |---|---|---|
//! | ALL_COMPLETED | C = N | F >= 1 |
//! | ANY_COMPLETED | C >= 1 | F = N |
//! | ALL_FAILED | F = N | C >= 1 |
//! | ANY_FAILED | F >= 1 | C = N |
//! | SUCCESS_COUNT_THRESHOLD k | C >= k | N - F < k |

use serde::{Deserialize, Serialize};

use super::path::PathStatus;
use crate::definition::{JoinStrategy, MergeVariables};
use crate::graph::JoinRule;

/// The decision of a join. There is one, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", tag = "verdict")]
pub enum Verdict {
    /// The strategy holds; the parent goes on after the JOIN.
    #[serde(rename_all = "camelCase")]
    Succeeded {
        /// The outcome for the parent's conversation.
        conversation: Conversation,
        /// The paths whose thread variables come back, in path order.
        merge: Vec<usize>,
    },
    /// The strategy can no longer hold (`JOIN_CONDITION_NOT_MET`).
    ConditionNotMet,
    /// The deadline passed first (`JOIN_TIMEOUT`).
    TimedOut,
    /// The strategy holds, but the main path has no completed thread (`MAIN_THREAD_NOT_FOUND`).
    MainThreadNotFound,
    /// The parent was cancelled first.
    Cancelled,
}

/// The effect of a successful join on the parent's conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Conversation {
    /// The snapshot of this path's conversation replaces it, atomically.
    ReplaceWith(usize),
    /// It stays as it was at FORK.
    Unchanged,
}

/// Counts of a fork's paths: all, completed, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) paths: usize,
    pub(super) completed: usize,
    pub(super) failed: usize,
}

/// True if the strategy holds, false if it no longer can; none while it is open.
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
        JoinStrategy::SuccessCountThreshold => (completed >= k, paths - failed < k),
    };
    match (succeeds, fails) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

/// The verdict of a join whose strategy holds: which conversation and which variables come back.
pub(super) fn success(rule: &JoinRule, paths: &[PathStatus]) -> Verdict {
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

/// None: `MAIN_THREAD_NOT_FOUND`.
fn conversation(rule: &JoinRule, paths: &[PathStatus]) -> Option<Conversation> {
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
        JoinStrategy::AllFailed | JoinStrategy::AnyFailed => Some(Conversation::Unchanged),
    }
}

/// True if what this path leaves behind may be asked for by a verdict still to come. Where any path may stand in
/// for the main one, each is said to: which of them comes first in path order would cost a look at all.
pub(super) fn may_take_over(rule: &JoinRule, paths: &[PathStatus], path: usize) -> bool {
    let status = |path: usize| paths.get(path).copied();
    match status(path) {
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
