//! The machine of one fork: starts its paths, counts their ends, decides its join once.
//!
//! | phase | Start | Ended | Deadline | Cancel |
//! |---|---|---|---|---|
//! | Idle | starts paths and the timer: **Waiting** (or decided at once) | `NotRunning` | `NoSuchTimer` | **Closed**, CANCELLED |
//! | Waiting | `AlreadyStarted` | counts, starts the next; may decide | its timer: decides TIMED_OUT, else `NoSuchTimer` | decides CANCELLED |
//! | Decided | nothing | the last one: `AllEnded`, **Closed** | nothing | nothing |
//! | Closed | nothing | nothing | nothing | nothing |
//!
//! Deciding leads to Decided while a started path has not ended, else to Closed. A word in `code` is a
//! [`Rejected`]; a rejected input changes nothing and emits nothing.
//!
//! Invariants:
//! 1. At most one `Decided` is emitted, and every started path has ended when `AllEnded` is; each at most once.
//! 2. Never more than the bound run at once before the verdict; serial is a bound of one.
//! 3. Paths start in path order, and no path starts after the verdict.

use serde::{Deserialize, Serialize};

use super::path::{PathEnd, PathStatus};
use super::rule::{self, Tally, Verdict};
use crate::definition::{ForkStrategy, OnDecided};
use crate::graph::{Fork, JoinRule};

/// Something that happened to a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "input")]
pub enum Input {
    /// The parent is at FORK, and waits at JOIN from now on: the timeout's clock starts.
    Start,
    /// A path's thread ended.
    Ended {
        /// Its place in the fork.
        path: usize,
        /// The end of its thread.
        end: PathEnd,
    },
    /// A timer fired.
    Deadline {
        /// The one named by [`Effect::StartTimer`].
        generation: u32,
    },
    /// The parent is being cancelled. After the verdict this changes nothing: whoever cancels also cancels the paths
    /// that [`ForkJoinMachine::live`] still names, detached ones included.
    Cancel,
}

/// Something the supervisor is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "effect")]
pub enum Effect {
    /// Start the thread of this path.
    StartPath {
        /// Its place in the fork.
        path: usize,
    },
    /// Cancel the thread of this path; its end is still to be reported.
    CancelPath {
        /// Its place in the fork.
        path: usize,
    },
    /// Report [`Input::Deadline`] after a while.
    StartTimer {
        /// Tells this timer from others.
        generation: u32,
        /// Milliseconds.
        after_ms: u64,
    },
    /// The timer is no longer needed.
    StopTimer {
        /// The one to stop.
        generation: u32,
    },
    /// The join is decided: answer the parent now, the losers may still be winding down.
    Decided {
        /// The verdict.
        verdict: Verdict,
    },
    /// Every started path has ended: the fork can be forgotten.
    AllEnded,
}

/// Why an input was refused. The machine is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// `Start` came twice.
    AlreadyStarted,
    /// An end for a path that is not running.
    NotRunning {
        /// Its place in the fork.
        path: usize,
    },
    /// An end for a path that the fork does not have.
    UnknownPath {
        /// The place asked for.
        path: usize,
    },
    /// A deadline of a timer that does not run.
    NoSuchTimer {
        /// The one that fired.
        generation: u32,
    },
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AlreadyStarted => f.write_str("the fork has been started already"),
            Self::NotRunning { path } => write!(f, "path {path} is not running"),
            Self::UnknownPath { path } => write!(f, "the fork has no path {path}"),
            Self::NoSuchTimer { generation } => write!(f, "timer {generation} is not running"),
        }
    }
}

impl std::error::Error for Rejected {}

/// The phase of a fork; the rows of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Made, not started.
    Idle,
    /// Paths run, the parent waits at JOIN.
    Waiting,
    /// The verdict is out, started paths have not all ended.
    Decided,
    /// The verdict is out and every started path has ended.
    Closed,
}

