//! Carrying the [`ForkJoinMachine`]: starts its paths, tells it their ends, gives its verdict to the parent.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::conversation::Conversation;
use pirn_core::error::RunError;
use pirn_core::event::EventType;
use pirn_core::graph::{ForkIx, Graph, NodeKind};
use pirn_core::join::{
    BranchVariables, Conversation as JoinConversation, Effect, ForkJoinMachine, Input, JoinedPath, PathEnd, PathStatus,
    PathTexts, Verdict, join_error, late_join_output, merge_variables, path_reports, within_limits,
};
use pirn_core::thread::{BranchSeed, EffectId, Outcome, ThreadKind, ThreadMachine};
use serde_json::{Value, json};

use super::losers::LosersOf;
use super::turns::Place;
use super::{Child, ForkNo, Origin, Owned, SupervisorActor, SupervisorMsg, ThreadNo, joined};
use crate::conversation::not_restored;
use crate::host::TimerHandle;
use crate::thread::{ConversationRef, ForkState, ThreadActor, ThreadMsg};

/// One fork under way.
pub(super) struct ForkRun {
    pub(super) machine: ForkJoinMachine,
    pub(super) parent: ThreadNo,
    pub(super) effect: EffectId,
    pub(super) graph: Arc<Graph>,
    pub(super) ix: ForkIx,
    state: Box<ForkState>,
    pub(super) threads: Vec<Option<ThreadNo>>,
    /// Where what follows the join is sure to read them.
    texts: Option<PathTexts>,
    timer: Option<TimerHandle>,
    depth: u32,
    /// Of the branches' conversations.
    token_limit: Option<u64>,
}

impl SupervisorActor {
    /// A thread is at FORK, and waits at its JOIN.
    pub(super) fn fork(&mut self, parent: ThreadNo, effect: EffectId, ix: ForkIx, state: Box<ForkState>) {
        let Some(child) = self.threads.get(parent).filter(|child| !child.has_ended()) else {
            return;
        };
        let graph = Arc::clone(&child.graph);
        let depth = match self.deeper(parent) {
            Ok(depth) => depth,
            Err(error) => return self.answer_thread(parent, effect, Outcome::Failed(error)),
        };
        let no = self.next_fork;
        self.next_fork += 1;
        let token_limit = self.token_limit(&graph);
        let fork = graph.fork(ix);
        let threads = vec![None; fork.paths.len()];
        self.threads.reserve(threads.len());
        let machine = ForkJoinMachine::new(fork, graph.config.max_concurrent_branches);
        self.forks.insert(
            no,
            ForkRun {
                machine,
                parent,
                effect,
                graph,
                ix,
                state,
                threads,
                texts: None,
                timer: None,
                depth,
                token_limit,
            },
        );
        if let Some(child) = self.threads.get_mut(parent) {
            child.owned.push(Owned::Fork(no));
        }
        self.step_fork(no, Input::Start);
        self.step_fork(no, Input::Waiting);
    }

    pub(super) fn deadline(&mut self, fork: ForkNo, generation: u32) {
        self.step_fork(fork, Input::Deadline { generation });
    }

    /// The parent is stopped: the join is over, and so is everything it still has running.
    pub(super) fn cancel_fork(&mut self, fork: ForkNo) {
        self.step_fork(fork, Input::Cancel);
    }

    pub(super) fn branch_ended(&mut self, fork: ForkNo, path: usize, thread: ThreadNo) {
        let Some(ended) = self.threads.get(thread).and_then(Child::ended) else {
            return;
        };
        let Some(end) = PathEnd::of_thread(ended.end.status) else {
            return;
        };
        self.step_fork(fork, Input::Ended { path, end });
    }

