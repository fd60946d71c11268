//! State machine of one thread.
//!
//! | status | input | new status | action |
//! |---|---|---|---|
//! | CREATED | Start | RUNNING | enters the first node |
//! | CREATED | Cancel | CANCELLED or TIMEOUT | ends |
//! | CREATED | Pause | CREATED, paused at its first safe point | - |
//! | RUNNING | Answer to an awaited effect | RUNNING or a final status | continues its node |
//! | RUNNING | other Answer | RUNNING | - |
//! | RUNNING | Pause | PAUSED at the next safe point | - |
//! | any but final | Fail | FAILED | cancels its effects, ends |
//! | RUNNING, PAUSED | Cancel | CANCELLED or TIMEOUT | cancels its effects, ends |
//! | RUNNING, PAUSED, while the conversation applies a firing's result | Cancel, Fail | unchanged; ends after that | - |
//! | PAUSED | Resume | RUNNING | enters the next node |
//! | PAUSED | Triggered, Assign | PAUSED | applies it: a paused thread is at a safe point |
//! | any but final | Raised | unchanged; at its next safe point it checks whether it is held | - |
//! | final | any | unchanged | - |
//!
//! Invariants:
//! - A thread is in one node at a time.
//! - Each effect that needs an answer is either awaited or cancelled.
//! - `Ended` is the last effect and occurs once.
//! - Events of types without subscribers are not built.

use std::sync::{Arc, OnceLock};

use pirn_definition::definition::{AgentConfig, VariableScope};
use pirn_definition::graph::{Graph, NodeIx};
use pirn_definition::message::ToolCall;
use pirn_definition::value::Output;
use pirn_events::event::TakenEvents;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::data::effect::EffectId;
use super::data::history::History;
use super::data::id::ThreadId;
use super::data::loops::LoopFrame;
use super::data::pending::{DeferredStop, PendingResults};
use super::data::records::{NodeRecord, NodeStatus, ThreadKind};
use super::data::seed::{BranchSeed, Snapshot, ThreadSeed};
use super::data::stages::NodeRun;
use super::data::state::{Outputs, Variable, Variables};
use super::data::usage::UsageByNode;
use crate::status::ThreadStatus;

/// Tool calls without a result from an earlier attempt at an LLM node, with their idempotency keys.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CutOff {
    pub(super) calls: Vec<(EffectId, ToolCall)>,
}

/// State of one thread. The module documentation has the transition table.
#[derive(Debug, Serialize, Deserialize)]
pub struct ThreadMachine {
    #[serde(skip)]
    // Not serialized: the graph belongs to the definition, and all threads of a workflow share one.
    pub(super) graph: Option<Arc<Graph>>,
    thread_id: ThreadId,
    pub(super) path_id: Option<Arc<str>>,
    kind: ThreadKind,
    pub(super) first: NodeIx,
    pub(super) stop_at: Option<NodeIx>,
    pub(super) status: ThreadStatus,
    /// Current node.
    pub(super) at: NodeIx,
    /// State of the current node: the answer that it awaits.
    pub(super) run: NodeRun,
    pub(super) attempt: u32,
    /// Effect of the first attempt at the node's current call. Later attempts reuse it as idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) first_call: Option<EffectId>,
    /// Tool calls of the current LLM node that an earlier attempt left without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cut_off: Option<Box<CutOff>>,
    /// Timer of the current attempt's time limit.
    pub(super) deadline: Option<EffectId>,
    pub(super) steps: u64,
    /// Innermost active loop.
    pub(super) loops: Option<Arc<LoopFrame>>,
    pub(super) last_effect: EffectId,
    pub(super) input: Arc<Value>,
    /// Cached event of the input.
    #[serde(skip)]
    // Not serialized: the input contains the event.
    pub(super) event: OnceLock<Arc<Value>>,
    pub(super) last: Output,
    pub(super) variables: Variables,
    pub(super) outputs: Outputs,
    pub(super) history: History,
    pub(super) spent: UsageByNode,
    pub(super) agent: Option<Box<AgentConfig>>,
    pub(super) trigger_depth: u32,
    /// True until a sub-agent has sent its first prompt.
    pub(super) first_prompt: bool,
    /// True if the current node's prompt is in the conversation: further attempts do not add it again.
    pub(super) prompted: bool,
    /// Pending pause, with the number of triggers between the run's steps and it.
    pub(super) pause: Option<u32>,
    /// CUSTOM events that the thread's WAIT nodes have consumed. Boxed because few threads have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<Box<TakenEvents>>,
    /// True if an event with a holding trigger was raised since the last check.
    pub(super) needs_trigger_check: bool,
    /// Pending results of triggers. Boxed because few threads have any.
    pub(super) pending: Option<Box<PendingResults>>,
    /// A stop that arrived while the conversation applies a firing's result. The change cannot be undone, so that the stop waits
    /// for it.
    pub(super) stop: Option<Box<DeferredStop>>,
}

