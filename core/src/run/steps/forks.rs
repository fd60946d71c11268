//! Forks of a run, including those of MAP nodes: threads of the branches, decisions of the joins, and their results for the parent.

use std::sync::Arc;

use pirn_conversation::conversation::Conversation;
use pirn_definition::definition::{ItemConversation, MergeVariables};
use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{ForkIx, Graph, NodeIx, NodeKind};
use serde_json::{Value, json};

use crate::join::{
    self, BranchVariables, Conversation as JoinConversation, ForkJoinMachine, JoinedPath, MergedVariables, PathEnd,
    PathStatus, Verdict, join_error, join_output, late_items_output, merge_variables, within_limits,
};
use crate::run::data::branches::{Branches, ForkRun};
use crate::run::data::effect::Effect;
use crate::run::data::message::{
    ConversationSource, FinalThreadState, ForkSnapshot, Message, Request, Timer, ToConversation, ToSupervisor, ToThread,
};
use crate::run::data::thread_state::{InitialState, Slot};
use crate::run::parts::agents::concurrency;
use crate::run::parts::tree::{Origin, OwnedWork, ThreadLookup, TreeNode};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::run::turns::conversation::not_restored;
use crate::run::{ForkNo, ThreadNo};
use crate::status::ThreadStatus;
use crate::thread::{
    BranchSeed, CancelReason, EffectId, Input, Joined, Outcome, Output, ThreadKind, item_names, thread_variables,
};

/// Size of a group of losers that are cancelled in one step. Other messages are processed between groups.
const LOSERS_AT_A_TIME: usize = 32;

impl RunMachine {
    /// Starts the paths of a FORK. The thread waits at its JOIN.
    pub(in crate::run) fn fork(
        &mut self,
        parent: ThreadNo,
        effect: EffectId,
        ix: ForkIx,
        start: Box<ForkSnapshot>,
        step: &mut Step<'_>,
    ) {
        // The parent ended while the message was queued: nobody awaits an answer.
        if !self.tree.is_live(parent) {
            return;
        }
        // A clone of the pointer, because `self` is changed while the graph is read.
        let graph = Arc::clone(self.graph_of(parent));
        let depth = match self.deeper(parent) {
            Ok(depth) => depth,
            Err(error) => return self.answer(parent, effect, Outcome::Failed(error)),
        };
        let concurrency = self.lower_concurrency(parent, graph.config.max_concurrent_branches);
        let machine = ForkJoinMachine::new(graph.fork(ix), concurrency);
        self.begin_fork(
            ForkRun {
                threads: vec![None; machine.paths().len()],
                machine,
                parent,
                effect,
                branches: Branches::Paths { ix, start },
                depth,
            },
            step,
        );
    }

    /// Starts a thread for each item of a MAP.
    pub(in crate::run) fn map(
        &mut self,
        parent: ThreadNo,
        effect: EffectId,
        node: NodeIx,
        inputs: Arc<Value>,
        conversation: Conversation,
        step: &mut Step<'_>,
    ) {
        if !self.tree.is_live(parent) {
            return;
        }
        let graph = Arc::clone(self.graph_of(parent));
        // Not reached: only MAP nodes request this effect.
        let NodeKind::Map(map) = &graph.node(node).kind else {
            return;
        };
        let (called, depth) = match self.callee(parent, &map.workflow_id, step) {
            Ok(callee) => callee,
            Err(error) => return self.answer(parent, effect, Outcome::Failed(error)),
        };
        let count = inputs.as_array().map_or(0, Vec::len);
        let own = map.concurrency.or(graph.config.max_concurrent_branches);
        let concurrency = self.lower_concurrency(parent, own);
        let branches = Branches::Items {
            node,
            graph: self.graphs.add(&called, step.env),
            inputs,
            conversation: match map.conversation {
                ItemConversation::None => Conversation::new(),
                ItemConversation::Fork => conversation,
            },
        };
        self.begin_fork(
            ForkRun {
                threads: vec![None; count],
                machine: ForkJoinMachine::of_paths(map.join.clone(), count, concurrency),
                parent,
                effect,
                branches,
                depth,
            },
            step,
        );
    }

    /// Returns the lower one of a limit on concurrent branches and those of the submitted workflows that contain the thread.
    fn lower_concurrency(&self, thread: ThreadNo, own: Option<u32>) -> Option<u32> {
        let threads = ThreadLookup {
            tree: &self.tree,
            graphs: &self.graphs,
        };
        let submitted = self.agents.as_deref().and_then(|_| concurrency(thread, threads));
        own.into_iter().chain(submitted).min()
    }