    fn step_fork(&mut self, no: ForkNo, input: Input) {
        let Some(run) = self.forks.get_mut(&no) else { return };
        let mut effects = Vec::new();
        // Refused inputs are stale ones (a deadline that fired while it was being stopped): nothing to do.
        if run.machine.step(input, &mut effects).is_err() {
            return;
        }
        let mut effects = effects.into_iter();
        while let Some(effect) = effects.next() {
            match effect {
                Effect::StartPath { path } => self.start_path(no, path),
                // Nothing but these comes after the decision that makes them losers.
                Effect::CancelPath { path } => return self.stop_losers(LosersOf::of(no, path, effects)),
                Effect::StartTimer { generation, after_ms } => self.start_fork_timer(no, generation, after_ms),
                Effect::StopTimer { .. } => self.stop_fork_timer(no),
                Effect::Decided { verdict } => self.decided(no, &verdict),
                Effect::AllEnded => self.fork_over(no),
            }
        }
    }

    fn start_path(&mut self, no: ForkNo, path: usize) {
        let Some(run) = self.forks.get(&no) else { return };
        let Some(parent) = self.threads.get(run.parent) else {
            return;
        };
        let child = Child {
            kind: ThreadKind::Branch,
            graph: Arc::clone(&run.graph),
            origin: Origin::Branch {
                fork: no,
                ix: run.ix,
                path: path as u32,
            },
            owned: Vec::new(),
            depth: run.depth,
            trigger_depth: parent.trigger_depth,
            is_unlimited: parent.is_unlimited,
            is_detached: parent.is_detached,
            is_paused: false,
            told: Cell::default(),
            place: Place::Fresh {
                start: None,
                mail: RefCell::default(),
            },
        };
        let thread = self.enlist(child);
        if let Some(run) = self.forks.get_mut(&no) {
            run.threads[path] = Some(thread);
            // Paths start in their order.
            if path + 1 == run.threads.len() && is_read_next(&run.graph, run.ix) {
                let threads = run.threads.iter().filter_map(|thread| *thread);
                let ids = threads.map(|thread| Value::from(&*self.threads.id(thread)));
                run.texts = Some(PathTexts::of(run.graph.fork(run.ix), ids));
            }
        }
    }

    /// A branch before its first step, with the snapshots of the moment its parent stood at FORK; and whether its join may
    /// take over what it leaves behind, should it end in that.
    pub(super) fn branch(&mut self, thread: ThreadNo, no: ForkNo, path: usize) -> Option<(Box<ThreadActor>, bool)> {
        let run = self.forks.get(&no)?;
        let child = self.threads.get(thread)?;
        let token_limit = run.token_limit.filter(|_| !child.is_unlimited);
        let fork = run.graph.fork(run.ix);
        let seed = BranchSeed {
            run_id: &self.run.run_id,
            no: thread,
            path_id: &fork.paths[path].id,
            first: fork.paths[path].child,
            stop_at: fork.join_node,
            snapshot: &run.state.start,
            trigger_depth: child.trigger_depth,
        };
        let conversation = &run.state.conversation;
        let takes_over = run.machine.may_take_over(path);
        if let Some(mut place) = self.fresh.spare.take() {
            place.become_branch(thread, &run.graph, &seed, conversation, token_limit);
            return Some((place, takes_over));
        }
        let machine = ThreadMachine::branch(&run.graph, &seed);
        let conversation = ConversationRef::Snapshot(conversation.clone());
        let run = Rc::clone(&self.run);
        let actor = ThreadActor::new(run, thread, machine, conversation, token_limit);
        Some((Box::new(actor), takes_over))
    }

    fn start_fork_timer(&mut self, no: ForkNo, generation: u32, after_ms: u64) {
        let supervisor = Arc::clone(&self.run.supervisor);
        self.tell_join_limit(no);
        let timer = self.run.host.after(after_ms, move || {
            supervisor.do_send(SupervisorMsg::Deadline { fork: no, generation });
        });
        if let Some(run) = self.forks.get_mut(&no) {
            run.timer = Some(timer);
        }
    }

    fn stop_fork_timer(&mut self, no: ForkNo) {
        if let Some(run) = self.forks.get_mut(&no) {
            run.timer = None;
        }
    }

