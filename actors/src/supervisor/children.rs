//! Starting threads: the main one, branches, called and triggered sub-workflows.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use pirn_core::conversation::Conversation;
use pirn_core::definition::{AgentConfig, VariableScope};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventType;
use pirn_core::graph::{Graph, NodeIx, NodeKind};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{
    EffectId, Outcome, Output, Outputs, ThreadId, ThreadKind, ThreadMachine, ThreadSeed, Variables, initial_variables,
};
use serde_json::{Value, json};

use super::turns::Place;
use super::{Child, Origin, Owned, SupervisorActor, SupervisorMsg, ThreadNo};
use crate::run::RunShared;
use crate::thread::ConversationRef;

/// How deep forks and sub-workflows may nest where the workflow does not say.
const DEFAULT_MAX_DEPTH: u32 = 10;

/// What one thread is started with.
pub(super) struct Start {
    pub(super) graph: Arc<Graph>,
    pub(super) kind: ThreadKind,
    pub(super) origin: Origin,
    pub(super) path_id: Option<Arc<str>>,
    pub(super) first: NodeIx,
    pub(super) stop_at: Option<NodeIx>,
    pub(super) input: Arc<Value>,
    pub(super) variables: Variables,
    pub(super) outputs: Outputs,
    pub(super) last: Output,
    pub(super) conversation: ConversationRef,
    pub(super) agent: Option<AgentConfig>,
    pub(super) depth: u32,
    pub(super) trigger_depth: u32,
    pub(super) is_unlimited: bool,
    pub(super) is_detached: bool,
}

impl Start {
    /// A thread that walks `graph` from its start, with what the workflow defines.
    pub(super) fn of(graph: Arc<Graph>, kind: ThreadKind, origin: Origin, input: Arc<Value>) -> Self {
        Self {
            first: graph.start,
            variables: initial_variables(&graph, VariableScope::Thread),
            graph,
            kind,
            origin,
            path_id: None,
            stop_at: None,
            input,
            outputs: Outputs::default(),
            last: Output::default(),
            conversation: ConversationRef::Snapshot(Conversation::new()),
            agent: None,
            depth: 0,
            trigger_depth: 0,
            is_unlimited: false,
            is_detached: false,
        }
    }

    /// The thread as it is before its first step, and the conversation it starts with.
    pub(super) fn into_machine(self, thread_id: ThreadId) -> (ThreadMachine, ConversationRef) {
        let seed = ThreadSeed {
            thread_id,
            kind: self.kind,
            path_id: self.path_id,
            first: self.first,
            stop_at: self.stop_at,
            input: self.input,
            variables: self.variables,
            outputs: self.outputs,
            last: self.last,
            agent: self.agent,
            trigger_depth: self.trigger_depth,
        };
        (ThreadMachine::new(self.graph, seed), self.conversation)
    }
}

impl SupervisorActor {
    pub(super) fn start_main(
        &mut self,
        input: Arc<Value>,
        conversation: Conversation,
        is_unlimited: bool,
        trigger_depth: u32,
    ) {
        self.define_globals(&Arc::clone(&self.graph));
        let start = Start::of(Arc::clone(&self.graph), ThreadKind::Main, Origin::Main, input);
        self.start(Start {
            conversation: ConversationRef::Snapshot(conversation),
            trigger_depth,
            is_unlimited,
            ..start
        });
    }

    /// Global variables that a workflow defines and the run does not have yet.
    pub(super) fn define_globals(&mut self, graph: &Arc<Graph>) {
        let defined = initial_variables(graph, VariableScope::Global);
        let mut globals = self.run.globals.borrow_mut();
        for (name, _) in defined.iter() {
            if let (None, Some(variable)) = (globals.variable(name), defined.variable(name)) {
                globals.define(Arc::clone(name), variable.clone());
            }
        }
    }

    pub(super) fn start(&mut self, start: Start) -> ThreadNo {
        let limit = match start.kind {
            // Lives within the limit of the thread that forked it.
            ThreadKind::Branch => None,
            ThreadKind::Main | ThreadKind::Subgraph | ThreadKind::Triggered => start.graph.config.timeout_ms,
        };
        let child = Child {
            kind: start.kind,
            graph: Arc::clone(&start.graph),
            origin: start.origin,
            owned: Vec::new(),
            depth: start.depth,
            trigger_depth: start.trigger_depth,
            is_unlimited: start.is_unlimited,
            is_detached: start.is_detached,
            is_paused: false,
            told: Cell::default(),
            place: Place::Fresh {
                start: Some(Box::new(start)),
                mail: RefCell::default(),
            },
        };
        let thread = self.enlist(child);
        if let Some(after_ms) = limit.filter(|after_ms| *after_ms > 0) {
            let supervisor = Arc::clone(&self.run.supervisor);
            let deadline = self.run.host.after(after_ms, move || {
                supervisor.do_send(SupervisorMsg::ThreadDeadline { thread, after_ms });
            });
            self.deadlines.insert(thread, deadline);
        }
        thread
    }

