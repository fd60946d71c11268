//! State machine of one fork: starts its paths, counts their ends, and decides its join once.
//!
//! | phase | Start | Ended | Deadline | Cancel |
//! |---|---|---|---|---|
//! | Idle | starts paths and the timer: **Waiting** (or decided at once) | `NotRunning` | `NoSuchTimer` | **Closed**, CANCELLED |
//! | Waiting | `AlreadyStarted` | counts, starts the next; may decide | its timer: decides TIMED_OUT, else `NoSuchTimer` | decides CANCELLED |
//! | Decided | nothing | the last one: `AllEnded`, **Closed** | nothing | nothing |
//! | Closed | nothing | nothing | nothing | nothing |
//!
//! A decision leads to Decided while a started path has not ended, otherwise to Closed. A word in `code` is a [`Rejected`]; a
//! rejected input changes nothing and emits nothing.
//!
//! Invariants:
//! 1. At most one `Decided` is emitted. `AllEnded` is emitted at most once, after every started path has ended.
//! 2. Before the verdict, never more paths than the bound run at once; a serial fork has a bound of one.
//! 3. Paths start in path order, and no path starts after the verdict.

use pirn_definition::definition::{ForkStrategy, OnDecided};
use pirn_definition::graph::{Fork, JoinRule};
use serde::{Deserialize, Serialize};

use super::path::{PathEnd, PathStatus};
use super::rule::{self, Tally, Verdict};

/// An input of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "input")]
pub enum Input {
    /// The parent is at the FORK and waits at the JOIN from now on. The timeout starts.
    Start,
    /// A path's thread ended.
    Ended {
        /// Index of the path in the fork.
        path: usize,
        /// The way its thread ended.
        end: PathEnd,
    },
    /// A timer fired.
    Deadline {
        /// The generation in [`Effect::StartTimer`].
        generation: u32,
    },
    /// The parent is being cancelled. After the verdict this input changes nothing: detached paths belong to no fork any more, and
    /// go on.
    Cancel,
}

/// An action that the supervisor must perform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "effect")]
pub enum Effect {
    /// Start the thread of this path.
    StartPath {
        /// Index of the path in the fork.
        path: usize,
    },
    /// Cancel the thread of this path; its end must still be reported.
    CancelPath {
        /// Index of the path in the fork.
        path: usize,
    },
    /// Start a timer that reports [`Input::Deadline`].
    StartTimer {
        /// Identifies the timer.
        generation: u32,
        /// Milliseconds.
        after_ms: u64,
    },
    /// Stop the timer.
    StopTimer {
        /// The one to stop.
        generation: u32,
    },
    /// The join is decided: answer the parent now; cancelled paths may still be ending.
    Decided {
        /// The verdict.
        verdict: Verdict,
    },
    /// Every started path has ended: the fork's state can be dropped.
    AllEnded,
}

/// Reason why an input was refused. The machine is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// A second `Start`.
    #[error("the fork has been started already")]
    AlreadyStarted,
    /// An end for a path that is not running.
    #[error("path {path} is not running")]
    NotRunning {
        /// Index of the path in the fork.
        path: usize,
    },
    /// An end for a path that the fork does not have.
    #[error("the fork has no path {path}")]
    UnknownPath {
        /// Index in the input.
        path: usize,
    },
    /// A deadline of a timer that is not running.
    #[error("timer {generation} is not running")]
    NoSuchTimer {
        /// The generation in the input.
        generation: u32,
    },
}

/// Phase of a fork; the rows of the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Created, not started.
    Idle,
    /// Paths run, the parent waits at JOIN.
    Waiting,
    /// The join is decided, and some started paths have not ended.
    Decided,
    /// The join is decided, and every started path has ended.
    Closed,
}

/// Decides one fork instance. The supervisor passes inputs and performs the effects in order:
///
/// ```
/// # use pirn_definition::graph::Fork;
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
    /// By path: started and not ended, before or after the verdict.
    live: Vec<bool>,
    /// Number of live paths.
    live_count: usize,
    /// Index of the first path that has not been started.
    next: usize,
    /// Generation of the last timer; 0 before the first.
    timer: u32,
    verdict: Option<Verdict>,
}

impl ForkJoinMachine {
    /// Creates a machine for one instance of `fork`. `max_concurrent` bounds the concurrent paths (`None`: unlimited; 0 counts as
    /// 1); a serial fork runs one at a time.
    pub fn new(fork: &Fork, max_concurrent: Option<u32>) -> Self {
        let max_concurrent = match fork.strategy {
            ForkStrategy::Serial => Some(1),
            ForkStrategy::Parallel => max_concurrent,
        };
        Self::of_paths(fork.join.clone(), fork.paths.len(), max_concurrent)
    }

