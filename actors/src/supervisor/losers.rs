//! Last turns: a join's losers that have begun are told to stop in turns of their own, after the join's answer has been heard.
//! Until then nobody so much as looks at them: that would stand between the decision and what follows it. A loser whose first
//! turn is to come is told at once, so it never takes it; under a virtual clock all are.

use std::collections::VecDeque;
use std::vec::IntoIter;

use pirn_core::join::{Effect, Verdict};
use pirn_core::thread::CancelReason;

use super::turns::{AT_ONCE, Place};
use super::{Child, ForkNo, Origin, SupervisorActor, SupervisorMsg, ThreadNo};

/// Losers that are to be told to stop, join by join.
#[derive(Default)]
pub(super) struct Losers(VecDeque<LosersOf>);

/// The losers of one join: paths, from what was decided.
pub(super) struct LosersOf {
    fork: ForkNo,
    paths: Box<dyn Iterator<Item = usize>>,
}

impl LosersOf {
    /// The first loser of a decision, and what else is to be done for it: the others.
    pub(super) fn of(fork: ForkNo, first: usize, rest: IntoIter<Effect>) -> Self {
        let others = rest.filter_map(|effect| match effect {
            Effect::CancelPath { path } => Some(path),
            Effect::StartPath { .. }
            | Effect::StartTimer { .. }
            | Effect::StopTimer { .. }
            | Effect::Decided { .. }
            | Effect::AllEnded => None,
        });
        Self {
            fork,
            paths: Box::new(std::iter::once(first).chain(others)),
        }
    }
}

impl SupervisorActor {
    /// Stops the threads that their join has no more use for.
    pub(super) fn stop_losers(&mut self, mut losers: LosersOf) {
        if self.run.engine.is_simulated || self.fresh.is_waiting() {
            let (at_once, later): (Vec<usize>, Vec<usize>) =
                losers.paths.partition(|path| self.is_told_at_once(losers.fork, *path));
            for path in at_once {
                if let Some(thread) = self.thread_of(losers.fork, path) {
                    self.tell_loser(thread);
                }
            }
            if later.is_empty() {
                return;
            }
            losers.paths = Box::new(later.into_iter());
        }
        let is_asked = !self.losers.0.is_empty();
        self.losers.0.push_back(losers);
        if !is_asked {
            self.ask_later(SupervisorMsg::LastTurns);
        }
    }

    fn is_told_at_once(&self, fork: ForkNo, path: usize) -> bool {
        let child = self.thread_of(fork, path).and_then(|thread| self.threads.get(thread));
        let is_fresh = |child: &Child| matches!(child.place, Place::Fresh { .. });
        self.run.engine.is_simulated || child.is_some_and(is_fresh)
    }

    fn thread_of(&self, fork: ForkNo, path: usize) -> Option<ThreadNo> {
        self.forks.get(&fork)?.threads.get(path).copied().flatten()
    }

    fn tell_loser(&mut self, no: ThreadNo) {
        let fork = self.threads.get(no).and_then(|child| match child.origin {
            Origin::Branch { fork, .. } => self.forks.get(&fork),
            Origin::Main | Origin::Called { .. } | Origin::Triggered { .. } => None,
        });
        let trigger_depth = fork.map_or(0, |run| self.depth_of(run.parent));
        let reason = match fork.and_then(|run| run.machine.verdict()) {
            Some(Verdict::Cancelled) => CancelReason::ParentEnded,
            Some(
                Verdict::Succeeded { .. } | Verdict::ConditionNotMet | Verdict::TimedOut | Verdict::MainThreadNotFound,
            )
            | None => CancelReason::JoinDecided,
        };
        self.cancel_caused(no, reason, trigger_depth);
    }

    /// Tells some losers to stop.
    pub(super) fn last_turns(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(no) = self.next_loser() else { return };
            self.tell_loser(no);
        }
        if !self.losers.0.is_empty() {
            self.ask_later(SupervisorMsg::LastTurns);
        }
    }

    fn next_loser(&mut self) -> Option<ThreadNo> {
        loop {
            let losers = self.losers.0.front_mut()?;
            let fork = losers.fork;
            let Some(path) = losers.paths.next() else {
                self.losers.0.pop_front();
                continue;
            };
            // Of a fork that is over all have ended.
            if let Some(thread) = self.thread_of(fork, path) {
                return Some(thread);
            }
        }
    }
}