/// A supervisor's decision for one fork instance. Feed it what happens, do what it says, in order:
///
/// ```
/// # use pirn_core::graph::Fork;
/// use pirn_core::join::{Effect, ForkJoinMachine, Input};
///
/// fn at_fork(fork: &Fork, max_concurrent: Option<u32>) -> Vec<Effect> {
///     let mut effects = Vec::new();
///     let mut machine = ForkJoinMachine::new(fork, max_concurrent);
///     machine.step(Input::Start, &mut effects).expect("it was just made");
///     effects
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkJoinMachine {
    rule: JoinRule,
    bound: usize,
    phase: Phase,
    paths: Vec<PathStatus>,
    tally: Tally,
    /// By path: started and not ended, the verdict notwithstanding.
    live: Vec<bool>,
    /// The number of live ones.
    live_count: usize,
    /// The first path that has not been started.
    next: usize,
    /// The last timer's generation; 0 before the first.
    timer: u32,
    verdict: Option<Verdict>,
}

impl ForkJoinMachine {
    /// A machine for one instance of `fork`. `max_concurrent` bounds the paths that run at once (none: all of them;
    /// 0 counts as 1); a serial fork runs one.
    pub fn new(fork: &Fork, max_concurrent: Option<u32>) -> Self {
        let max_concurrent = match fork.strategy {
            ForkStrategy::Serial => Some(1),
            ForkStrategy::Parallel => max_concurrent,
        };
        Self::of_paths(fork.join.clone(), fork.paths.len(), max_concurrent)
    }

    /// A machine for so many paths, which may be none.
    pub fn of_paths(rule: JoinRule, paths: usize, max_concurrent: Option<u32>) -> Self {
        Self {
            rule,
            bound: max_concurrent.map_or(paths, |bound| bound.max(1) as usize),
            phase: Phase::Idle,
            paths: vec![PathStatus::Pending; paths],
            tally: Tally {
                paths,
                completed: 0,
                failed: 0,
            },
            live: vec![false; paths],
            live_count: 0,
            next: 0,
            timer: 0,
            verdict: None,
        }
    }

    /// The phase the fork is in.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Every path's status in path order; frozen by the verdict.
    pub fn paths(&self) -> &[PathStatus] {
        &self.paths
    }