    fn begin_fork(&mut self, run: ForkRun, step: &mut Step<'_>) {
        let no = self.next_fork;
        self.next_fork += 1;
        // One allocation for all branches instead of repeated growth.
        self.tree.reserve(run.threads.len());
        self.slots.reserve(run.threads.len());
        // Before `Start`: a fork without branches is decided and removed within it.
        self.tree.own(run.parent, OwnedWork::Fork(no));
        self.forks.insert(no, run);
        self.step_fork(no, join::Input::Start, step);
    }

    pub(in crate::run) fn step_fork(&mut self, no: ForkNo, input: join::Input, step: &mut Step<'_>) {
        let Some(run) = self.forks.get_mut(&no) else { return };
        let mut effects = Vec::new();
        // The machine rejects stale inputs only, such as a deadline that expired while it was being cancelled.
        if run.machine.step(input, &mut effects).is_err() {
            return;
        }
        let mut has_losers = false;
        for effect in effects {
            match effect {
                join::Effect::StartPath { path } => self.start_path(no, path, step),
                // The losers are found again by their status, so that no list of them is stored between the groups.
                join::Effect::CancelPath { .. } => has_losers = true,
                join::Effect::StartTimer { generation, after_ms } => step.out.push(Effect::SetTimer {
                    timer: Timer::Join { fork: no, generation },
                    after_ms,
                }),
                join::Effect::StopTimer { generation } => step.out.push(Effect::StopTimer {
                    timer: Timer::Join { fork: no, generation },
                }),
                join::Effect::Decided { verdict } => self.decided(no, &verdict, step),
                join::Effect::AllEnded => self.fork_over(no, step),
            }
        }
        if has_losers {
            // Low priority: the parent receives its answer before the cancels, which take long after a fork of thousands.
            let message = ToSupervisor::StopLosers { fork: no, from: 0 };
            self.mailbox.send_next(Message::Supervisor(message));
        }
    }

    fn start_path(&mut self, no: ForkNo, path: usize, step: &mut Step<'_>) {
        let Some(run) = self.forks.get(&no) else { return };
        let Some(parent) = self.tree.get(run.parent) else {
            return;
        };
        let thread = match &run.branches {
            Branches::Paths { ix, .. } => {
                let at = TreeNode {
                    kind: ThreadKind::Branch,
                    graph: parent.graph,
                    origin: Origin::Branch {
                        fork: no,
                        ix: *ix,
                        path: path as u32,
                    },
                    parent: Some(run.parent),
                    depth: run.depth,
                    trigger_depth: parent.trigger_depth,
                    is_unlimited: parent.is_unlimited,
                    is_detached: parent.is_detached,
                };
                // No state yet: `branch` creates it at the first message. Until then a branch takes a slot only.
                self.register(at, None, step)
            }
            Branches::Items {
                graph,
                inputs,
                conversation,
                ..
            } => {
                let origin = Origin::Item {
                    fork: no,
                    index: path as u32,
                };
                // A copy, because an item inside of the list cannot be shared by a pointer.
                let input = Arc::new(inputs.get(path).cloned().unwrap_or_default());
                self.memory.took(&input);
                let start = InitialState {
                    // The clone shares all messages.
                    conversation: ConversationSource::Snapshot(conversation.clone()),
                    depth: run.depth,
                    trigger_depth: parent.trigger_depth,
                    is_unlimited: parent.is_unlimited,
                    is_detached: parent.is_detached,
                    ..InitialState::of(Arc::clone(self.graphs.get(*graph)), ThreadKind::Branch, origin, input)
                };
                self.start(start, step)
            }
        };
        if let Some(run) = self.forks.get_mut(&no) {
            run.threads[path] = Some(thread);
        }
    }

    /// Creates a branch from the snapshots that were taken when its parent reached the FORK.
    pub(in crate::run) fn branch(
        &self,
        thread: ThreadNo,
        no: ForkNo,
        path: usize,
    ) -> Option<(BranchSeed<'_>, &Conversation)> {
        let Branches::Paths { ix, start } = &self.forks.get(&no)?.branches else {
            return None;
        };
        let fork = self.graph_of(thread).fork(*ix);
        let seed = BranchSeed {
            run_id: &self.run_id,
            no: thread,
            path_id: &fork.paths[path].id,
            first: fork.paths[path].child,
            stop_at: fork.join_node,
            snapshot: &start.snapshot,
            trigger_depth: self.tree.trigger_depth(thread),
        };
        Some((seed, &start.conversation))
    }

