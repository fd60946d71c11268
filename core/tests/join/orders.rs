//! Every order of ends, with the deadline and a cancel at every point, against a reference model of SPEC section 4, which uses the
//! list of ends only.

use pirn_core::join::{Conversation, Effect, ForkJoinMachine, Input, PathEnd, PathStatus, Verdict};
use pirn_definition::definition::{ForkStrategy, JoinStrategy, MergeVariables, OnDecided};
use pirn_definition::graph::{Fork, JoinRule};

use super::fork::{fork, step};

/// Events of the fork so far, in order.
#[derive(Clone, Default)]
struct Story {
    ends: Vec<(usize, PathEnd)>,
    interrupt: Option<Verdict>,
}

/// Expected outcome by SPEC section 4.
struct Oracle {
    verdict: Option<Verdict>,
    paths: Vec<PathStatus>,
}

fn oracle(rule: &JoinRule, paths: usize, started: usize, story: &Story) -> Oracle {
    let (n, k) = (paths, rule.threshold as usize);
    let mut statuses = vec![PathStatus::Pending; paths];
    let mut decided = None;
    for counted in 0..=story.ends.len() {
        let so_far = &story.ends[..counted];
        let c = so_far.iter().filter(|(_, end)| *end == PathEnd::Completed).count();
        let f = so_far.len() - c;
        decided = match rule.strategy {
            JoinStrategy::AllCompleted if c == n => Some(true),
            JoinStrategy::AllCompleted if f >= 1 => Some(false),
            JoinStrategy::AnyCompleted if c >= 1 => Some(true),
            JoinStrategy::AnyCompleted if f == n => Some(false),
            JoinStrategy::AllFailed if f == n => Some(true),
            JoinStrategy::AllFailed if c >= 1 => Some(false),
            JoinStrategy::AnyFailed if f >= 1 => Some(true),
            JoinStrategy::AnyFailed if c == n => Some(false),
            JoinStrategy::SuccessCountThreshold if c >= k => Some(true),
            JoinStrategy::SuccessCountThreshold if n - f < k => Some(false),
            JoinStrategy::AllCompleted
            | JoinStrategy::AnyCompleted
            | JoinStrategy::AllFailed
            | JoinStrategy::AnyFailed
            | JoinStrategy::SuccessCountThreshold => None,
        };
        if let Some((path, end)) = so_far.last() {
            statuses[*path] = PathStatus::from(*end);
        }
        if decided.is_some() {
            break;
        }
    }
    let verdict = match decided {
        Some(true) => Some(brings_back(rule, &statuses)),
        Some(false) => Some(Verdict::ConditionNotMet),
        None => story.interrupt.clone(),
    };
    let detach = rule.on_decided == OnDecided::Detach && decided.is_some();
    for (path, status) in statuses.iter_mut().enumerate() {
        if *status == PathStatus::Pending {
            *status = match (&verdict, path < started, detach) {
                (None, false, _) => PathStatus::Pending,
                (None, true, _) => PathStatus::Running,
                (Some(_), false, _) => PathStatus::Skipped,
                (Some(_), true, false) => PathStatus::Stopped,
                (Some(_), true, true) => PathStatus::Detached,
            };
        }
    }
    Oracle {
        verdict,
        paths: statuses,
    }
}

fn brings_back(rule: &JoinRule, statuses: &[PathStatus]) -> Verdict {
    let completed: Vec<usize> = (0..statuses.len())
        .filter(|path| statuses[*path] == PathStatus::Completed)
        .collect();
    let of_failures = [JoinStrategy::AllFailed, JoinStrategy::AnyFailed].contains(&rule.strategy);
    let main = if completed.contains(&rule.main_path) {
        Some(rule.main_path)
    } else if !rule.main_path_explicit {
        completed.first().copied()
    } else if of_failures {
        None
    } else {
        return Verdict::MainThreadNotFound;
    };
    Verdict::Succeeded {
        conversation: main.map_or(Conversation::Unchanged, Conversation::ReplaceWith),
        merge: match rule.merge_variables {
            MergeVariables::None => Vec::new(),
            MergeVariables::Main => main.into_iter().collect(),
            MergeVariables::All => completed,
        },
    }
}

/// Depth-first search through all possible next events.
struct Explorer<'a> {
    fork: &'a Fork,
    bound: usize,
    /// Ends to try for each path.
    ends: fn(usize) -> &'static [PathEnd],
    decided: usize,
}

impl Explorer<'_> {
    fn explore(&mut self, machine: &ForkJoinMachine, story: &Story) {
        let live: Vec<usize> = machine.live().collect();
        let mut next = story.clone();
        next.interrupt = Some(Verdict::TimedOut);
        self.go(machine, Input::Deadline { generation: 1 }, &next, None);
        let mut next = story.clone();
        next.interrupt = Some(Verdict::Cancelled);
        self.go(machine, Input::Cancel, &next, None);
        for &path in &live {
            for &end in (self.ends)(path) {
                let mut next = story.clone();
                next.ends.push((path, end));
                self.go(machine, Input::Ended { path, end }, &next, Some(path));
            }
        }
    }

    /// Steps a copy of the machine, checks it, and continues the search from there.
    fn go(&mut self, machine: &ForkJoinMachine, input: Input, story: &Story, gone: Option<usize>) {
        let paths = self.fork.paths.len();
        let mut machine = machine.clone();
        let live: Vec<usize> = machine.live().collect();
        let before = paths.min(self.bound + story.ends.len() - usize::from(gone.is_some()));
        let undecided = oracle(&self.fork.join, paths, before, story).verdict.is_none();
        let started = if undecided {
            paths.min(self.bound + story.ends.len())
        } else {
            before
        };
        let expected = oracle(&self.fork.join, paths, started, story);

        let effects = step(&mut machine, input);
        assert_eq!(
            machine.verdict(),
            expected.verdict.as_ref(),
            "{:?} {:?}",
            self.fork.join,
            story.ends
        );
        assert_eq!(machine.paths(), expected.paths, "{:?} {:?}", self.fork.join, story.ends);

        let Some(verdict) = expected.verdict else {
            let starts: Vec<Effect> = (before..started).map(|path| Effect::StartPath { path }).collect();
            assert_eq!(effects, starts);
            return self.explore(&machine, story);
        };
        self.decided += 1;
        let mut effects_wanted = Vec::new();
        if verdict != Verdict::TimedOut {
            effects_wanted.push(Effect::StopTimer { generation: 1 });
        }
        effects_wanted.push(Effect::Decided { verdict });
        let rest: Vec<usize> = live.into_iter().filter(|path| gone != Some(*path)).collect();
        let stopped = rest.iter().filter(|path| expected.paths[**path] == PathStatus::Stopped);
        effects_wanted.extend(stopped.map(|path| Effect::CancelPath { path: *path }));
        if rest.is_empty() {
            effects_wanted.push(Effect::AllEnded);
        }
        assert_eq!(effects, effects_wanted, "{:?} {:?}", self.fork.join, story.ends);
        wind_down(machine, &rest);
    }
}

