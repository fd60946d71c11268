//! End of a thread: cancels what it started and notifies its starter.

use std::sync::Arc;

use pirn_definition::definition::MergeVariables;
use pirn_definition::event_type::EventType;
use serde_json::{Value, json};

use crate::join;
use crate::run::ThreadNo;
use crate::run::data::effect::Effect;
use crate::run::data::message::{ThreadResult, Timer};
use crate::run::data::thread_state::Slot;
use crate::run::parts::firing::{AbandonAction, too_late};
use crate::run::parts::quiescence::TerminationAction;
use crate::run::parts::tree::{Origin, OwnedWork};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::thread::{CancelReason, EffectId};

impl RunMachine {
    /// Handles the end of a thread, after its end message or a panic.
    pub(in crate::run) fn ended(&mut self, thread: ThreadNo, mut ended: Box<ThreadResult>, step: &mut Step<'_>) {
        // Two ends may be queued: an actor may panic after it has sent the end of its thread. The first one counts.
        if !self.tree.is_live(thread) {
            return;
        }
        let status = ended.end.status;
        // The actor died before it could raise its end event, so that the run raises it.
        if ended.panicked {
            step.out.push(Effect::ThreadEnded { thread });
            let (path_id, error) = (self.path_id(thread), ended.end.error.clone());
            self.emit(thread, EventType::ThreadFailed, step, || {
                vec![
                    ("status", json!(status)),
                    ("pathId", json!(path_id)),
                    ("output", Value::Null),
                    ("error", json!(error)),
                ]
            });
        }
        // The join may have been decided since the thread was created: free what it can no longer use.
        if ended.artifacts.is_some() && !self.keeps_artifacts(thread) {
            ended.artifacts = None;
        }
        // Before the starter is notified below, which reads the outcome from the slot.
        let slot = std::mem::replace(&mut self.slots[thread as usize], Slot::Ended(ended));
        if let Slot::Live(live) = slot {
            if thread == 0 {
                self.remains = Some(live);
            } else {
                self.spare = Some(live);
            }
        }
        self.budget_of_ended(thread, step);
        if thread == 0 && self.user_messages.is_some() {
            self.report_undelivered(step);
        }
        let Some(owned) = self.tree.end(thread) else { return };
        let Some(at) = self.tree.get(thread) else { return };
        let (origin, trigger_depth) = (at.origin, at.trigger_depth);
        // The host would otherwise hold the timer until it expires.
        if let Some(after_ms) = self.time_limit(at) {
            let timer = Timer::Thread { thread, after_ms };
            step.out.push(Effect::StopTimer { timer });
        }
        for owned in owned {
            self.cancel_owned(owned, trigger_depth, step);
        }
        for (firing, abandoned) in self.firings.abandon(thread) {
            match abandoned {
                AbandonAction::Stop(child) => self.cancel(child, CancelReason::ParentEnded, trigger_depth),
                AbandonAction::NeverBegan(error) => self.emit_refused(firing, &error, step),
                AbandonAction::TooLate => self.applied(firing, Some(too_late()), step),
                // `detached_ended` ends the firing when its run reports.
                AbandonAction::Nothing => {}
            }
        }
        match origin {
            Origin::Main => {}
            Origin::Branch { fork, path, .. } | Origin::Item { fork, index: path } => {
                self.branch_ended(fork, path as usize, status, step);
            }
            Origin::Called { parent, effect } => self.called_ended(parent, effect, thread, step),
            Origin::Triggered { firing } => self.triggered_ended(firing, thread, step),
        }
        self.check_completion(step);
    }

    /// Checks whether the run can report or settle, after the end of a thread or a call.
    pub(in crate::run) fn check_completion(&mut self, step: &mut Step<'_>) {
        let (main_ended, left) = (!self.tree.is_live(0), self.left());
        let attached = self.tree.attached() + self.calls_before_outcome();
        let quiet = self.quiescence.ended(main_ended, attached, left);
        self.quiet(quiet, step);
    }

    /// Returns the number of threads and trigger calls that have not ended.
    pub(in crate::run) fn left(&self) -> usize {
        self.tree.live() + self.open_calls()
    }

    pub(in crate::run) fn quiet(&mut self, mut quiet: Option<TerminationAction>, step: &mut Step<'_>) {
        // Include the events of this step, which are not counted yet.
        if std::mem::take(&mut step.raised_watched) {
            self.quiescence.raised();
        }
        while let Some(next) = quiet.take() {
            match next {
                TerminationAction::AskTriggers => step.out.push(Effect::QuiesceTriggers),
                TerminationAction::Report => {
                    let report = self.report(step.now);
                    // Before the report: a run of the session that starts when the outcome is visible has the new state.
                    step.out.extend(self.leave_session(&report));
                    step.out.push(Effect::Report(Arc::new(report)));
                    // Without detached threads and open calls the run may settle in this step.
                    quiet = self.quiescence.ended(true, self.tree.attached(), self.left());
                }
                TerminationAction::Settle => step.out.push(Effect::Settled),
            }
        }
    }

    /// Returns true if the starter of this thread uses its remaining state.
    pub(in crate::run) fn keeps_artifacts(&self, thread: ThreadNo) -> bool {
        match self.tree.get(thread).map(|at| at.origin) {
            // The report shows the state of the main thread. A triggered thread may return messages and variables.
            Some(Origin::Main | Origin::Triggered { .. }) => true,
            Some(Origin::Branch { fork, path, .. }) => {
                let run = self.forks.get(&fork);
                run.is_some_and(|run| run.machine.may_take_over(path as usize))
            }
            Some(Origin::Item { fork, index }) => self.forks.get(&fork).is_some_and(|run| {
                // Only variables: a MAP never takes over the conversation of an item.
                let merges = run.machine.rule().merge_variables != MergeVariables::None;
                merges && run.machine.may_take_over(index as usize)
            }),
            // A caller receives the output only.
            Some(Origin::Called { .. }) | None => false,
        }
    }

    /// Cancels work that an ended thread owned.
    fn cancel_owned(&mut self, owned: OwnedWork, trigger_depth: u32, step: &mut Step<'_>) {
        match owned {
            // Through the join, which decides once: its branches are then cancelled as losers.
            OwnedWork::Fork(fork) => self.step_fork(fork, join::Input::Cancel, step),
            OwnedWork::Child { thread, .. } => self.cancel(thread, CancelReason::ParentEnded, trigger_depth),
        }
    }

    pub(in crate::run) fn drop_effect(&mut self, thread: ThreadNo, effect: EffectId, step: &mut Step<'_>) {
        // Not found if the fork or the called thread has ended while the message was queued.
        let wanted = self.tree.owned(thread).iter().copied().find(|owned| match owned {
            OwnedWork::Fork(fork) => self.forks.get(fork).is_some_and(|run| run.effect == effect),
            OwnedWork::Child { effect: own, .. } => *own == effect,
        });
        if let Some(owned) = wanted {
            // Disowned first: the end of the thread must not cancel it a second time.
            self.tree.disown(thread, owned);
            let trigger_depth = self.tree.trigger_depth(thread);
            self.cancel_owned(owned, trigger_depth, step);
        }
    }
}
