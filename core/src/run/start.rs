//! Starting threads: the main one, called and triggered sub-workflows. Branches start with what their fork has.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::last_asked::LastAsked;
use super::message::{HandedConversation, Timer};
use super::step::Step;
use super::tree::{Branching, Origin, Owned};
use super::{Effect, RunMachine, ThreadNo};
use crate::Millis;
use crate::conversation::Conversation;
use crate::definition::AgentConfig;
use crate::error::{RunError, RunErrorCode};
use crate::event::EventType;
use crate::graph::{Graph, NodeIx, NodeKind};
use crate::status::ThreadStatus;
use crate::thread::{
    EffectId, Outcome, Output, Outputs, ThreadId, ThreadKind, ThreadMachine, ThreadSeed, Variables, run_variables,
    thread_variables,
};

/// Nesting limit of forks and sub-workflows where the workflow sets none.
const DEFAULT_MAX_DEPTH: u32 = 10;

/// The input that a thread which is no branch starts with.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start {
    #[serde(skip)]
    pub(super) graph: Option<Arc<Graph>>,
    pub(super) kind: ThreadKind,
    pub(super) origin: Origin,
    pub(super) input: Arc<Value>,
    pub(super) variables: Variables,
    pub(super) conversation: HandedConversation,
    pub(super) agent: Option<AgentConfig>,
    pub(super) depth: u32,
    pub(super) trigger_depth: u32,
    pub(super) is_unlimited: bool,
    pub(super) is_detached: bool,
    /// The request that the conversation's model got last, where a conversation goes on here.
    #[serde(default)]
    pub(super) asked: Option<Box<LastAsked>>,
}

impl Start {
    /// A thread that walks `graph` from its start, with what the workflow defines.
    pub(super) fn of(graph: Arc<Graph>, kind: ThreadKind, origin: Origin, input: Arc<Value>) -> Self {
        Self {
            variables: thread_variables(&graph),
            graph: Some(graph),
            kind,
            origin,
            input,
            conversation: HandedConversation::Snapshot(Conversation::new()),
            agent: None,
            depth: 0,
            trigger_depth: 0,
            is_unlimited: false,
            is_detached: false,
            asked: None,
        }
    }

    /// The thread as it is before its first step, and the conversation it starts with; none before it was attached to
    /// its workflow.
    pub(super) fn into_machine(self, thread_id: ThreadId) -> Option<(ThreadMachine, HandedConversation)> {
        let graph = self.graph?;
        let seed = ThreadSeed {
            thread_id,
            kind: self.kind,
            path_id: self.origin.path_id(&graph),
            first: graph.start,
            stop_at: None,
            input: self.input,
            variables: self.variables,
            outputs: Outputs::default(),
            last: Output::default(),
            agent: self.agent,
            trigger_depth: self.trigger_depth,
        };
        Some((ThreadMachine::new(graph, seed), self.conversation))
    }
}

impl RunMachine {
    /// Takes a thread into the run, with the global variables that its workflow defines and the run does not have yet.
    pub(super) fn start(&mut self, start: Start, step: &mut Step<'_>) -> ThreadNo {
        let Some(graph) = start.graph.clone() else {
            return 0;
        };
        let defined = run_variables(&graph);
        for (name, _) in defined.iter() {
            if let (None, Some(variable)) = (self.globals.variable(name), defined.variable(name)) {
                self.globals.define(name, variable.clone());
            }
        }
        let at = Branching {
            kind: start.kind,
            graph: self.graphs.add(&graph, step.world),
            origin: start.origin,
            parent: self.parent_of(start.origin),
            depth: start.depth,
            trigger_depth: start.trigger_depth,
            is_unlimited: start.is_unlimited,
            is_detached: start.is_detached,
        };
        if graph.config.budget.is_some() {
            self.budget.get_or_insert_default();
        }
        let limit = self.time_limit(&at);
        let thread = self.register(at, Some(Box::new(start)), step);
        if thread > 0 || !self.awaits_session() {
            limit_time(thread, limit, step);
        }
        thread
    }

    /// The main thread begins, whose run has had to wait.
    pub(super) fn begin_main(&mut self, step: &mut Step<'_>) {
        let limit = self.tree.get(0).and_then(|at| self.time_limit(at));
        self.takes_first_step(0, step);
        limit_time(0, limit, step);
    }

