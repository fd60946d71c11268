//! Slots of a run's threads: not started, live or ended.

use std::sync::Arc;

use pirn_conversation::conversation::TokenLimit;

use crate::run::ThreadNo;
use crate::run::data::effect::Effect;
use crate::run::data::last_request::LastRequest;
use crate::run::data::message::{ConversationSource, FinalThreadState, ThreadResult, ToThread};
use crate::run::data::thread_state::{ConversationSlot, ConversationState, InitialState, LiveThread, Slot};
use crate::run::parts::tree::{Origin, TreeNode};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::status::ThreadStatus;
use crate::thread::{Input, Output, ThreadEnd, ThreadId, ThreadMachine};

impl RunMachine {
    /// Adds a thread to the run and schedules its first step.
    pub(in crate::run) fn register(
        &mut self,
        at: TreeNode,
        start: Option<Box<InitialState>>,
        step: &mut Step<'_>,
    ) -> ThreadNo {
        let thread = self.tree.add(at);
        self.memory.started();
        // Most runs have one thread: allocate for one.
        if self.slots.is_empty() {
            self.slots.reserve_exact(1);
        }
        self.slots.push(Slot::NotStarted(start));
        // Queued before the first step, which has low priority: the thread pauses at its first safe point.
        if self.is_paused {
            self.send(thread, ToThread::Input(Input::Pause { trigger_depth: 0 }));
        }
        // `begin_main` schedules the first step when the run gets its turn.
        if thread == 0 && self.awaits_session() {
            step.out.push(Effect::AwaitSession);
        } else {
            self.schedule_first_step(thread, step);
        }
        thread
    }

    /// Schedules the first step of a thread.
    pub(in crate::run) fn schedule_first_step(&mut self, thread: ThreadNo, step: &mut Step<'_>) {
        if self.picks_starts {
            step.out.push(Effect::Begin { thread });
        } else {
            self.begin(thread);
        }
    }

    /// Creates the thread's machine when its first message arrives.
    pub(in crate::run) fn activate(&mut self, no: ThreadNo) {
        let Some(at) = self.tree.get(no).cloned() else { return };
        let Some(slot) = self.slots.get_mut(no as usize) else {
            return;
        };
        let start = match slot {
            Slot::NotStarted(start) => start.take(),
            Slot::Live(_) | Slot::Ended(_) => return,
        };
        // The default is no limit: a compression must not exceed a limit and thereby start a compression of itself.
        let token_limit = if at.is_unlimited {
            TokenLimit::default()
        } else {
            self.graphs.token_limit(at.graph)
        };
        let own = |conversation, asked: Option<Box<LastRequest>>| {
            let mut own = ConversationState::new(conversation, token_limit);
            if let Some(last) = asked {
                own.requests.get_or_insert_default().last = Some(*last);
            }
            ConversationSlot::Own(own)
        };
        let keeps_artifacts = self.keeps_artifacts(no);
        // No closure and no `Option` around a machine: it is large, and each would copy it.
        let live = match (start, at.origin) {
            (Some(mut start), _) => {
                let asked = start.asked.take();
                let seed = start.into_seed(ThreadId::new(Arc::clone(&self.run_id), no));
                let Some((graph, seed, conversation)) = seed else {
                    return;
                };
                let speech = match conversation {
                    ConversationSource::Snapshot(conversation) => own(conversation, asked),
                    ConversationSource::Shared(owner) => ConversationSlot::Shared(owner),
                };
                LiveThread::new(ThreadMachine::new(graph, seed), speech, keeps_artifacts)
            }
            (None, Origin::Branch { fork, path, .. }) => {
                let Some((seed, conversation)) = self.branch(no, fork, path as usize) else {
                    return;
                };
                // The clone costs O(1): the branches share the entries of the snapshot.
                let speech = own(conversation.clone(), None);
                LiveThread::new(ThreadMachine::branch(self.graph_of(no), &seed), speech, keeps_artifacts)
            }
            // Only branches are registered without an `InitialState`.
            (None, Origin::Main | Origin::Item { .. } | Origin::Called { .. } | Origin::Triggered { .. }) => return,
        };
        // The branches of a fork often end one after the other, so that they share one allocation.
        self.slots[no as usize] = Slot::Live(match self.spare.take() {
            Some(mut place) => {
                *place = live;
                place
            }
            None => Box::new(live),
        });
    }

    /// Returns true until the thread's machine has ended. Its end message may still be queued after that.
    pub(in crate::run) fn is_open(&self, thread: ThreadNo) -> bool {
        match self.slots.get(thread as usize) {
            Some(Slot::Live(live)) => !live.machine.status().is_final(),
            Some(Slot::NotStarted(_)) => true,
            Some(Slot::Ended(_)) | None => false,
        }
    }

    /// Returns the machine of a thread that has started and not ended.
    pub fn live(&self, thread: ThreadNo) -> Option<&ThreadMachine> {
        match self.slots.get(thread as usize)? {
            Slot::Live(live) => Some(&live.machine),
            Slot::NotStarted(_) | Slot::Ended(_) => None,
        }
    }

    pub(in crate::run) fn status_of(&self, thread: ThreadNo) -> ThreadStatus {
        match self.slots.get(thread as usize) {
            Some(Slot::Ended(ended)) => ended.end.status,
            Some(Slot::Live(live)) if live.machine.status() == ThreadStatus::Paused => ThreadStatus::Paused,
            Some(Slot::Live(live)) if live.machine.status() == ThreadStatus::Created => ThreadStatus::Created,
            // The thread has ended, but its end message is still queued.
            Some(Slot::Live(_)) => ThreadStatus::Running,
            Some(Slot::NotStarted(_)) | None => ThreadStatus::Created,
        }
    }

    /// Returns the outcome of an ended thread.
    pub(in crate::run) fn end_of(&self, thread: ThreadNo) -> Option<&ThreadEnd> {
        self.ended_thread(thread).map(|ended| &ended.end)
    }

    pub(in crate::run) fn artifacts(&self, thread: ThreadNo) -> Option<&FinalThreadState> {
        self.ended_thread(thread)?.artifacts.as_deref()
    }

    /// Drops the output and the remaining state of an ended thread, after its starter has copied them.
    pub(in crate::run) fn release(&mut self, thread: ThreadNo) {
        if let Some(Slot::Ended(ended)) = self.slots.get_mut(thread as usize) {
            ended.end.output = Output::default();
            ended.artifacts = None;
        }
    }

    fn ended_thread(&self, thread: ThreadNo) -> Option<&ThreadResult> {
        match self.slots.get(thread as usize)? {
            Slot::Ended(ended) => Some(ended),
            Slot::NotStarted(_) | Slot::Live(_) => None,
        }
    }
}