    pub(in crate::run) fn branch_ended(&mut self, no: ForkNo, path: usize, status: ThreadStatus, step: &mut Step<'_>) {
        if let Some(end) = PathEnd::of_thread(status) {
            self.step_fork(no, join::Input::Ended { path, end }, step);
        }
    }

    /// Cancels the next group of threads that the join no longer needs.
    pub(in crate::run) fn stop_losers(&mut self, no: ForkNo, from: usize) {
        // All branches may have ended between two groups.
        let Some(run) = self.forks.get(&no) else { return };
        let reason = run.machine.verdict().map_or(CancelReason::JoinDecided, reason_of);
        let trigger_depth = self.tree.trigger_depth(run.parent);
        // Each group continues where the last one ended: the search is linear in all groups together.
        let stopped = run.machine.paths().iter().zip(&run.threads).enumerate().skip(from);
        let mut losers = stopped.filter(|(_, (status, _))| **status == PathStatus::Stopped);
        let now: Vec<Option<ThreadNo>> = losers
            .by_ref()
            .take(LOSERS_AT_A_TIME)
            .map(|(_, (_, thread))| *thread)
            .collect();
        // Searched now, so that no message is sent for an empty group.
        let next = losers.next().map(|(path, _)| path);
        for thread in now.into_iter().flatten() {
            self.cancel(thread, reason.clone(), trigger_depth);
        }
        if let Some(from) = next {
            let message = ToSupervisor::StopLosers { fork: no, from };
            // Before the first steps of other branches, which are queued with low priority too.
            self.mailbox.send_next(Message::Supervisor(message));
        }
    }

    /// Returns the cancel of a loser if it is still pending. The loser must take no further step: it could complete after the join
    /// has reported it as cancelled.
    pub(in crate::run) fn pending_cancel(&self, thread: ThreadNo) -> Option<ToThread> {
        let Some(Origin::Branch { fork, path, .. } | Origin::Item { fork, index: path }) =
            self.tree.get(thread).map(|at| at.origin)
        else {
            return None;
        };
        let run = self.forks.get(&fork)?;
        let verdict = run.machine.verdict()?;
        let is_loser = run.machine.paths().get(path as usize) == Some(&PathStatus::Stopped);
        (is_loser && self.is_open(thread)).then(|| {
            ToThread::Input(Input::Cancel {
                reason: reason_of(verdict),
                trigger_depth: self.tree.trigger_depth(run.parent),
            })
        })
    }

    /// Sends a decision to the parent. The losers are cancelled afterwards, in groups.
    fn decided(&mut self, no: ForkNo, verdict: &Verdict, step: &mut Step<'_>) {
        let Some(run) = self.forks.get(&no) else { return };
        let (parent, effect, strategy) = (run.parent, run.effect, run.machine.rule().strategy);
        let (outcome, source) = match self.verdict_outcome(no, verdict) {
            Ok((outcome, source)) => (outcome, source),
            Err(error) => (Outcome::Failed(error), None),
        };
        // The parent's end cancels everything attached to it: detach the survivors before the parent continues.
        self.detach_survivors(no);
        // The parent has ended or dropped the effect: it awaits no answer.
        if matches!(verdict, Verdict::Cancelled) {
            return;
        }
        // Raised before the answer is sent, so that it precedes the events of the parent's next node.
        if matches!(outcome, Outcome::Joined(_)) {
            self.emit(parent, EventType::ThreadJoinConditionMet, step, || {
                vec![("joinStrategy", json!(strategy))]
            });
        }
        let Some(left) = source.and_then(|thread| self.artifacts(thread)) else {
            return self.answer(parent, effect, outcome);
        };
        // A snapshot in constant time. There is none if the conversation's actor panicked.
        let Some(conversation) = left.conversation.clone() else {
            let error = not_restored().caused_by(crate::run::turns::conversation::lost());
            return self.answer(parent, effect, Outcome::Failed(error));
        };
        // The conversation answers the parent after the replacement, so that no message of the parent precedes it.
        let request = Box::new(Request::Restore {
            conversation,
            then: outcome,
        });
        self.converse(
            parent,
            ToConversation::Serve {
                thread: parent,
                effect,
                request,
            },
        );
    }