    /// The verdict goes to the parent now; the losers wind down on their own.
    fn decided(&mut self, no: ForkNo, verdict: &Verdict) {
        let Some(run) = self.forks.get_mut(&no) else { return };
        let (parent, effect, texts) = (run.parent, run.effect, run.texts.take());
        let outcome = self.verdict_outcome(no, verdict, texts);
        let (outcome, source) = match outcome {
            Ok((outcome, source)) => (outcome, source),
            Err(error) => (Outcome::Failed(error), None),
        };
        self.detach_survivors(no);
        if matches!(verdict, Verdict::Cancelled) {
            return;
        }
        if matches!(outcome, Outcome::Joined(_)) {
            let strategy = self.forks.get(&no).map(|run| run.machine.rule().strategy);
            self.emit(parent, EventType::ThreadJoinConditionMet, || {
                vec![("joinStrategy", json!(strategy))]
            });
        }
        let from = source.and_then(|thread| self.threads.get(thread)).and_then(Child::left);
        let Some(conversation) = from.map(|left| left.conversation.clone()) else {
            return self.answer_thread(parent, effect, outcome);
        };
        match conversation {
            ConversationRef::Snapshot(conversation) => self.tell(parent, replaced(effect, outcome, Ok(conversation))),
            ConversationRef::Shared(_) => {
                let supervisor = Arc::clone(&self.run.supervisor);
                conversation.with_snapshot(move |conversation| {
                    supervisor.do_send(SupervisorMsg::Tell {
                        thread: parent,
                        message: Box::new(replaced(effect, outcome, conversation)),
                    });
                });
            }
        }
    }

    /// What the verdict means for the parent, and the thread whose conversation it takes.
    fn verdict_outcome(
        &mut self,
        no: ForkNo,
        verdict: &Verdict,
        texts: Option<PathTexts>,
    ) -> Result<(Outcome, Option<ThreadNo>), RunError> {
        let Some(run) = self.forks.get(&no) else {
            return Ok((Outcome::Done, None));
        };
        let fork = run.graph.fork(run.ix);
        let left = |path: usize| {
            let thread = run.threads.get(path).copied().flatten()?;
            self.threads.get(thread).and_then(Child::left)
        };
        let Verdict::Succeeded { conversation, merge } = verdict else {
            let paths = self.joined_paths(run);
            within_limits(&paths)?;
            let error = join_error(run.machine.rule(), verdict, &path_reports(fork, &paths));
            return error.map_or(Ok((Outcome::Done, None)), Err);
        };
        let branches: Vec<BranchVariables<'_>> = merge
            .iter()
            .filter_map(|path| {
                let variables = left(*path)?
                    .variables
                    .iter()
                    .map(|(name, value)| (&**name, &**value))
                    .collect();
                Some(BranchVariables {
                    path_id: &fork.paths[*path].id,
                    variables,
                })
            })
            .collect();
        let snapshot = |name: &str| -> Option<&Value> { run.state.start.variables.value(name).map(|value| &**value) };
        let variables: BTreeMap<String, Value> = merge_variables(snapshot, &branches)?;
        let source = match conversation {
            JoinConversation::ReplaceWith(path) => run.threads.get(*path).copied().flatten(),
            JoinConversation::Unchanged => None,
        };
        let texts = texts.unwrap_or_else(|| PathTexts::later(Arc::clone(&self.run.run_id), run.threads.clone()));
        let (graph, ix) = (Arc::clone(&run.graph), run.ix);
        let output = late_join_output(graph, ix, self.take_joined_paths(no), texts)?;
        Ok((joined(output, variables), source))
    }

    /// How the paths of a fork are just now, for an error: it names every thread.
    fn joined_paths(&self, run: &ForkRun) -> Vec<JoinedPath> {
        let both = run.machine.paths().iter().zip(&run.threads);
        both.map(|(status, thread)| {
            let child = thread.and_then(|thread| self.threads.get(thread));
            let end = child.and_then(Child::ended).map(|ended| &ended.end);
            JoinedPath {
                status: *status,
                thread_id: thread.map(|thread| self.threads.id(thread)),
                output: end.map(|end| end.output.clone()),
                error: end.and_then(|end| end.error.clone()),
            }
        })
        .collect()
    }

