//! Triggered sub-workflows of this run's threads (SPEC section 6): isolated, one at a time for a thread, coalesced.

mod hand_back;
mod start;

use std::sync::Arc;

use pirn_core::conversation::{Basis, Conversation};
use pirn_core::definition::{ExecuteTriggeredSubgraph, TriggerAction};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventType;
use pirn_core::message::Message;
use pirn_core::thread::{CancelReason, FiringId, Input, TriggeredResult, Variables};
use serde_json::json;

use super::{Owned, SupervisorActor, SupervisorMsg, ThreadNo};
use crate::firing::Firing;
use crate::host::TimerHandle;
use crate::run::{FiringOutcome, FiringReport, NodeReport};
use crate::thread::ThreadMsg;

/// Firings that may wait for one thread; one more is refused.
const QUEUE_LIMIT: usize = 16;

/// Default of `timeout`, seconds, for what has no such parameter.
const MAX_TIMEOUT_MS: f64 = 315_360_000_000.0;

/// One firing, from its event to its end.
pub(super) struct FiringRun {
    firing: Firing,
    main: ThreadNo,
    state: State,
    /// The main thread's conversation as the child got it.
    basis: Option<(Basis, Conversation)>,
    /// The main thread's variables then.
    variables: Variables,
    report: FiringReport,
    timer: Option<TimerHandle>,
    nodes: Vec<NodeReport>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Queued,
    Describing,
    Running(ThreadNo),
    /// A detached run compresses; the thread does not wait.
    Detached,
    /// The thread has the result and applies it at its next safe point.
    Applying,
    Over,
}

impl FiringRun {
    fn new(firing: Firing, main: ThreadNo, state: State) -> Self {
        let report = FiringReport {
            firing: firing.id,
            trigger_id: firing.trigger.id.clone(),
            main_thread_id: firing.event.thread_id.to_string(),
            current_node_id: None,
            next_node_id: None,
            timestamp: firing.event.timestamp,
            thread_id: String::new(),
            status: None,
            outcome: FiringOutcome::Open,
            coalesced: 0,
            error: None,
            nodes: Vec::new(),
        };
        Self {
            firing,
            main,
            state,
            basis: None,
            variables: Variables::default(),
            report,
            timer: None,
            nodes: Vec::new(),
        }
    }

    pub(super) fn thread(&self) -> Option<ThreadNo> {
        match self.state {
            State::Running(thread) => Some(thread),
            State::Queued | State::Describing | State::Detached | State::Applying | State::Over => None,
        }
    }

    fn execute(&self) -> Option<&ExecuteTriggeredSubgraph> {
        match &self.firing.trigger.action {
            TriggerAction::ExecuteTriggeredSubgraph(execute) => Some(execute),
            _ => None,
        }
    }

    fn is_open(&self) -> bool {
        self.state != State::Over
    }

    /// How many triggers stand between the run's own steps and what it does.
    fn trigger_depth(&self) -> u32 {
        self.firing.trigger_depth()
    }

    fn holds(&self) -> bool {
        self.firing.trigger.action.holds_the_thread()
    }

    fn is_token_event(&self) -> bool {
        self.firing.is_token_event()
    }
}

impl SupervisorActor {
    /// A trigger fired for a thread of this run.
    pub(super) fn fire(&mut self, firing: Firing) {
        let id = firing.id;
        let Some(main) = self.threads.number_of(&firing.event.thread_id) else {
            return;
        };
        let alive = self.threads.get(main).is_some_and(|child| !child.has_ended());
        if !alive {
            let error = RunError::new(RunErrorCode::Cancelled, "the thread had ended when its trigger fired");
            return self.refuse(main, firing, error);
        }
        if firing.trigger.action.holds_the_thread() {
            // Whoever raised the event: the thread does not pass another safe point without having asked.
            self.tell(main, ThreadMsg::Input(Input::Raised));
        }
        let same = self
            .open_firings(main)
            .find(|(_, other)| other.firing.trigger.id == firing.trigger.id)
            .map(|(id, _)| id);
        if let Some(run) = same.and_then(|same| self.firings.get_mut(&same)) {
            run.report.coalesced += 1;
            return self.let_go(main, &firing);
        }
        if self.open_firings(main).count() >= QUEUE_LIMIT {
            let error = RunError::new(RunErrorCode::Overloaded, "too many triggers wait for this thread");
            return self.refuse(main, firing, error);
        }
        self.firings.insert(id, FiringRun::new(firing, main, State::Queued));
        if let Some(child) = self.threads.get_mut(main) {
            child.owned.push(Owned::Firing(id));
        }
        self.next_firing_of(main);
    }

    /// Records and says that a firing is not started; its thread does not wait for it.
    fn refuse(&mut self, main: ThreadNo, firing: Firing, error: RunError) {
        self.say_failed(main, &firing, &error);
        if firing.is_token_event() {
            // Asked again before the next model call.
            self.say_not_compressed(main, &firing, &error);
            self.tell(main, ThreadMsg::CompressionEnded);
        }
        self.let_go(main, &firing);
        let mut run = FiringRun::new(firing, main, State::Over);
        run.report.outcome = FiringOutcome::Refused;
        run.report.error = Some(error);
        self.firings.insert(run.firing.id, run);
    }

    /// The thread need not wait for a firing of which nothing comes.
    fn let_go(&mut self, main: ThreadNo, firing: &Firing) {
        let holds = firing.trigger.action.holds_the_thread();
        self.tell(
            main,
            ThreadMsg::Triggered {
                firing: firing.id,
                result: TriggeredResult {
                    holds,
                    ..TriggeredResult::default()
                },
                merge: None,
            },
        );
    }

