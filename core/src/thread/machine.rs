//! The thread machine: what one thread of execution does next.
//!
//! | status | input | becomes | does |
//! |---|---|---|---|
//! | CREATED | Start | RUNNING | enters the first node |
//! | CREATED | Cancel | CANCELLED or TIMEOUT | ends |
//! | CREATED | Pause | CREATED, paused at its first safe point | - |
//! | RUNNING | Answer that is awaited | RUNNING, or an end | goes on with its node |
//! | RUNNING | Answer that is not | RUNNING | nothing |
//! | RUNNING | Pause | PAUSED at the next safe point | - |
//! | any before its end | Fail | FAILED | drops what is in flight, ends |
//! | RUNNING, PAUSED | Cancel | CANCELLED or TIMEOUT | drops what is in flight, ends |
//! | RUNNING, PAUSED, while the conversation takes in a firing's result | Cancel, Fail | unchanged; ends when it has | - |
//! | PAUSED | Resume | RUNNING | enters the next node |
//! | PAUSED | Triggered, Assign | PAUSED | applies it: a safe point is where it takes effect |
//! | any before its end | Raised | unchanged; asks at its next safe point whether it is held | - |
//! | an end | anything | unchanged | nothing |
//!
//! Invariants: one node at a time; every effect that wants an answer is either awaited or dropped; `Ended` is the
//! last effect and comes once; nothing is built for an event type nobody listens to.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::effect::{Effect, EffectId, Environment, Input};
use super::history::History;
use super::id::ThreadId;
use super::loops::LoopFrame;
use super::nodes::NodeRun;
use super::nodes::question::Interaction;
use super::safe_point::{PendingResults, SafePointWork, Stop, TriggerAssignment};
use super::seed::{BranchSeed, Snapshot, ThreadSeed};
use super::spending::Spending;
use super::state::{Outputs, Variable, Variables};
use super::step::StepContext;
use crate::definition::{AgentConfig, VariableScope};
use crate::event::TakenEvents;
use crate::graph::{Graph, NodeIx};
use crate::message::ToolCall;
use crate::model_call::FinishReason;
use crate::status::ThreadStatus;
use crate::value::Output;

/// Nodes a thread may enter where the workflow does not say.
pub const DEFAULT_MAX_STEPS: u64 = 1000;

/// The kind of a thread: how it came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadKind {
    /// The run's first thread.
    Main,
    /// One path of a FORK.
    Branch,
    /// Started by a SUBGRAPH node.
    Subgraph,
    /// Started by a trigger.
    Triggered,
}

impl ThreadKind {
    /// The lower-case word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Branch => "branch",
            Self::Subgraph => "subgraph",
            Self::Triggered => "triggered",
        }
    }
}

/// One entered node, as the run's JSON shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Which.
    pub node: NodeIx,
    /// Its status.
    pub status: NodeStatus,
    /// The number of attempts.
    pub attempts: u32,
    /// Why the last reply of an LLM node's model ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
}

/// The status of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NodeStatus {
    /// Entered, not ended.
    Running,
    /// Ended well.
    Completed,
    /// Every attempt failed.
    Failed,
    /// The thread was stopped in it.
    Cancelled,
}

/// Tool calls that an attempt at an LLM node left without a result, with their idempotency keys.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CutOff {
    pub(super) calls: Vec<(EffectId, ToolCall)>,
}