    /// What a join's output is made of, taken from those that have ended: nobody else wants it. Of the others nothing is
    /// asked.
    fn take_joined_paths(&mut self, no: ForkNo) -> Vec<JoinedPath> {
        let Some(run) = self.forks.get(&no) else {
            return Vec::new();
        };
        let both = run.machine.paths().iter().zip(&run.threads);
        both.map(|(status, thread)| {
            let is_asked = *status == PathStatus::Completed || status.counts_as_failed();
            let thread = thread.filter(|_| is_asked);
            let ended = thread.and_then(|thread| self.threads.get_mut(thread)?.ended_mut());
            let (output, error) = ended
                .map(|ended| (std::mem::take(&mut ended.end.output), ended.end.error.clone()))
                .unzip();
            JoinedPath {
                status: *status,
                thread_id: None,
                output,
                error: error.flatten(),
            }
        })
        .collect()
    }

    fn detach_survivors(&mut self, no: ForkNo) {
        let Some(run) = self.forks.get(&no) else { return };
        let survivors: Vec<ThreadNo> = run
            .machine
            .paths()
            .iter()
            .zip(&run.threads)
            .filter(|(status, _)| **status == PathStatus::Detached)
            .filter_map(|(_, thread)| *thread)
            .collect();
        if !survivors.is_empty() {
            let parent = run.parent;
            self.disown(parent, Owned::Fork(no));
        }
        for thread in survivors {
            self.detach(thread);
        }
    }

    /// Marks a thread and everything it started as no longer attached to the run's outcome.
    fn detach(&mut self, thread: ThreadNo) {
        let mut marked = vec![thread];
        while let Some(thread) = marked.pop() {
            let Some(child) = self.threads.get_mut(thread) else {
                continue;
            };
            if child.is_detached {
                continue;
            }
            child.is_detached = true;
            if !child.has_ended() {
                self.live_detached += 1;
            }
            for owned in &child.owned {
                match owned {
                    Owned::Fork(fork) => {
                        marked.extend(
                            self.forks
                                .get(fork)
                                .into_iter()
                                .flat_map(|run| run.threads.iter().flatten().copied()),
                        );
                    }
                    Owned::Child { thread, .. } => marked.push(*thread),
                    Owned::Firing(firing) => marked.extend(self.firings.get(firing).and_then(super::FiringRun::thread)),
                }
            }
        }
    }

    /// Every path that was started has ended.
    fn fork_over(&mut self, no: ForkNo) {
        let Some(run) = self.forks.remove(&no) else { return };
        self.disown(run.parent, Owned::Fork(no));
        self.emit(run.parent, EventType::ThreadForkCompleted, || {
            vec![("nodeId", json!(run.graph.node(run.graph.fork(run.ix).fork_node).id))]
        });
        // What the join has taken from its branches it has; a report needs no more than how they ended.
        for thread in run.threads.into_iter().flatten() {
            if let Some(ended) = self.threads.get_mut(thread).and_then(Child::ended_mut) {
                ended.release();
            }
        }
    }
}

/// A verdict for its parent, with the conversation that takes the place of its own.
fn replaced(effect: EffectId, outcome: Outcome, conversation: Result<Conversation, RunError>) -> ThreadMsg {
    match conversation {
        Ok(conversation) => ThreadMsg::Replace {
            effect,
            outcome,
            conversation: Box::new(conversation),
        },
        Err(cause) => ThreadMsg::Answer {
            effect,
            outcome: Outcome::Failed(not_restored().caused_by(cause)),
        },
    }
}

/// Whether what follows a join gets its output, and most likely looks at it: a function without an `input`.
fn is_read_next(graph: &Graph, ix: ForkIx) -> bool {
    let edge = graph.node(graph.fork(ix).join_node).edges.first();
    edge.filter(|edge| edge.condition.is_none())
        .is_some_and(|edge| matches!(&graph.node(edge.target).kind, NodeKind::Function { input: None, .. }))
}
