//! Feasibility of a JOIN: whether it can succeed, fail, or be decided before a path starts, given the possible ends of each path.
//!
//! Each path is of one of three kinds: it can only complete, can only fail, or can do both. Every strategy is a threshold of `k`
//! ends of one sort, so the results are arithmetic on the number of paths of each kind. The oracle in `definition/tests/analysis` is an
//! exhaustive search over the join machine.

use crate::definition::{ForkStrategy, JoinStrategy};
use crate::graph::{Fork, JoinRule};

/// Possible ends of one path of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) struct PathOutcomes {
    pub(super) completes: bool,
    pub(super) fails: bool,
    /// Minimum time to completion, in milliseconds.
    pub(super) earliest_ms: u64,
}

/// The sort of end that a strategy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) enum CountedEnd {
    Completed,
    Failed,
}

/// Reason why a JOIN cannot succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) enum Infeasible {
    /// Fewer paths can end in the counted way than the strategy requires.
    TooFew {
        able: usize,
        wanted: usize,
        counted: CountedEnd,
    },
    /// The main path is explicit and cannot complete.
    MainNeverCompletes,
    /// The main path is explicit, and the JOIN is decided before it starts.
    MainTooLate,
    /// The required number of paths cannot complete before the timeout.
    TooSlow { earliest_ms: u64, timeout_ms: u64 },
}

/// Returns the counted sort of end, and the number of such ends of `all` paths that decide for success.
pub(in crate::analysis) fn wanted(rule: &JoinRule, all: usize) -> (CountedEnd, usize) {
    match rule.strategy {
        JoinStrategy::AllCompleted => (CountedEnd::Completed, all),
        JoinStrategy::AnyCompleted => (CountedEnd::Completed, 1),
        JoinStrategy::AllFailed => (CountedEnd::Failed, all),
        JoinStrategy::AnyFailed => (CountedEnd::Failed, 1),
        JoinStrategy::SuccessCountThreshold => (CountedEnd::Completed, rule.threshold as usize),
    }
}

/// Returns the maximum number of concurrent paths.
pub(in crate::analysis) fn width(fork: &Fork, max_concurrent: Option<u32>) -> usize {
    match fork.strategy {
        ForkStrategy::Serial => 1,
        ForkStrategy::Parallel => max_concurrent.map_or(fork.paths.len(), |most| (most as usize).max(1)),
    }
}

/// Checks that the JOIN can succeed with some combination of ends.
pub(super) fn can_succeed(fork: &Fork, paths: &[PathOutcomes], width: usize) -> Result<(), Infeasible> {
    let (counted, wanted) = wanted(&fork.join, fork.paths.len());
    let ends_so = |path: &&PathOutcomes| match counted {
        CountedEnd::Completed => path.completes,
        CountedEnd::Failed => path.fails,
    };
    let able = paths.iter().filter(ends_so).count();
    if able < wanted {
        return Err(Infeasible::TooFew { able, wanted, counted });
    }
    if counted == CountedEnd::Failed {
        return Ok(());
    }
    let main = fork.join.main_path;
    if fork.join.main_path_explicit {
        if !paths.get(main).is_some_and(|path| path.completes) {
            return Err(Infeasible::MainNeverCompletes);
        }
        if !main_is_in_time(paths, main, wanted, width) {
            return Err(Infeasible::MainTooLate);
        }
    }
    let mut times: Vec<u64> = paths.iter().filter(ends_so).map(|path| path.earliest_ms).collect();
    times.sort_unstable();
    match (times.get(wanted.saturating_sub(1)), fork.join.timeout_ms) {
        (Some(&earliest_ms), Some(timeout_ms)) if earliest_ms > timeout_ms => Err(Infeasible::TooSlow {
            earliest_ms,
            timeout_ms,
        }),
        (Some(_) | None, _) => Ok(()),
    }
}

/// True if the JOIN can fail with some combination of ends.
pub(super) fn can_fail(fork: &Fork, paths: &[PathOutcomes]) -> bool {
    let (counted, wanted) = wanted(&fork.join, fork.paths.len());
    let spoils = |path: &&PathOutcomes| match counted {
        CountedEnd::Completed => path.fails,
        CountedEnd::Failed => path.completes,
    };
    paths.iter().filter(spoils).count() + wanted > paths.len() || fork.join.main_path_explicit
}

/// Numbers of the first paths by their possible ends, relative to the counted sort.
#[derive(Clone, Copy, Debug, Default)]
struct OutcomeCounts {
    /// Can end only in the counted way.
    good: usize,
    /// Can end only in the other way.
    bad: usize,
    both: usize,
}

impl OutcomeCounts {
    fn add(&mut self, path: &PathOutcomes, counted: CountedEnd) {
        let (good, bad) = match counted {
            CountedEnd::Completed => (path.completes, path.fails),
            CountedEnd::Failed => (path.fails, path.completes),
        };
        match (good, bad) {
            (true, true) => self.both += 1,
            (true, false) => self.good += 1,
            (false, _) => self.bad += 1,
        }
    }

    /// True if `ended` of the paths can have ended with fewer than `wanted` good ends and at most `spare` bad ends.
    fn undecided(self, ended: usize, wanted: usize, spare: usize) -> bool {
        let least = ended.saturating_sub(spare.min(self.bad + self.both));
        let most = ended.min(wanted.saturating_sub(1)).min(self.good + self.both);
        if least > most {
            return false;
        }
        let good = self.good.clamp(least, most);
        let taken = good.saturating_sub(self.good) + (ended - good).saturating_sub(self.bad);
        taken <= self.both
    }
}

/// Returns for each path whether some run starts it, because the JOIN can be undecided at that point.
pub(in crate::analysis) fn can_start(fork: &Fork, paths: &[PathOutcomes], width: usize) -> Vec<bool> {
    let (counted, wanted) = wanted(&fork.join, fork.paths.len());
    let spare = paths.len().saturating_sub(wanted);
    let mut before = OutcomeCounts::default();
    let mut starts = Vec::with_capacity(paths.len());
    for (place, path) in paths.iter().enumerate() {
        let ended = (place + 1).saturating_sub(width);
        starts.push(before.undecided(ended, wanted, spare));
        before.add(path, counted);
    }
    starts
}

/// True if the main path can be one of the first `wanted` paths that complete.
fn main_is_in_time(paths: &[PathOutcomes], main: usize, wanted: usize, width: usize) -> bool {
    let spare = paths.len().saturating_sub(wanted);
    let ended = (main + 1).saturating_sub(width);
    let mut before = OutcomeCounts::default();
    for path in &paths[..main] {
        before.add(path, CountedEnd::Completed);
    }
    // of the paths that must have ended, as many as possible fail: those cannot help to complete anyway
    let failed = ended.min(before.bad).min(spare);
    let rest = ended - failed;
    let completed = rest.min(before.good + before.both).min(wanted.saturating_sub(1));
    let spent = rest - completed;
    let both_left = before.both - completed.saturating_sub(before.good);
    if failed + spent > spare || spent > both_left {
        return false;
    }
    let others = paths
        .iter()
        .enumerate()
        .filter(|(place, path)| *place != main && path.completes);
    others.count() >= wanted.saturating_sub(1) + spent
}