/// One thread of execution. See the table above.
#[derive(Debug, Serialize, Deserialize)]
pub struct ThreadMachine {
    #[serde(skip)]
    pub(super) graph: Option<Arc<Graph>>,
    thread_id: ThreadId,
    pub(super) path_id: Option<Arc<str>>,
    kind: ThreadKind,
    pub(super) first: NodeIx,
    pub(super) stop_at: Option<NodeIx>,
    pub(super) status: ThreadStatus,
    /// The node it is in.
    pub(super) at: NodeIx,
    /// The node's state: what it awaits.
    pub(super) run: NodeRun,
    pub(super) attempt: u32,
    /// The effect of the first attempt at the node's current call: later attempts share its idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) first_call: Option<EffectId>,
    /// Tool calls of the current LLM node that an attempt left without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cut_off: Option<Box<CutOff>>,
    /// The running attempt's time limit.
    pub(super) deadline: Option<EffectId>,
    pub(super) steps: u64,
    /// The innermost loop it is in.
    pub(super) loops: Option<Arc<LoopFrame>>,
    pub(super) last_effect: EffectId,
    pub(super) input: Arc<Value>,
    /// The event in the input, once a text has read it.
    #[serde(skip)]
    pub(super) event: OnceLock<Arc<Value>>,
    pub(super) last: Output,
    pub(super) variables: Variables,
    pub(super) outputs: Outputs,
    pub(super) history: History,
    pub(super) spent: Spending,
    pub(super) agent: Option<Box<AgentConfig>>,
    pub(super) trigger_depth: u32,
    /// A sub-agent's first prompt has not been sent yet.
    pub(super) first_prompt: bool,
    /// The current node's prompt stands in the conversation: further attempts do not add it again.
    pub(super) prompted: bool,
    /// It is to pause, and how many triggers stand between the run's own steps and that.
    pub(super) pause: Option<u32>,
    /// The CUSTOM events that its WAIT nodes have taken; most threads take none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<Box<TakenEvents>>,
    /// An event with a holding trigger was raised since the last question.
    pub(super) needs_trigger_check: bool,
    /// Results of triggers that are pending; most threads never see one.
    pub(super) pending: Option<Box<PendingResults>>,
    /// A stop that came while the conversation takes in a firing's result: this cannot be undone, so the stop comes
    /// after.
    pub(super) stop: Option<Box<Stop>>,
}

impl ThreadMachine {
    /// A thread that has not started.
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
            spent: Spending::default(),
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

    /// A branch that has not started.
    pub fn branch(graph: &Arc<Graph>, seed: &BranchSeed<'_>) -> Self {
        let Snapshot {
            input,
            variables,
            outputs,
            last,
            loops,
            event,
        } = seed.snapshot.clone();
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
        Self {
            loops,
            event,
            ..Self::new(Arc::clone(graph), whole)
        }
    }

    pub(super) fn pending_mut(&mut self) -> &mut PendingResults {
        self.pending.get_or_insert_default()
    }

    // ---- what it is

