//! Feasibility of a JOIN: can it succeed, fail, or be decided before a path starts, given how each path can end?
//!
//! A path that completes or fails as it likes is one of three kinds: it can only complete, only fail, or both. Every
//! strategy is a threshold: `k` of one end. What follows is arithmetic on how many of each kind there are; an
//! exhaustive search over the join machine itself is the oracle in `core/tests/analysis`.

use crate::definition::{ForkStrategy, JoinStrategy};
use crate::graph::Fork;

/// The ways one path of a fork can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathOutcomes {
    pub(super) completes: bool,
    pub(super) fails: bool,
    /// It does not complete before this many milliseconds.
    pub(super) earliest_ms: u64,
}

/// The end a strategy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedEnd {
    Completed,
    Failed,
}

/// Why a JOIN cannot succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Infeasible {
    /// Only so many paths can end as the strategy wants.
    TooFew {
        able: usize,
        wanted: usize,
        counted: CountedEnd,
    },
    /// The main path is named and cannot complete.
    MainNeverCompletes,
    /// The main path is named, and the JOIN is decided before it starts.
    MainTooLate,
    /// As many paths as it takes cannot complete before the timeout.
    TooSlow { earliest_ms: u64, timeout_ms: u64 },
}

/// `k` ends of this sort decide for success.
pub(super) fn wanted(fork: &Fork) -> (CountedEnd, usize) {
    let all = fork.paths.len();
    match fork.join.strategy {
        JoinStrategy::AllCompleted => (CountedEnd::Completed, all),
        JoinStrategy::AnyCompleted => (CountedEnd::Completed, 1),
        JoinStrategy::AllFailed => (CountedEnd::Failed, all),
        JoinStrategy::AnyFailed => (CountedEnd::Failed, 1),
        JoinStrategy::SuccessCountThreshold => (CountedEnd::Completed, fork.join.threshold as usize),
    }
}

/// Paths that run at once.
pub(super) fn width(fork: &Fork, max_concurrent: Option<u32>) -> usize {
    match fork.strategy {
        ForkStrategy::Serial => 1,
        ForkStrategy::Parallel => max_concurrent.map_or(fork.paths.len(), |most| (most as usize).max(1)),
    }
}

/// Checks that some run's ends let the JOIN succeed.
pub(super) fn can_succeed(fork: &Fork, paths: &[PathOutcomes], width: usize) -> Result<(), Infeasible> {
    let (counted, wanted) = wanted(fork);
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

/// True if some run's ends make the JOIN fail.
pub(super) fn can_fail(fork: &Fork, paths: &[PathOutcomes]) -> bool {
    let (counted, wanted) = wanted(fork);
    let spoils = |path: &&PathOutcomes| match counted {
        CountedEnd::Completed => path.fails,
        CountedEnd::Failed => path.completes,
    };
    paths.iter().filter(spoils).count() + wanted > paths.len() || fork.join.main_path_explicit
}

/// Counts of the first paths by how they can end, in the strategy's own terms.
#[derive(Clone, Copy, Debug, Default)]
struct OutcomeCounts {
    /// Only as the strategy wants.
    good: usize,
    /// Only otherwise.
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

    /// True if `ended` of them can have ended with fewer than `wanted` good ones and at most `spare` bad ones.
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

/// For each path, whether some run starts it: the JOIN is still open when its turn comes.
pub(super) fn can_start(fork: &Fork, paths: &[PathOutcomes], width: usize) -> Vec<bool> {
    let (counted, wanted) = wanted(fork);
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

/// True if the main path can be among the first `wanted` that complete.
fn main_is_in_time(paths: &[PathOutcomes], main: usize, wanted: usize, width: usize) -> bool {
    let spare = paths.len().saturating_sub(wanted);
    let ended = (main + 1).saturating_sub(width);
    let mut before = OutcomeCounts::default();
    for path in &paths[..main] {
        before.add(path, CountedEnd::Completed);
    }
    // of those that must have ended, as many as can fail do so first: they cannot help to complete anyway
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