    /// The depth of a thread started by `parent`; OVERLOADED where that is too deep.
    pub(super) fn deeper(&self, parent: ThreadNo) -> Result<u32, RunError> {
        let limit = self.graph_of(0).config.max_depth.unwrap_or(DEFAULT_MAX_DEPTH);
        self.tree
            .deeper(parent, limit)
            .ok_or_else(|| RunError::new(RunErrorCode::Overloaded, format!("threads nest deeper than {limit}")))
    }

    /// A workflow that a thread calls, and how deep what walks it is.
    pub(super) fn callee(
        &self,
        parent: ThreadNo,
        workflow_id: &str,
        step: &Step<'_>,
    ) -> Result<(Arc<Graph>, u32), RunError> {
        let depth = self.deeper(parent)?;
        let called = step.world.graph(workflow_id);
        let called = called
            .ok_or_else(|| RunError::new(RunErrorCode::NodeFailed, format!("there is no workflow {workflow_id}")))?;
        Ok((called, depth))
    }

    /// A SUBGRAPH node calls a workflow.
    pub(super) fn call(
        &mut self,
        parent: ThreadNo,
        effect: EffectId,
        node: NodeIx,
        input: Arc<Value>,
        conversation: HandedConversation,
        step: &mut Step<'_>,
    ) {
        let Some(at) = self.tree.get(parent).filter(|_| self.tree.is_live(parent)).cloned() else {
            return;
        };
        let graph = Arc::clone(self.graph_of(parent));
        let NodeKind::Subgraph { workflow_id, agent, .. } = &graph.node(node).kind else {
            return;
        };
        let (called, depth) = match self.callee(parent, workflow_id, step) {
            Ok(callee) => callee,
            Err(error) => return self.answer(parent, effect, Outcome::Failed(error)),
        };
        let subgraph_id = Arc::clone(&called.workflow_id);
        let start = Start {
            conversation,
            agent: agent.clone(),
            depth,
            trigger_depth: at.trigger_depth,
            is_unlimited: at.is_unlimited,
            is_detached: at.is_detached,
            ..Start::of(called, ThreadKind::Subgraph, Origin::Called { parent, effect }, input)
        };
        let thread = self.start(start, step);
        self.tree.own(parent, Owned::Child { effect, thread });
        let thread_id = self.thread_id(thread);
        self.emit(parent, EventType::SubgraphStarted, step, || {
            vec![
                ("nodeId", json!(graph.node(node).id)),
                ("childThreadId", json!(thread_id)),
                ("subgraphId", json!(subgraph_id)),
            ]
        });
    }

    /// A called workflow has ended: its caller goes on, or fails with it.
    pub(super) fn called_ended(&mut self, parent: ThreadNo, effect: EffectId, thread: ThreadNo, step: &mut Step<'_>) {
        self.tree.disown(parent, Owned::Child { effect, thread });
        let Some(end) = self.end_of(thread) else { return };
        let status = end.status;
        let outcome = match status {
            ThreadStatus::Completed => Outcome::Child {
                output: Arc::clone(end.output.value()),
            },
            ThreadStatus::Failed
            | ThreadStatus::Cancelled
            | ThreadStatus::Timeout
            | ThreadStatus::Created
            | ThreadStatus::Running
            | ThreadStatus::Paused => {
                let workflow_id = &self.graph_of(thread).workflow_id;
                let message = format!("workflow {workflow_id} ended {}", status.as_str());
                let error = RunError::new(RunErrorCode::NodeFailed, message);
                Outcome::Failed(match &end.error {
                    Some(cause) => error.caused_by(cause.clone()),
                    None => error,
                })
            }
        };
        let thread_id = self.thread_id(thread);
        self.emit(parent, EventType::SubgraphCompleted, step, || {
            vec![("childThreadId", json!(thread_id)), ("status", json!(status))]
        });
        // The caller has its output now: a report needs no more than how it ended.
        self.release(thread);
        self.answer(parent, effect, outcome);
    }
}

fn limit_time(thread: ThreadNo, limit: Option<Millis>, step: &mut Step<'_>) {
    if let Some(after_ms) = limit {
        step.out.push(Effect::SetTimer {
            timer: Timer::Thread { thread, after_ms },
            after_ms,
        });
    }
}