impl ThreadMachine {
    /// Creates a thread that has not started.
    #[allow(clippy::inline_always)] // a thread is created in its final place, without a copy
    #[inline(always)]
    pub fn new(graph: Arc<Graph>, seed: ThreadSeed) -> Self {
        Self {
            graph: Some(graph),
            thread_id: seed.thread_id,
            path_id: seed.path_id,
            kind: seed.kind,
            first: seed.first,
            stop_at: seed.stop_at,
            status: ThreadStatus::Created,
            at: seed.first,
            run: NodeRun::Idle,
            attempt: 0,
            first_call: None,
            cut_off: None,
            deadline: None,
            steps: 0,
            loops: None,
            last_effect: 0,
            input: seed.input,
            event: OnceLock::new(),
            last: seed.last,
            variables: seed.variables,
            outputs: seed.outputs,
            history: History::default(),
            spent: UsageByNode::default(),
            // Before `agent`, which moves the value.
            first_prompt: seed.agent.is_some(),
            agent: seed.agent.map(Box::new),
            prompted: false,
            trigger_depth: seed.trigger_depth,
            pause: None,
            taken: None,
            needs_trigger_check: false,
            pending: None,
            stop: None,
        }
    }

    /// Creates a branch that has not started.
    #[allow(clippy::inline_always)] // a thread is created in its final place, without a copy
    #[inline(always)]
    pub fn branch(graph: &Arc<Graph>, seed: &BranchSeed<'_>) -> Self {
        let Snapshot {
            input,
            mut variables,
            outputs,
            last,
            loops,
            event,
            // Constant time: every field of a snapshot is shared by pointer.
        } = seed.snapshot.clone();
        variables.enter_branch();
        let whole = ThreadSeed {
            thread_id: ThreadId::new(Arc::clone(seed.run_id), seed.no),
            kind: ThreadKind::Branch,
            path_id: Some(Arc::clone(seed.path_id)),
            first: seed.first,
            stop_at: Some(seed.stop_at),
            input,
            variables,
            outputs,
            last,
            agent: None,
            trigger_depth: seed.trigger_depth,
        };
        let mut branch = Self::new(Arc::clone(graph), whole);
        // Not in `ThreadSeed`, because only a branch starts inside of a loop.
        branch.loops = loops;
        // A branch has the input of its parent, so that its cached event is valid too.
        branch.event = event;
        branch
    }

    pub(super) fn pending_mut(&mut self) -> &mut PendingResults {
        self.pending.get_or_insert_default()
    }

    // ---- properties