    /// The graph it walks.
    ///
    /// # Panics
    /// After deserialization, before [`Self::attach`].
    pub fn graph(&self) -> &Arc<Graph> {
        self.graph
            .as_ref()
            .expect("a deserialized thread is attached to its graph before use")
    }
    /// Gives a deserialized thread its graph back.
    pub fn attach(&mut self, graph: Arc<Graph>) {
        self.graph = Some(graph);
    }
    /// Its id.
    pub fn thread_id(&self) -> &Arc<str> {
        self.thread_id.text()
    }
    /// The user's id of its fork path.
    pub fn path_id(&self) -> Option<&Arc<str>> {
        self.path_id.as_ref()
    }
    /// Its kind.
    pub fn kind(&self) -> ThreadKind {
        self.kind
    }
    /// Its status.
    pub fn status(&self) -> ThreadStatus {
        self.status
    }
    /// The node it is in, or about to enter.
    pub fn node(&self) -> NodeIx {
        self.at
    }
    /// The thread's input.
    pub fn input(&self) -> &Arc<Value> {
        &self.input
    }
    /// The last node's output; in a branch that has none yet, the last one before its FORK.
    pub fn last_output(&self) -> &Output {
        &self.last
    }
    /// Its variables.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }
    /// Its nodes' outputs.
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }
    /// The nodes it entered, in order.
    pub fn history(&self) -> impl Iterator<Item = &NodeRecord> {
        self.history.iter()
    }
    /// Number of entries of its history.
    pub(crate) fn history_len(&self) -> usize {
        self.history.len()
    }
    /// Shows the lists that its loops go over.
    pub(crate) fn loop_items(&self, show: impl FnMut(&Arc<Value>)) {
        let frames = std::iter::successors(self.loops.as_ref(), |frame| frame.outer.as_ref());
        frames.filter_map(|frame| frame.list()).for_each(show);
    }
    /// The history, taken from a thread that has ended.
    pub fn take_history(&mut self) -> Vec<NodeRecord> {
        self.history.take()
    }
    /// The history, taken from a thread that broke off without an end of its own: the node it was in has failed.
    pub fn take_broken_history(&mut self) -> Vec<NodeRecord> {
        let mut history = self.take_history();
        if let Some(record) = history.last_mut().filter(|record| record.status == NodeStatus::Running) {
            record.status = NodeStatus::Failed;
            record.attempts = self.attempt;
        }
        history
    }
    /// The outputs, taken from a thread that has ended.
    pub fn take_outputs(&mut self) -> Outputs {
        std::mem::take(&mut self.outputs)
    }
    /// Usage of its own models; what its children spent is for whoever hears of their ends.
    pub fn spent(&self) -> &Spending {
        &self.spent
    }
    /// The number of effects it has asked for.
    pub fn effects_so_far(&self) -> EffectId {
        self.last_effect
    }
    /// Triggers between the run's own steps and what it does.
    pub fn trigger_depth(&self) -> u32 {
        self.trigger_depth
    }
    /// Its configuration as a sub-agent; none if it is not one.
    pub fn agent(&self) -> Option<&AgentConfig> {
        self.agent.as_deref()
    }
    /// The snapshot a branch of it starts with, as of now.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot {
            input: Arc::clone(&self.input),
            variables: self.variables.clone(),
            outputs: self.outputs.snapshot(),
            last: self.last.clone(),
            loops: self.loops.clone(),
            event: self.event.clone(),
        }
    }

    /// The questions that the thread waits with, and what awaits the answer of each.
    pub fn interactions(&self) -> Vec<(EffectId, Interaction)> {
        self.run.interactions(self)
    }

    // ---- what happens to it

    /// Takes one input; what should happen is appended to `out`.
    pub fn step(&mut self, environment: Environment, input: Input, out: &mut Vec<Effect>) {
        if self.status.is_final() {
            return;
        }
        let mut walk = StepContext {
            thread: self,
            environment,
            out,
        };
        match input {
            Input::Start => walk.start(),
            Input::Answer { effect, outcome } => walk.answer(effect, outcome),
            Input::Cancel { reason, trigger_depth } => {
                walk.thread.trigger_depth = walk.thread.trigger_depth.max(trigger_depth);
                walk.cancel(&reason);
            }
            Input::Fail(error) => walk.break_off(ThreadStatus::Failed, error),
            Input::Pause { trigger_depth } => walk.thread.pause = Some(trigger_depth),
            Input::Resume { trigger_depth } => walk.resume(trigger_depth),
            Input::Raised => {
                walk.thread.needs_trigger_check = true;
                walk.poll_safe_point();
            }
            Input::Triggered { firing, result } => walk.triggered(firing, result),
            Input::Assign {
                trigger_id,
                name,
                value,
                trigger_depth,
            } => {
                let assignment = TriggerAssignment {
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                };
                walk.thread
                    .pending_mut()
                    .arrived
                    .push_back(SafePointWork::Assign(assignment));
                walk.poll_safe_point();
            }
        }
    }
}

/// The variables that a thread of this graph starts with.
pub fn thread_variables(graph: &Graph) -> Variables {
    defined_variables(graph, |scope| scope == VariableScope::Thread)
}

/// The variables that this graph defines for its run: all its threads share them.
pub fn run_variables(graph: &Graph) -> Variables {
    defined_variables(graph, |scope| scope != VariableScope::Thread)
}

fn defined_variables(graph: &Graph, is_wanted: fn(VariableScope) -> bool) -> Variables {
    let mut variables = Variables::default();
    for definition in graph.variables.iter().filter(|definition| is_wanted(definition.scope)) {
        variables.define(
            definition.name.as_str().into(),
            Variable {
                value: Arc::new(definition.value.clone()),
                variable_type: definition.variable_type,
                readonly: definition.readonly,
                is_of_session: definition.scope == VariableScope::Session,
            },
        );
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_kind_is_the_one_in_json() {
        for kind in [
            ThreadKind::Main,
            ThreadKind::Branch,
            ThreadKind::Subgraph,
            ThreadKind::Triggered,
        ] {
            assert_eq!(serde_json::json!(kind), kind.as_str());
        }
    }
}