/// After the decision, the remaining ends are only counted.
fn wind_down(mut machine: ForkJoinMachine, rest: &[usize]) {
    for (count, &path) in rest.iter().enumerate() {
        let end = if count % 2 == 0 {
            PathEnd::Cancelled
        } else {
            PathEnd::Completed
        };
        let last = count + 1 == rest.len();
        let expected: &[Effect] = if last { &[Effect::AllEnded] } else { &[] };
        assert_eq!(step(&mut machine, Input::Ended { path, end }), expected);
    }
}

fn explore(fork: &Fork, bound: Option<u32>, ends: fn(usize) -> &'static [PathEnd]) -> usize {
    let paths = fork.paths.len();
    let mut machine = ForkJoinMachine::new(fork, bound);
    let bound = match fork.strategy {
        ForkStrategy::Serial => 1,
        ForkStrategy::Parallel => bound.map_or(paths, |bound| bound as usize),
    };
    let mut starts: Vec<Effect> = (0..bound.min(paths)).map(|path| Effect::StartPath { path }).collect();
    let after_ms = fork.join.timeout_ms.expect("every fork here has a timeout");
    starts.push(Effect::StartTimer {
        generation: 1,
        after_ms,
    });
    assert_eq!(step(&mut machine, Input::Start), starts);
    let mut explorer = Explorer {
        fork,
        bound,
        ends,
        decided: 0,
    };
    explorer.explore(&machine, &Story::default());
    explorer.decided
}

fn rules(paths: usize) -> Vec<(JoinStrategy, u32)> {
    let mut rules = vec![
        (JoinStrategy::AllCompleted, 1),
        (JoinStrategy::AnyCompleted, 1),
        (JoinStrategy::AllFailed, 1),
        (JoinStrategy::AnyFailed, 1),
    ];
    rules.extend((1..=paths as u32).map(|k| (JoinStrategy::SuccessCountThreshold, k)));
    rules
}

const EVERY_END: [PathEnd; 4] = [
    PathEnd::Failed,
    PathEnd::Completed,
    PathEnd::Timeout,
    PathEnd::Cancelled,
];

/// Completed, or one of the three that count as failed.
fn completed_or_not(path: usize) -> &'static [PathEnd] {
    const ENDS: [[PathEnd; 2]; 3] = [
        [PathEnd::Completed, PathEnd::Failed],
        [PathEnd::Completed, PathEnd::Timeout],
        [PathEnd::Completed, PathEnd::Cancelled],
    ];
    &ENDS[path % 3]
}

#[test]
fn every_order_of_up_to_three_paths_decides_by_the_specification() {
    for paths in 1..=3 {
        for (strategy, threshold) in rules(paths) {
            for merge in [MergeVariables::None, MergeVariables::Main, MergeVariables::All] {
                for on_decided in [OnDecided::Cancel, OnDecided::Detach] {
                    for main in (0..paths).map(Some).chain([None]) {
                        for bound in (0..=paths as u32).map(|bound| (bound > 0).then_some(bound)) {
                            let mut fork = fork(paths, strategy);
                            fork.strategy = bound.map_or(ForkStrategy::Serial, |_| ForkStrategy::Parallel);
                            fork.join.threshold = threshold;
                            fork.join.timeout_ms = Some(30);
                            fork.join.merge_variables = merge;
                            fork.join.on_decided = on_decided;
                            fork.join.main_path_explicit = main.is_some();
                            fork.join.main_path = main.unwrap_or_default();
                            let ends = if paths < 3 {
                                |_| EVERY_END.as_slice()
                            } else {
                                completed_or_not
                            };
                            assert!(explore(&fork, bound, ends) > 0);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_order_of_four_and_five_paths_decides_by_the_specification() {
    for paths in 4..=5 {
        for (strategy, threshold) in rules(paths) {
            for (on_decided, main) in [(OnDecided::Cancel, None), (OnDecided::Detach, Some(1))] {
                for bound in [None, Some(1), Some(3)] {
                    let mut fork = fork(paths, strategy);
                    fork.join.threshold = threshold;
                    fork.join.timeout_ms = Some(30);
                    fork.join.merge_variables = MergeVariables::All;
                    fork.join.on_decided = on_decided;
                    fork.join.main_path_explicit = main.is_some();
                    fork.join.main_path = main.unwrap_or_default();
                    assert!(explore(&fork, bound, completed_or_not) > 0);
                }
            }
        }
    }
}