    /// Returns the parent's outcome, and the thread whose conversation replaces the parent's.
    fn verdict_outcome(&mut self, no: ForkNo, verdict: &Verdict) -> Result<(Outcome, Option<ThreadNo>), RunError> {
        let Some(run) = self.forks.get(&no) else {
            return Ok((Outcome::Done, None));
        };
        let graph = Arc::clone(self.graph_of(run.parent));
        let Verdict::Succeeded { conversation, merge } = verdict else {
            let paths = self.joined_paths(run);
            within_limits(&paths)?;
            let error = run.branches.reported(&graph, &self.run_id, &paths, |paths| {
                join_error(run.machine.rule(), verdict, paths)
            });
            return error.map_or(Ok((Outcome::Done, None)), Err);
        };
        let merged = self.merged(run, &graph, merge)?;
        // The parent of a MAP keeps its own conversation.
        let Branches::Paths { ix, .. } = run.branches else {
            let output = late_items_output(self.take_joined_paths(no))?;
            return Ok((self.joined(output, merged), None));
        };
        let source = match conversation {
            JoinConversation::ReplaceWith(path) => run.threads.get(*path).copied().flatten(),
            JoinConversation::Unchanged => None,
        };
        let run_id = Arc::clone(&self.run_id);
        let output = join_output(graph, ix, run_id, self.take_joined_paths(no))?;
        Ok((self.joined(output, merged), source))
    }

    /// Builds the parent's outcome, without the conversation.
    fn joined(&self, output: Output, merged: MergedVariables) -> Outcome {
        Outcome::Joined(Box::new(Joined {
            output,
            variables: merged
                .variables
                .into_iter()
                .map(|(name, value)| (name.into(), Arc::new(value)))
                .collect(),
            raises_events: self.merges_assignments,
            folds: merged.folds,
        }))
    }

    /// Merges the variables of the `merge` branches for the parent.
    fn merged(&self, run: &ForkRun, graph: &Graph, merge: &[usize]) -> Result<MergedVariables, RunError> {
        let left =
            |path: usize| -> Option<&FinalThreadState> { self.artifacts(run.threads.get(path).copied().flatten()?) };
        // A record of an earlier version is replayed by its rule: an equal value was not taken over.
        let before = (!self.merges_assignments).then(|| match &run.branches {
            Branches::Paths { start, .. } => start.snapshot.variables.clone(),
            Branches::Items { graph, .. } => thread_variables(self.graphs.get(*graph)),
        });
        let is_taken =
            &|name: &str, value: &Arc<Value>| before.as_ref().is_none_or(|before| before.value(name) != Some(value));
        let left = |path: &usize| {
            let assigned = left(*path)?.variables.assigned();
            Some((*path, assigned.filter(move |(name, value)| is_taken(name, value))))
        };
        // One path has nothing to combine.
        let combines = !self.merges_assignments || run.machine.rule().merge_variables == MergeVariables::All;
        let reducer = |name: &str| graph.reducer(name).filter(|_| combines);
        match &run.branches {
            Branches::Paths { ix, .. } => {
                let paths = &graph.fork(*ix).paths;
                let branches = merge.iter().filter_map(left).map(|(path, variables)| BranchVariables {
                    path_id: &paths[path].id,
                    variables: variables.map(|(name, value)| (&**name, &**value)).collect(),
                });
                merge_variables(reducer, &branches.collect::<Vec<_>>())
            }
            Branches::Items { node, .. } => {
                let NodeKind::Map(map) = &graph.node(*node).kind else {
                    return Ok(MergedVariables::default());
                };
                // The usual case: no names of items and no lists of variables are built.
                if map.assign.is_empty() {
                    return Ok(MergedVariables::default());
                }
                let names = item_names(run.threads.len());
                let is_wanted = |name: &Arc<str>| map.assign.contains(name);
                let branches = merge.iter().filter_map(left).map(|(path, variables)| BranchVariables {
                    path_id: &names[path],
                    variables: variables
                        .filter(|(name, _)| is_wanted(name))
                        .map(|(name, value)| (&**name, &**value))
                        .collect(),
                });
                merge_variables(reducer, &branches.collect::<Vec<_>>())
            }
        }
    }