    /// The token limit of a thread that is to be started so.
    pub(super) fn limit_of(&mut self, start: &Start) -> Option<u64> {
        if start.is_unlimited {
            return None;
        }
        self.token_limit(&start.graph)
    }

    /// A workflow's token limit, looked up once a run: a fork of many branches does not ask for each.
    pub(super) fn token_limit(&mut self, graph: &Graph) -> Option<u64> {
        if graph.config.token_limit.is_some() {
            return graph.config.token_limit;
        }
        // A run has few workflows, most one.
        let known = self.token_limits.iter().find(|(uid, _)| *uid == graph.uid);
        if let Some((_, limit)) = known {
            return *limit;
        }
        let limit = default_limit(&self.run, graph);
        self.token_limits.reserve_exact(1);
        self.token_limits.push((graph.uid, limit));
        limit
    }

    /// How deep a thread started by `parent` is; OVERLOADED where that is too deep.
    pub(super) fn deeper(&self, parent: ThreadNo) -> Result<u32, RunError> {
        let Some(child) = self.threads.get(parent) else {
            return Ok(1);
        };
        let limit = self.graph.config.max_depth.unwrap_or(DEFAULT_MAX_DEPTH);
        if child.depth >= limit {
            return Err(RunError::new(
                RunErrorCode::Overloaded,
                format!("threads nest deeper than {limit}"),
            ));
        }
        Ok(child.depth + 1)
    }

    /// A SUBGRAPH node calls a workflow.
    pub(super) fn child(
        &mut self,
        parent: ThreadNo,
        effect: EffectId,
        node: NodeIx,
        input: Arc<Value>,
        conversation: ConversationRef,
    ) {
        let Some(parent_thread) = self.threads.get(parent).filter(|thread| !thread.has_ended()) else {
            return;
        };
        let graph = Arc::clone(&parent_thread.graph);
        let NodeKind::Subgraph { workflow_id, agent, .. } = &graph.node(node).kind else {
            return;
        };
        let found = self.run.engine.graph(workflow_id);
        let (called, depth) = match (found, self.deeper(parent)) {
            (Some(called), Ok(depth)) => (called, depth),
            (_, Err(error)) => return self.answer_thread(parent, effect, Outcome::Failed(error)),
            (None, _) => {
                let error = RunError::new(RunErrorCode::NodeFailed, format!("there is no workflow {workflow_id}"));
                return self.answer_thread(parent, effect, Outcome::Failed(error));
            }
        };
        let (trigger_depth, is_unlimited, is_detached) = (
            parent_thread.trigger_depth,
            parent_thread.is_unlimited,
            parent_thread.is_detached,
        );
        self.define_globals(&called);
        let origin = Origin::Called { parent, effect };
        let start = Start::of(called, ThreadKind::Subgraph, origin, input);
        let agent = agent.clone();
        let thread = self.start(Start {
            conversation,
            agent,
            depth,
            trigger_depth,
            is_unlimited,
            is_detached,
            ..start
        });
        if let Some(caller) = self.threads.get_mut(parent) {
            caller.owned.push(Owned::Child { effect, thread });
        }
        let started = self
            .threads
            .get(thread)
            .map(|child| (self.threads.id(thread), Arc::clone(&child.graph.workflow_id)));
        self.emit(parent, EventType::SubgraphStarted, || {
            let (thread_id, workflow_id) = started.unzip();
            vec![
                ("nodeId", json!(graph.node(node).id)),
                ("childThreadId", json!(thread_id)),
                ("subgraphId", json!(workflow_id)),
            ]
        });
    }

    /// A called workflow has ended: its caller goes on, or fails with it.
    pub(super) fn called_ended(&mut self, parent: ThreadNo, effect: EffectId, thread: ThreadNo) {
        self.disown(parent, Owned::Child { effect, thread });
        let Some(child) = self.threads.get(thread) else { return };
        let Some(ended) = child.ended() else { return };
        let outcome = match ended.end.status {
            ThreadStatus::Completed => Outcome::Child {
                output: Arc::clone(ended.end.output.value()),
            },
            status => {
                let message = format!("workflow {} ended {}", child.graph.workflow_id, status.as_str());
                let error = RunError::new(RunErrorCode::NodeFailed, message);
                Outcome::Failed(match &ended.end.error {
                    Some(cause) => error.caused_by(cause.clone()),
                    None => error,
                })
            }
        };
        let status = ended.end.status;
        self.emit(parent, EventType::SubgraphCompleted, || {
            vec![
                ("childThreadId", json!(self.threads.id(thread))),
                ("status", json!(status)),
            ]
        });
        self.answer_thread(parent, effect, outcome);
    }
}

/// The token limit of the first LLM node's profile, where the workflow names none.
fn default_limit(run: &RunShared, graph: &Graph) -> Option<u64> {
    let profile_id = graph.nodes.iter().find_map(|node| match &node.kind {
        NodeKind::Llm(llm) => Some(llm.profile_id.as_deref()),
        _ => None,
    })?;
    run.engine.ports.models.choose(profile_id).0.token_limit
}