    /// Creates a machine for `paths` paths; 0 is allowed.
    pub fn of_paths(rule: JoinRule, paths: usize, max_concurrent: Option<u32>) -> Self {
        Self {
            rule,
            // A bound of 0 would start no path and wait for ever.
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

    /// Returns the phase of the fork.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns every path's status in path order; frozen by the verdict.
    pub fn paths(&self) -> &[PathStatus] {
        &self.paths
    }

    /// Returns the paths with threads that have been started and have not ended, in path order. After the verdict these are being
    /// cancelled, or are detached.
    pub fn live(&self) -> impl Iterator<Item = usize> + '_ {
        self.live
            .iter()
            .enumerate()
            .filter_map(|(path, is_live)| is_live.then_some(path))
    }

    /// True if a future verdict may use the conversation or the variables of this path's thread. Once the result is false it
    /// stays false, so the thread's state can be dropped before the join is decided.
    pub fn may_take_over(&self, path: usize) -> bool {
        match self.phase {
            Phase::Idle | Phase::Waiting => rule::may_take_over(&self.rule, &self.paths, path),
            // The verdict has named the paths to take over, and their threads have ended.
            Phase::Decided | Phase::Closed => false,
        }
    }

    /// Returns the verdict, once the join is decided.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Returns the JOIN's rule.
    pub fn rule(&self) -> &JoinRule {
        &self.rule
    }

    /// Handles one input and appends the effects to `out`, in order.
    ///
    /// # Errors
    /// [`Rejected`] if the input is not valid in this phase; nothing has changed. After the verdict every input is valid.
    pub fn step(&mut self, input: Input, out: &mut Vec<Effect>) -> Result<(), Rejected> {
        match self.phase {
            Phase::Idle | Phase::Waiting => self.step_open(input, out),
            Phase::Decided => {
                self.step_decided(input, out);
                Ok(())
            }
            // A deadline or a cancel may be on its way when the last path ends: that is no error of the sender.
            Phase::Closed => Ok(()),
        }
    }

    fn step_open(&mut self, input: Input, out: &mut Vec<Effect>) -> Result<(), Rejected> {
        match input {
            Input::Start => {
                if self.phase != Phase::Idle {
                    return Err(Rejected::AlreadyStarted);
                }
                // Before the timer: a fork without paths is decided at once and needs none.
                self.settle(None, out);
                if self.verdict.is_none() {
                    self.wait(out);
                }
            }
            Input::Ended { path, end } => self.count(path, end, out)?,
            Input::Deadline { generation } => {
                // Before the start no timer runs, although the generations are equal (0).
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

    /// Returns the timeout. 0 is no timeout, even in a rule that was built in code.
    fn timeout_ms(&self) -> Option<u64> {
        self.rule.timeout_ms.filter(|after_ms| *after_ms > 0)
    }

    /// Counts an end, in constant time for forks of any size.
    fn count(&mut self, path: usize, end: PathEnd, out: &mut Vec<Effect>) -> Result<(), Rejected> {
        match self.live.get(path) {
            None => return Err(Rejected::UnknownPath { path }),
            Some(true) => {}
            Some(false) => return Err(Rejected::NotRunning { path }),
        }
        // Before the decision, which selects the path to take over by these statuses.
        self.paths[path] = end.into();
        match end {
            PathEnd::Completed => self.tally.completed += 1,
            PathEnd::Failed | PathEnd::Timeout | PathEnd::Cancelled => self.tally.failed += 1,
        }
        self.settle(Some(path), out);
        Ok(())
    }

    /// Decides, or starts further paths. `gone` is the path that ended with this input.
    fn settle(&mut self, gone: Option<usize>, out: &mut Vec<Effect>) {
        match rule::decide(&self.rule, self.tally) {
            Some(true) => self.close(rule::success(&self.rule, &self.paths), gone, out),
            Some(false) => self.close(Verdict::ConditionNotMet, gone, out),
            None => {
                // First, so that the ended path frees its place for the next one.
                self.forget(gone);
                self.start_next(out);
            }
        }
    }

    fn forget(&mut self, path: Option<usize>) {
        if let Some(is_live) = path.and_then(|path| self.live.get_mut(path))
            // Taken: a path that reports its end twice after the verdict is counted once.
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
        // After TIMED_OUT the timer has fired, and in Idle it was not started.
        if self.phase == Phase::Waiting && self.timeout_ms().is_some() && verdict != Verdict::TimedOut {
            let generation = self.timer;
            out.push(Effect::StopTimer { generation });
        }
        let rest = self.rest_after(&verdict);
        // Before the cancels: the parent's answer does not wait for the losers.
        out.push(Effect::Decided {
            verdict: verdict.clone(),
        });
        // Stored: a loser whose turn comes before its cancel reads it (`RunMachine::pending_cancel`).
        self.verdict = Some(verdict);
        // Before the count of live paths below: the path that caused the verdict has ended.
        self.forget(gone);
        if rest == PathStatus::Stopped {
            out.reserve(self.live_count + 1);
        }
        for (path, status) in self.paths.iter_mut().enumerate() {
            match status {
                // No thread was created, so that there is nothing to cancel.
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

    /// Returns the status of the remaining paths. `onDecided: detach` applies only to a decided race: a timeout always cancels
    /// the rest, and a cancel applies to the whole tree.
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
            // Only counted: the verdict has frozen the status.
            Input::Ended { path, .. } => self.forget(Some(path)),
            // Returns without a test for the end: `AllEnded` follows only from the end of a path.
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