    /// Returns the state of the fork's paths for an error, with every thread. A thread that ended before the join received its end
    /// has its final state, as in the report.
    fn joined_paths(&self, run: &ForkRun) -> Vec<JoinedPath> {
        let both = run.machine.paths().iter().zip(&run.threads);
        both.map(|(status, thread)| {
            let end = thread.and_then(|thread| self.end_of(thread));
            let unstopped = thread.filter(|_| *status == PathStatus::Stopped);
            let unstopped = unstopped.and_then(|thread| match self.slots.get(thread as usize) {
                Some(Slot::Live(live)) => PathEnd::of_thread(live.machine.status()),
                Some(Slot::NotStarted(_) | Slot::Ended(_)) | None => None,
            });
            JoinedPath {
                status: unstopped.map_or(*status, PathStatus::from),
                thread: *thread,
                output: end.map(|end| end.output.clone()),
                error: end.and_then(|end| end.error.clone()),
            }
        })
        .collect()
    }

    /// Takes the outputs of ended branches for the join's output. They are moved, not cloned: nothing reads them later.
    fn take_joined_paths(&mut self, no: ForkNo) -> Vec<JoinedPath> {
        let Self { forks, slots, .. } = self;
        let Some(run) = forks.get(&no) else { return Vec::new() };
        let both = run.machine.paths().iter().zip(&run.threads);
        both.map(|(status, thread)| {
            // Outputs that the join does not report stay with their threads.
            let is_asked = *status == PathStatus::Completed || status.counts_as_failed();
            let slot = thread
                .filter(|_| is_asked)
                .and_then(|thread| slots.get_mut(thread as usize));
            let (output, error) = match slot {
                // The error is copied: the report of the run lists it for the thread too.
                Some(Slot::Ended(ended)) => (Some(std::mem::take(&mut ended.end.output)), ended.end.error.clone()),
                Some(Slot::NotStarted(_) | Slot::Live(_)) | None => (None, None),
            };
            JoinedPath {
                status: *status,
                thread: *thread,
                output,
                error,
            }
        })
        .collect()
    }

    fn detach_survivors(&mut self, no: ForkNo) {
        let Some(run) = self.forks.get(&no) else { return };
        let both = run.machine.paths().iter().zip(&run.threads);
        let survivors: Vec<ThreadNo> = both
            .filter(|(status, _)| **status == PathStatus::Detached)
            .filter_map(|(_, thread)| *thread)
            .collect();
        if !survivors.is_empty() {
            // The end of the parent must not cancel the survivors.
            self.tree.disown(run.parent, OwnedWork::Fork(no));
        }
        let Self {
            tree, forks, firings, ..
        } = self;
        for thread in survivors {
            tree.detach(thread, |thread, owned| {
                let of_forks = owned.iter().filter_map(|owned| match owned {
                    OwnedWork::Fork(fork) => forks.get(fork),
                    OwnedWork::Child { .. } => None,
                });
                // Called threads are missing here: `Tree::detach` follows those itself.
                let branches = of_forks.flat_map(|run| run.threads.iter().flatten().copied());
                branches.chain(firings.threads(thread)).collect()
            });
        }
    }

    /// Removes a fork after every started branch has ended.
    fn fork_over(&mut self, no: ForkNo, step: &mut Step<'_>) {
        let Some(run) = self.forks.remove(&no) else { return };
        // Without effect if the survivors were detached, or if the parent has ended.
        self.tree.disown(run.parent, OwnedWork::Fork(no));
        let graph = Arc::clone(self.graph_of(run.parent));
        self.emit(run.parent, EventType::ThreadForkCompleted, step, || {
            vec![("nodeId", json!(graph.node(run.branches.starts_at(&graph)).id))]
        });
        // The join has copied what it needs. A report needs only the outcomes.
        for thread in run.threads.into_iter().flatten() {
            self.release(thread);
        }
    }

    /// Returns the thread that waits at a fork's JOIN, and the id of that node.
    pub fn join_of(&self, fork: ForkNo) -> Option<(ThreadNo, &Arc<str>)> {
        let run = self.forks.get(&fork)?;
        let graph: &Graph = self.graph_of(run.parent);
        Some((run.parent, &graph.node(run.branches.joins_at(graph)).id))
    }
}

/// Returns the reason with which a decision cancels the losers.
fn reason_of(verdict: &Verdict) -> CancelReason {
    match verdict {
        Verdict::Cancelled => CancelReason::ParentEnded,
        Verdict::Succeeded { .. } | Verdict::ConditionNotMet | Verdict::TimedOut | Verdict::MainThreadNotFound => {
            CancelReason::JoinDecided
        }
    }
}