    /// Returns the graph that the thread walks.
    ///
    /// # Panics
    /// Panics after deserialization until [`Self::attach`] is called.
    pub fn graph(&self) -> &Arc<Graph> {
        self.graph
            .as_ref()
            // The graph is missing only between deserialization and `attach`, which the run calls before the first step.
            .expect("a deserialized thread is attached to its graph before use")
    }
    /// Attaches the graph to a deserialized thread.
    pub fn attach(&mut self, graph: Arc<Graph>) {
        self.graph = Some(graph);
    }
    /// Returns the id of the thread.
    pub fn thread_id(&self) -> &Arc<str> {
        self.thread_id.text()
    }
    /// Returns the id of the thread's fork path.
    pub fn path_id(&self) -> Option<&Arc<str>> {
        self.path_id.as_ref()
    }
    /// Returns the kind of the thread.
    pub fn kind(&self) -> ThreadKind {
        self.kind
    }
    /// Returns the status of the thread.
    pub fn status(&self) -> ThreadStatus {
        self.status
    }
    /// Returns the current node, or the one about to be entered.
    pub fn node(&self) -> NodeIx {
        self.at
    }
    /// Returns the input of the thread.
    pub fn input(&self) -> &Arc<Value> {
        &self.input
    }
    /// Returns the output of the last node; in a branch without one, the last output before its FORK.
    pub fn last_output(&self) -> &Output {
        &self.last
    }
    /// Returns the value of `output` in an expression of the current node.
    pub(super) fn output_in_expressions(&self) -> &Output {
        match &self.run {
            NodeRun::Subgraph(stage) => stage.child_output().unwrap_or(&self.last),
            _ => &self.last,
        }
    }
    /// Returns the variables of the thread.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }
    /// Returns the outputs of the thread's nodes.
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }
    /// Returns the entered nodes in order.
    pub fn history(&self) -> impl Iterator<Item = &NodeRecord> {
        self.history.iter()
    }
    /// Returns the number of history entries.
    pub(crate) fn history_len(&self) -> usize {
        self.history.len()
    }
    /// Calls `show` with each list over which a loop iterates.
    pub(crate) fn loop_items(&self, show: impl FnMut(&Arc<Value>)) {
        // Inner loops first: each frame links to the enclosing one.
        let frames = std::iter::successors(self.loops.as_ref(), |frame| frame.outer.as_ref());
        frames.filter_map(|frame| frame.list()).for_each(show);
    }
    /// Takes the history of an ended thread.
    pub fn take_history(&mut self) -> Vec<NodeRecord> {
        self.history.take()
    }
    /// Takes the history of a thread that panicked. Its current node is marked as failed.
    pub fn take_broken_history(&mut self) -> Vec<NodeRecord> {
        let mut history = self.take_history();
        // A panic interrupts `step` before the status of the node is final.
        if let Some(record) = history.last_mut().filter(|record| record.status == NodeStatus::Running) {
            record.status = NodeStatus::Failed;
            record.attempts = self.attempt;
        }
        history
    }
    /// Returns the usage of this thread's model calls, without its children: the run adds those.
    pub fn spent(&self) -> &UsageByNode {
        &self.spent
    }
    /// Returns the number of effects so far.
    pub fn effects_so_far(&self) -> EffectId {
        self.last_effect
    }
    /// Returns the number of triggers between the run's steps and the actions of the thread.
    pub fn trigger_depth(&self) -> u32 {
        self.trigger_depth
    }
    /// Returns the configuration of a sub-agent; `None` for other threads.
    pub fn agent(&self) -> Option<&AgentConfig> {
        self.agent.as_deref()
    }
    /// Returns a snapshot of the current state for branches.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot {
            input: Arc::clone(&self.input),
            variables: self.variables.clone(),
            // Moves the outputs to the shared map first, for which the snapshot needs mutable access.
            outputs: self.outputs.snapshot(),
            last: self.last.clone(),
            loops: self.loops.clone(),
            event: self.event.clone(),
        }
    }

    /// Returns the names of the deferred tools that the last request of the LLM node offered.
    pub(crate) fn revealed_tools(&self) -> &[Arc<str>] {
        self.run.revealed_tools()
    }
}

/// Returns the initial variables of a thread that walks this graph.
pub fn thread_variables(graph: &Graph) -> Variables {
    defined_variables(graph, |scope| scope == VariableScope::Thread)
}

/// Returns the global variables that this graph defines. All threads of the run share them.
pub fn run_variables(graph: &Graph) -> Variables {
    defined_variables(graph, |scope| scope != VariableScope::Thread)
}

fn defined_variables(graph: &Graph, is_wanted: fn(VariableScope) -> bool) -> Variables {
    let mut variables = Variables::default();
    for definition in graph.variables.iter().filter(|definition| is_wanted(definition.scope)) {
        variables.define(
            definition.name.as_str().into(),
            Variable {
                is_of_session: definition.scope == VariableScope::Session,
                ..Variable::new(
                    Arc::new(definition.value.clone()),
                    definition.variable_type,
                    definition.readonly,
                )
            },
        );
    }
    variables
}