    /// The paths whose threads have been started and have not ended, in path order. After the verdict too: those
    /// are winding down, or detached.
    pub fn live(&self) -> impl Iterator<Item = usize> + '_ {
        self.live
            .iter()
            .enumerate()
            .filter_map(|(path, is_live)| is_live.then_some(path))
    }

    /// True if a verdict to come may ask for what the thread of this path leaves behind: its conversation, its
    /// variables. Once it may not, it never will: what nobody takes over need not be kept until the join is decided.
    pub fn may_take_over(&self, path: usize) -> bool {
        match self.phase {
            Phase::Idle | Phase::Waiting => rule::may_take_over(&self.rule, &self.paths, path),
            Phase::Decided | Phase::Closed => false,
        }
    }

    /// The verdict, once the join is decided.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// The JOIN's rule.
    pub fn rule(&self) -> &JoinRule {
        &self.rule
    }

    /// Takes one input and appends what is to be done to `out`, in order.
    ///
    /// # Errors
    /// [`Rejected`] when the input does not fit the phase; nothing has changed. After the verdict every input fits.
    pub fn step(&mut self, input: Input, out: &mut Vec<Effect>) -> Result<(), Rejected> {
        match self.phase {
            Phase::Idle | Phase::Waiting => self.step_open(input, out),
            Phase::Decided => {
                self.step_decided(input, out);
                Ok(())
            }
            Phase::Closed => Ok(()),
        }
    }

    fn step_open(&mut self, input: Input, out: &mut Vec<Effect>) -> Result<(), Rejected> {
        match input {
            Input::Start => {
                if self.phase != Phase::Idle {
                    return Err(Rejected::AlreadyStarted);
                }
                self.settle(None, out);
                if self.verdict.is_none() {
                    self.wait(out);
                }
            }
            Input::Ended { path, end } => self.count(path, end, out)?,
            Input::Deadline { generation } => {
                let runs = self.phase == Phase::Waiting && self.timeout_ms().is_some() && generation == self.timer;
                if !runs {
                    return Err(Rejected::NoSuchTimer { generation });
                }
                self.close(Verdict::TimedOut, None, out);
            }
            Input::Cancel => self.close(Verdict::Cancelled, None, out),
        }
        Ok(())
    }

    fn wait(&mut self, out: &mut Vec<Effect>) {
        self.phase = Phase::Waiting;
        if let Some(after_ms) = self.timeout_ms() {
            self.timer += 1;
            let generation = self.timer;
            out.push(Effect::StartTimer { generation, after_ms });
        }
    }

    /// 0 is no timeout, also where a caller built the rule by hand.
    fn timeout_ms(&self) -> Option<u64> {
        self.rule.timeout_ms.filter(|after_ms| *after_ms > 0)
    }

    /// Counts an end: at the same cost in a fork of 8 and of 10,000.
    fn count(&mut self, path: usize, end: PathEnd, out: &mut Vec<Effect>) -> Result<(), Rejected> {
        match self.live.get(path) {
            None => return Err(Rejected::UnknownPath { path }),
            Some(true) => {}
            Some(false) => return Err(Rejected::NotRunning { path }),
        }
        self.paths[path] = end.into();
        match end {
            PathEnd::Completed => self.tally.completed += 1,
            PathEnd::Failed | PathEnd::Timeout | PathEnd::Cancelled => self.tally.failed += 1,
        }
        self.settle(Some(path), out);
        Ok(())
    }

    /// Decides, or starts what may run. `gone` is the path that ended with this input.
    fn settle(&mut self, gone: Option<usize>, out: &mut Vec<Effect>) {
        match rule::decide(&self.rule, self.tally) {
            Some(true) => self.close(rule::success(&self.rule, &self.paths), gone, out),
            Some(false) => self.close(Verdict::ConditionNotMet, gone, out),
            None => {
                self.forget(gone);
                self.start_next(out);
            }
        }
    }

    fn forget(&mut self, path: Option<usize>) {
        if let Some(is_live) = path.and_then(|path| self.live.get_mut(path))
            && std::mem::take(is_live)
        {
            self.live_count -= 1;
        }
    }

    fn start_next(&mut self, out: &mut Vec<Effect>) {
        while self.live_count < self.bound && self.next < self.paths.len() {
            let path = self.next;
            self.next += 1;
            self.live[path] = true;
            self.live_count += 1;
            self.paths[path] = PathStatus::Running;
            out.push(Effect::StartPath { path });
        }
    }

    fn close(&mut self, verdict: Verdict, gone: Option<usize>, out: &mut Vec<Effect>) {
        if self.phase == Phase::Waiting && self.timeout_ms().is_some() && verdict != Verdict::TimedOut {
            let generation = self.timer;
            out.push(Effect::StopTimer { generation });
        }
        let rest = self.rest_after(&verdict);
        out.push(Effect::Decided {
            verdict: verdict.clone(),
        });
        self.verdict = Some(verdict);
        self.forget(gone);
        if rest == PathStatus::Stopped {
            out.reserve(self.live_count + 1);
        }
        for (path, status) in self.paths.iter_mut().enumerate() {
            match status {
                PathStatus::Pending => *status = PathStatus::Skipped,
                PathStatus::Running => {
                    *status = rest;
                    if rest == PathStatus::Stopped && self.live[path] {
                        out.push(Effect::CancelPath { path });
                    }
                }
                PathStatus::Completed
                | PathStatus::Failed
                | PathStatus::Timeout
                | PathStatus::Cancelled
                | PathStatus::Stopped
                | PathStatus::Skipped
                | PathStatus::Detached => {}
            }
        }
        self.phase = Phase::Decided;
        self.close_when_all_ended(out);
    }

    /// `onDecided: detach` spares the losers of a race. A timeout and a cancel leave nobody to run on for: a timeout
    /// cancels the rest on expiry without exception, and a cancel goes down the whole tree.
    fn rest_after(&self, verdict: &Verdict) -> PathStatus {
        match (verdict, self.rule.on_decided) {
            (Verdict::TimedOut | Verdict::Cancelled, _) => PathStatus::Stopped,
            (Verdict::Succeeded { .. } | Verdict::ConditionNotMet | Verdict::MainThreadNotFound, OnDecided::Cancel) => {
                PathStatus::Stopped
            }
            (Verdict::Succeeded { .. } | Verdict::ConditionNotMet | Verdict::MainThreadNotFound, OnDecided::Detach) => {
                PathStatus::Detached
            }
        }
    }

    fn step_decided(&mut self, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Ended { path, .. } => self.forget(Some(path)),
            Input::Start | Input::Deadline { .. } | Input::Cancel => return,
        }
        self.close_when_all_ended(out);
    }

    fn close_when_all_ended(&mut self, out: &mut Vec<Effect>) {
        if self.live_count == 0 {
            self.phase = Phase::Closed;
            out.push(Effect::AllEnded);
        }
    }
}