    /// The thread's firings that are not over, in their order; a thread owns few at a time, however many it has had.
    fn open_firings(&self, main: ThreadNo) -> impl Iterator<Item = (FiringId, &FiringRun)> {
        let owned = self.threads.get(main).map_or(&[][..], |child| &child.owned);
        owned.iter().filter_map(|owned| match owned {
            Owned::Firing(id) => Some((*id, self.firings.get(id)?)).filter(|(_, run)| run.is_open()),
            Owned::Fork(_) | Owned::Child { .. } => None,
        })
    }

    /// Starts the thread's next firing, where none is under way.
    fn next_firing_of(&mut self, main: ThreadNo) {
        let open: Vec<(FiringId, &FiringRun)> = self.open_firings(main).collect();
        let queued = |run: &FiringRun| run.state == State::Queued;
        let Some(id) = open.iter().find(|(_, run)| queued(run)).map(|(id, _)| *id) else {
            return;
        };
        // The thread may be held before a model call, where it applies nothing but compressions: what waits to be
        // applied after that must not keep those waiting that hold it.
        let is_held = open.iter().any(|(_, run)| run.holds());
        let is_aside = |run: &FiringRun| is_held && run.state == State::Applying && !run.is_token_event();
        if open.iter().any(|(_, run)| !queued(run) && !is_aside(run)) {
            return;
        }
        let Some(run) = self.firings.get_mut(&id) else { return };
        run.state = State::Describing;
        let supervisor = Arc::clone(&self.run.supervisor);
        self.tell(
            main,
            ThreadMsg::Describe(Box::new(move |described| {
                supervisor.do_send(SupervisorMsg::Described {
                    firing: id,
                    described: described.map(Box::new),
                });
            })),
        );
    }

    pub(super) fn firing_deadline(&mut self, id: FiringId) {
        if let Some(thread) = self.firings.get(&id).and_then(FiringRun::thread) {
            let after_ms = self
                .firings
                .get(&id)
                .and_then(|run| run.execute())
                .map_or(0, |execute| (execute.timeout * 1000.0) as u64);
            self.cancel(thread, CancelReason::TimedOut { after_ms });
        }
    }

    /// The main thread ended: what was started for it is stopped.
    pub(super) fn give_up_firing(&mut self, id: FiringId) {
        let Some(run) = self.firings.get(&id) else { return };
        let run_main = run.main;
        match run.state {
            State::Running(thread) => {
                let ended = self.depth_of(run_main);
                self.cancel_caused(thread, CancelReason::ParentEnded, ended);
            }
            State::Queued | State::Describing => self.firing_never_began(id),
            // What the thread did apply it said before its end: this result came too late, and is not answered.
            State::Applying => self.applied(id, Some(hand_back::too_late())),
            // The detached run's end still comes.
            State::Detached | State::Over => {}
        }
    }

    /// Its thread ended first.
    fn firing_never_began(&mut self, id: FiringId) {
        let Some(run) = self.firings.get_mut(&id) else { return };
        let (main, firing) = (run.main, run.firing.clone());
        let error = RunError::new(
            RunErrorCode::Cancelled,
            "the thread ended before the sub-workflow began",
        );
        run.report.outcome = FiringOutcome::Refused;
        run.report.error = Some(error.clone());
        run.state = State::Over;
        run.basis = None;
        run.variables = Variables::default();
        self.say_failed(main, &firing, &error);
        if firing.is_token_event() {
            self.say_not_compressed(main, &firing, &error);
        }
    }

    /// What came of it: where it failed, why.
    fn firing_over(&mut self, id: FiringId, error: Option<RunError>) {
        let Some(run) = self.firings.get_mut(&id) else { return };
        run.report.outcome = match error {
            Some(_) => FiringOutcome::Failed,
            None => FiringOutcome::Completed,
        };
        run.report.error = error;
        run.state = State::Over;
        run.basis = None;
        run.variables = Variables::default();
        run.timer = None;
        let main = run.main;
        self.disown(main, Owned::Firing(id));
        self.next_firing_of(main);
    }

    fn say(&self, main: ThreadNo, id: FiringId, event_type: EventType, error: Option<&RunError>) {
        let Some(run) = self.firings.get(&id) else { return };
        self.emit_caused(main, run.trigger_depth(), event_type, || {
            vec![
                ("triggerId", json!(run.firing.trigger.id)),
                ("firing", json!(id)),
                ("childThreadId", json!(run.report.thread_id)),
                ("currentNodeId", json!(run.report.current_node_id)),
                ("nextNodeId", json!(run.report.next_node_id)),
                ("error", json!(error)),
            ]
        });
    }

    fn say_failed(&self, main: ThreadNo, firing: &Firing, error: &RunError) {
        self.emit_caused(main, firing.trigger_depth(), EventType::TriggeredSubgraphFailed, || {
            vec![
                ("triggerId", json!(firing.trigger.id)),
                ("firing", json!(firing.id)),
                ("error", json!(error)),
            ]
        });
    }

    pub(super) fn firing_reports(&self) -> Vec<FiringReport> {
        self.firings.values().map(|run| run.report.clone()).collect()
    }

    /// Nodes of firings with `mergeHistory: true`, marked.
    pub(super) fn merged_nodes(&self) -> Vec<NodeReport> {
        self.firings
            .iter()
            .filter(|(_, run)| run.main == 0 && run.execute().is_some_and(|execute| execute.merge_history))
            .flat_map(|(id, run)| {
                run.nodes.iter().map(|node| NodeReport {
                    firing: Some(*id),
                    ..node.clone()
                })
            })
            .collect()
    }
}

fn visible(conversation: &Conversation) -> Vec<Message> {
    conversation
        .visible()
        .iter()
        .map(|counted| (*counted.message).clone())
        .collect()
}
