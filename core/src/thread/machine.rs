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
//! | RUNNING, PAUSED | Cancel | CANCELLED or TIMEOUT | drops what is in flight, ends |
//! | PAUSED | Resume | RUNNING | enters the next node |
//! | PAUSED | Triggered, Assign | PAUSED | applies it: a safe point is where it takes effect |
//! | an end | anything | unchanged | nothing |
//!
//! Invariants: one node at a time; every effect that wants an answer is either awaited or dropped; `Ended` is the
//! last effect and comes once; nothing is built for an event type nobody listens to.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::effect::{CancelReason, Effect, EffectId, FiringId, Input, Moment, Outcome, ThreadEnd, TriggeredResult};
use super::nodes::{NodeRun, Progress};
use super::state::{Outputs, Variable, Variables};
use crate::conversation::Spent;
use crate::definition::{AgentConfig, VariableScope};
use crate::error::{RunError, RunErrorCode};
use crate::event::{EventType, RaisedEvent};
use crate::graph::{Graph, NodeIx};
use crate::status::ThreadStatus;

/// Nodes a thread may enter where the workflow does not say (SPEC section 2, `config.maxSteps`).
pub const DEFAULT_MAX_STEPS: u64 = 1000;

/// How a thread came to be.
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

/// Everything a thread is told when it is made.
#[derive(Clone, Debug)]
pub struct ThreadSeed {
    /// Unique in the run.
    pub thread_id: Arc<str>,
    /// How it came to be.
    pub kind: ThreadKind,
    /// The user's id of its fork path.
    pub path_id: Option<Arc<str>>,
    /// Its first node.
    pub first: NodeIx,
    /// A branch's JOIN: reaching it completes the thread.
    pub stop_at: Option<NodeIx>,
    /// Its input.
    pub input: Arc<Value>,
    /// Its variables; a branch's and a child's snapshot, else what the workflow defines.
    pub variables: Variables,
    /// Node outputs it can see.
    pub outputs: Outputs,
    /// Makes it a sub-agent.
    pub agent: Option<AgentConfig>,
    /// How many triggers stand between the run's own steps and this thread.
    pub trigger_depth: u32,
}

/// One entered node, as the run's JSON shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Which.
    pub node: NodeIx,
    /// How it went.
    pub status: NodeStatus,
    /// How often it was tried.
    pub attempts: u32,
}

/// How a node went.
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

/// One thread of execution. See the table above.
#[derive(Debug, Serialize, Deserialize)]
pub struct ThreadMachine {
    #[serde(skip)]
    pub(super) graph: Option<Arc<Graph>>,
    pub(super) thread_id: Arc<str>,
    pub(super) path_id: Option<Arc<str>>,
    kind: ThreadKind,
    first: NodeIx,
    stop_at: Option<NodeIx>,
    status: ThreadStatus,
    /// The node it is in.
    pub(super) at: NodeIx,
    /// What the node awaits.
    pub(super) run: NodeRun,
    pub(super) attempt: u32,
    /// The running attempt's time limit.
    deadline: Option<EffectId>,
    steps: u64,
    last_effect: EffectId,
    pub(super) input: Arc<Value>,
    pub(super) last: Arc<Value>,
    pub(super) variables: Variables,
    pub(super) outputs: Outputs,
    history: Vec<NodeRecord>,
    pub(super) spent: Spent,
    pub(super) agent: Option<AgentConfig>,
    trigger_depth: u32,
    /// A sub-agent's first prompt has not been sent yet.
    pub(super) first_prompt: bool,
    /// The current node's prompt stands in the conversation: further attempts do not add it again.
    pub(super) prompted: bool,
    pause: bool,
    /// An event with a holding trigger was raised since the last question.
    unsettled: bool,
    held: Vec<FiringId>,
    /// Firings that hold the thread and ended before it learned of them.
    released: Vec<FiringId>,
    arrived: VecDeque<SafePointWork>,
}

/// What waits for a safe point.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum SafePointWork {
    Triggered {
        firing: FiringId,
        variables: Vec<(Arc<str>, Arc<Value>)>,
        conversation: bool,
    },
    Assign {
        name: Arc<str>,
        value: Arc<Value>,
        scope: VariableScope,
        trigger_depth: u32,
    },
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
            deadline: None,
            steps: 0,
            last_effect: 0,
            input: seed.input,
            last: Arc::new(Value::Null),
            variables: seed.variables,
            outputs: seed.outputs,
            history: Vec::new(),
            spent: Spent::default(),
            first_prompt: seed.agent.is_some(),
            agent: seed.agent,
            prompted: false,
            trigger_depth: seed.trigger_depth,
            pause: false,
            unsettled: false,
            held: Vec::new(),
            released: Vec::new(),
            arrived: VecDeque::new(),
        }
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
        &self.thread_id
    }
    /// The user's id of its fork path.
    pub fn path_id(&self) -> Option<&Arc<str>> {
        self.path_id.as_ref()
    }
    /// How it came to be.
    pub fn kind(&self) -> ThreadKind {
        self.kind
    }
    /// Where it is in its life.
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
    /// The last node's output.
    pub fn last_output(&self) -> &Arc<Value> {
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
    pub fn history(&self) -> &[NodeRecord] {
        &self.history
    }
    /// What its models reported, children included.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }
    /// Whether it is a sub-agent.
    pub fn agent(&self) -> Option<&AgentConfig> {
        self.agent.as_ref()
    }
    /// What a branch of it starts with: variables and outputs as of now.
    pub fn snapshot(&mut self) -> (Variables, Outputs) {
        (self.variables.clone(), self.outputs.snapshot())
    }

    // ---- what happens to it

    /// Takes one input; what should happen is appended to `out`.
    pub fn step(&mut self, moment: Moment, input: Input, out: &mut Vec<Effect>) {
        if self.status.is_final() {
            return;
        }
        let mut walk = Walk {
            thread: self,
            moment,
            out,
        };
        match input {
            Input::Start => walk.start(),
            Input::Answer { effect, outcome } => walk.answer(effect, outcome),
            Input::Cancel(reason) => walk.cancel(&reason),
            Input::Pause => walk.thread.pause = true,
            Input::Resume => walk.resume(),
            Input::Triggered { firing, result } => walk.triggered(firing, result),
            Input::Assign {
                name,
                value,
                scope,
                trigger_depth,
            } => {
                walk.thread.arrived.push_back(SafePointWork::Assign {
                    name,
                    value,
                    scope,
                    trigger_depth,
                });
                walk.look_around();
            }
        }
    }
}

/// Variables and the values they are to hold.
pub(super) type Assignments = Vec<(Arc<str>, Arc<Value>)>;

/// One step under way: the thread, the moment, and where effects go.
pub(super) struct Walk<'a> {
    pub(super) thread: &'a mut ThreadMachine,
    pub(super) moment: Moment,
    pub(super) out: &'a mut Vec<Effect>,
}

impl Walk<'_> {
    pub(super) fn next_effect(&mut self) -> EffectId {
        self.thread.last_effect += 1;
        self.thread.last_effect
    }

    pub(super) fn listens(&self, event_type: EventType) -> bool {
        self.moment.interest.contains(event_type)
    }

    /// Ends the attempt with NODE_TIMEOUT after this time.
    pub(super) fn limit(&mut self, after_ms: crate::Millis) {
        if self.thread.deadline.is_none() {
            let id = self.next_effect();
            self.thread.deadline = Some(id);
            self.out.push(Effect::Timer { id, after_ms });
        }
    }

    /// Raises an event where somebody listens.
    pub(super) fn emit<const N: usize>(
        &mut self,
        event_type: EventType,
        fields: impl FnOnce(&ThreadMachine) -> [(&'static str, Value); N],
    ) {
        if self.listens(event_type) {
            let event = RaisedEvent::new(event_type, fields(self.thread));
            self.emit_raised(event);
        }
    }

    pub(super) fn emit_raised(&mut self, mut event: RaisedEvent) {
        event.trigger_depth = event.trigger_depth.max(self.thread.trigger_depth);
        if self.moment.holding.contains(event.event_type) {
            self.thread.unsettled = true;
        }
        if self.listens(event.event_type) {
            self.out.push(Effect::Emit(event));
        }
    }

    // ---- life

    fn start(&mut self) {
        if self.thread.status != ThreadStatus::Created {
            return;
        }
        self.thread.status = ThreadStatus::Running;
        self.emit(EventType::ThreadStarted, |thread| {
            [("kind", json!(thread.kind)), ("pathId", json!(thread.path_id))]
        });
        let first = self.thread.first;
        self.arrive(first);
    }

    fn cancel(&mut self, reason: &CancelReason) {
        self.drop_in_flight();
        if let Some(record) = self.thread.history.last_mut()
            && record.status == NodeStatus::Running
        {
            record.status = NodeStatus::Cancelled;
            record.attempts = self.thread.attempt;
        }
        let (status, code) = match reason {
            CancelReason::TimedOut { .. } => (ThreadStatus::Timeout, RunErrorCode::NodeTimeout),
            CancelReason::Requested { .. }
            | CancelReason::JoinDecided
            | CancelReason::ParentEnded
            | CancelReason::Shutdown => (ThreadStatus::Cancelled, RunErrorCode::Cancelled),
        };
        let error = self.located(RunError::new(code, reason.to_string()));
        self.end(status, Arc::new(Value::Null), Some(error));
    }

    fn resume(&mut self) {
        self.thread.pause = false;
        if self.thread.status == ThreadStatus::Paused {
            self.thread.status = ThreadStatus::Running;
            self.emit(EventType::ThreadResumed, |thread| {
                [("nodeId", json!(thread.graph().node(thread.at).id))]
            });
            self.look_around();
        }
    }

    fn triggered(&mut self, firing: FiringId, result: TriggeredResult) {
        match self.thread.held.iter().position(|held| *held == firing) {
            Some(place) => {
                self.thread.held.remove(place);
            }
            None if result.holds => self.thread.released.push(firing),
            None => {}
        }
        self.thread.arrived.push_back(SafePointWork::Triggered {
            firing,
            variables: result.variables,
            conversation: result.conversation,
        });
        self.look_around();
    }

    /// Something came that takes effect at a safe point: if the thread stands at one, it does now.
    fn look_around(&mut self) {
        match self.thread.run {
            NodeRun::SafePoint => self.safe_point(),
            NodeRun::Llm(ref stage) if stage.is_safe_point() => {
                if let Some(progress) = super::nodes::llm::safe_point(self) {
                    self.go_on(progress);
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, effect: EffectId, outcome: Outcome) {
        if self.thread.deadline == Some(effect) {
            self.thread.deadline = None;
            if matches!(outcome, Outcome::Elapsed) {
                self.drop_in_flight();
                let error = RunError::new(RunErrorCode::NodeTimeout, "the node did not end within its time limit");
                self.go_on(Progress::Failed(error));
            }
            return;
        }
        let run = std::mem::take(&mut self.thread.run);
        let progress = run.answer(self, effect, outcome);
        self.go_on(progress);
    }

    // ---- safe points

    /// The thread stands between two nodes and is about to enter `next`.
    fn arrive(&mut self, next: NodeIx) {
        self.thread.at = next;
        self.thread.attempt = 0;
        self.thread.prompted = false;
        self.safe_point();
    }

    fn safe_point(&mut self) {
        if let Some(wait) = self.settle() {
            self.thread.run = wait;
            return;
        }
        self.thread.run = NodeRun::SafePoint;
        if self.is_stopped() {
            return;
        }
        self.enter();
    }

    /// Applies what has arrived; asks about holds. What it still waits for, or none.
    fn settle(&mut self) -> Option<NodeRun> {
        if let Some((id, firing, variables)) = self.apply_arrived() {
            return Some(NodeRun::Merging { id, firing, variables });
        }
        if self.thread.unsettled {
            self.thread.unsettled = false;
            let id = self.next_effect();
            self.out.push(Effect::Announce { id, event: None });
            return Some(NodeRun::Settling { id });
        }
        None
    }

    /// Whether a firing holds the thread, or it is to pause.
    fn is_stopped(&mut self) -> bool {
        if !self.thread.held.is_empty() {
            return true;
        }
        if self.thread.pause {
            if self.thread.status == ThreadStatus::Running {
                self.thread.status = ThreadStatus::Paused;
                self.emit(EventType::ThreadPaused, |thread| {
                    [("nodeId", json!(thread.graph().node(thread.at).id))]
                });
            }
            return true;
        }
        false
    }

    pub(super) fn is_held(&self) -> bool {
        !self.thread.held.is_empty()
    }

    pub(super) fn hold(&mut self, firings: Vec<FiringId>) {
        for firing in firings {
            match self.thread.released.iter().position(|released| *released == firing) {
                Some(place) => {
                    self.thread.released.remove(place);
                }
                None => self.thread.held.push(firing),
            }
        }
    }

    /// Applies what has arrived, in order, up to what the conversation must answer first: that is returned.
    pub(super) fn apply_arrived(&mut self) -> Option<(EffectId, FiringId, Assignments)> {
        while let Some(work) = self.thread.arrived.pop_front() {
            match work {
                SafePointWork::Assign {
                    name,
                    value,
                    scope,
                    trigger_depth,
                } => self.assign_for_trigger(&name, value, scope, trigger_depth),
                SafePointWork::Triggered {
                    firing,
                    variables,
                    conversation: false,
                } => {
                    let error = self.take_variables(&variables).err();
                    self.out.push(Effect::Applied { firing, error });
                }
                SafePointWork::Triggered {
                    firing,
                    variables,
                    conversation: true,
                } => {
                    // The variables are checked first: all or nothing, and the conversation cannot be taken back.
                    if let Err(error) = self.thread.variables.clone().assign_all(&variables) {
                        self.out.push(Effect::Applied {
                            firing,
                            error: Some(error),
                        });
                        continue;
                    }
                    let id = self.next_effect();
                    self.out.push(Effect::Conversation {
                        id,
                        op: super::effect::ConversationOp::Merge(firing),
                    });
                    return Some((id, firing, variables));
                }
            }
        }
        None
    }

    fn assign_for_trigger(&mut self, name: &Arc<str>, value: Arc<Value>, scope: VariableScope, trigger_depth: u32) {
        let assigned = match scope {
            VariableScope::Global => {
                let effect = Effect::SetGlobal {
                    id: 0,
                    name: Arc::clone(name),
                    value: Arc::clone(&value),
                    readonly: false,
                };
                self.out.push(effect);
                Ok(value)
            }
            VariableScope::Thread => self.thread.variables.assign(name, value, false),
        };
        let event = match assigned {
            Ok(value) => RaisedEvent::new(
                EventType::VariableChanged,
                [
                    ("name", json!(name)),
                    ("value", (*value).clone()),
                    ("scope", json!(scope)),
                ],
            ),
            Err(error) => RaisedEvent::new(EventType::TriggerFailed, [("error", json!(error))]),
        };
        self.emit_raised(RaisedEvent { trigger_depth, ..event });
    }

    /// The conversation has taken in a firing's messages, or could not.
    pub(super) fn merged(&mut self, firing: FiringId, variables: &[(Arc<str>, Arc<Value>)], outcome: Outcome) {
        let error = match outcome {
            Outcome::Failed(error) => Some(error),
            _ => self.take_variables(variables).err(),
        };
        self.out.push(Effect::Applied { firing, error });
    }

    fn take_variables(&mut self, variables: &[(Arc<str>, Arc<Value>)]) -> Result<(), RunError> {
        self.thread.variables.assign_all(variables)?;
        for (name, value) in variables {
            self.variable_changed(name, value, VariableScope::Thread);
        }
        Ok(())
    }

    pub(super) fn variable_changed(&mut self, name: &Arc<str>, value: &Arc<Value>, scope: VariableScope) {
        self.emit(EventType::VariableChanged, |_| {
            [
                ("name", json!(name)),
                ("value", (**value).clone()),
                ("scope", json!(scope)),
            ]
        });
    }

    // ---- nodes

    /// Enters the node the thread stands before.
    fn enter(&mut self) {
        let at = self.thread.at;
        if self.thread.stop_at == Some(at) {
            let output = Arc::clone(&self.thread.last);
            self.end(ThreadStatus::Completed, output, None);
            return;
        }
        let limit = self.thread.graph().config.max_steps.unwrap_or(DEFAULT_MAX_STEPS);
        if self.thread.steps >= limit {
            let error = RunError::new(
                RunErrorCode::MaxStepsExceeded,
                format!("the thread entered {limit} nodes and has not ended"),
            );
            let error = self.located(error);
            self.end(ThreadStatus::Failed, Arc::new(Value::Null), Some(error));
            return;
        }
        self.thread.steps += 1;
        self.thread.history.push(NodeRecord {
            node: at,
            status: NodeStatus::Running,
            attempts: 1,
        });
        self.attempt();
    }

    /// Starts an attempt at the current node.
    pub(super) fn attempt(&mut self) {
        self.thread.attempt += 1;
        self.emit(EventType::NodeStarted, |thread| {
            let node = thread.graph().node(thread.at);
            [
                ("nodeId", json!(node.id)),
                ("nodeType", json!(node.kind.type_name())),
                ("attempt", json!(thread.attempt)),
            ]
        });
        if let Some(after_ms) = self.thread.graph().node(self.thread.at).timeout_ms {
            let id = self.next_effect();
            self.thread.deadline = Some(id);
            self.out.push(Effect::Timer { id, after_ms });
        }
        let progress = super::nodes::enter(self);
        self.go_on(progress);
    }

    /// Goes on until something must be waited for. Nodes that need nothing are passed here without recursion being
    /// deeper than one node: `maxSteps` bounds the loop.
    pub(super) fn go_on(&mut self, progress: Progress) {
        match progress {
            Progress::Wait(run) => self.thread.run = run,
            Progress::Done(output) => {
                self.complete(output);
                self.leave();
            }
            Progress::DoneAt(output, next) => {
                self.complete(output);
                self.arrive(next);
            }
            Progress::End(output) => {
                self.complete(Arc::clone(&output));
                self.end(ThreadStatus::Completed, output, None);
            }
            Progress::Chosen(next) => self.arrive(next),
            Progress::SafePoint => self.safe_point(),
            Progress::Retry => self.attempt(),
            Progress::Failed(error) => self.fail(error),
        }
    }

    /// The node ended well.
    fn complete(&mut self, output: Arc<Value>) {
        self.stop_deadline();
        let (at, attempts) = (self.thread.at, self.thread.attempt);
        if let Some(record) = self.thread.history.last_mut() {
            record.status = NodeStatus::Completed;
            record.attempts = attempts;
        }
        self.thread.outputs.set(at, Arc::clone(&output));
        self.thread.last = output;
        self.emit(EventType::NodeCompleted, |thread| {
            let node = thread.graph().node(at);
            [
                ("nodeId", json!(node.id)),
                ("nodeType", json!(node.kind.type_name())),
                ("attempts", json!(attempts)),
                ("output", (*thread.last).clone()),
            ]
        });
    }

    /// Chooses the way out of the current node.
    fn leave(&mut self) {
        let at = self.thread.at;
        let edges = &self.thread.graph().node(at).edges;
        match edges.first() {
            // The heaviest edge has no condition: no other can win.
            Some(edge) if edge.condition.is_none() => {
                let target = edge.target;
                self.arrive(target);
            }
            Some(_) => {
                let id = self.next_effect();
                self.out.push(Effect::Evaluate {
                    id,
                    node: at,
                    what: super::effect::Evaluation::Edges,
                });
                self.thread.run = NodeRun::Edges { id };
            }
            None => self.fail(no_edge()),
        }
    }

    /// An attempt failed: again, elsewhere, or the thread fails.
    fn fail(&mut self, error: RunError) {
        self.stop_deadline();
        let error = self.located(error);
        self.emit(EventType::NodeFailed, |thread| {
            let node = thread.graph().node(thread.at);
            [
                ("nodeId", json!(node.id)),
                ("nodeType", json!(node.kind.type_name())),
                ("attempt", json!(thread.attempt)),
                ("error", json!(error)),
            ]
        });
        if let Some(delay) = super::retry::delay(self.thread, &error, self.moment.random) {
            let id = self.next_effect();
            self.out.push(Effect::Timer { id, after_ms: delay });
            self.thread.run = NodeRun::RetryDelay { id };
            return;
        }
        let attempts = self.thread.attempt;
        if let Some(record) = self.thread.history.last_mut() {
            record.status = NodeStatus::Failed;
            record.attempts = attempts;
        }
        let at = self.thread.at;
        if let Some(target) = self.thread.graph().node(at).on_error {
            let output = Arc::new(json!({ "error": error }));
            self.thread.outputs.set(at, Arc::clone(&output));
            self.thread.last = output;
            self.arrive(target);
            return;
        }
        self.end(ThreadStatus::Failed, Arc::new(Value::Null), Some(error));
    }

    /// The error with the place it arose in, where it does not say yet.
    fn located(&self, mut error: RunError) -> RunError {
        let thread = &*self.thread;
        error
            .node_id
            .get_or_insert_with(|| thread.graph().node(thread.at).id.to_string());
        error.thread_id.get_or_insert_with(|| thread.thread_id.to_string());
        if error.path_id.is_none() {
            error.path_id = thread.path_id.as_ref().map(ToString::to_string);
        }
        error
    }

    fn stop_deadline(&mut self) {
        if let Some(id) = self.thread.deadline.take() {
            self.out.push(Effect::Drop { id });
        }
    }

    fn drop_in_flight(&mut self) {
        self.stop_deadline();
        let run = std::mem::take(&mut self.thread.run);
        run.abandon(self);
    }

    fn end(&mut self, status: ThreadStatus, output: Arc<Value>, error: Option<RunError>) {
        self.thread.status = status;
        self.thread.run = NodeRun::Idle;
        // What came too late to take effect is answered all the same.
        while let Some(work) = self.thread.arrived.pop_front() {
            if let SafePointWork::Triggered { firing, .. } = work {
                let error = RunError::new(
                    RunErrorCode::Cancelled,
                    "the thread ended before the result could take effect",
                );
                self.out.push(Effect::Applied {
                    firing,
                    error: Some(error),
                });
            }
        }
        let event_type = match status {
            ThreadStatus::Completed => EventType::ThreadCompleted,
            ThreadStatus::Cancelled => EventType::ThreadCancelled,
            ThreadStatus::Failed
            | ThreadStatus::Timeout
            | ThreadStatus::Created
            | ThreadStatus::Running
            | ThreadStatus::Paused => EventType::ThreadFailed,
        };
        self.emit(event_type, |thread| {
            [
                ("status", json!(status)),
                ("pathId", json!(thread.path_id)),
                ("output", (*output).clone()),
                ("error", json!(error)),
            ]
        });
        self.out.push(Effect::Ended(ThreadEnd { status, output, error }));
    }
}

pub(super) fn no_edge() -> RunError {
    RunError::new(RunErrorCode::NoEdgeSatisfied, "no edge out of the node is satisfied")
}

/// The variables a thread of this graph starts with; global ones belong to the run.
pub fn initial_variables(graph: &Graph, scope: VariableScope) -> Variables {
    let mut variables = Variables::default();
    for definition in graph.variables.iter().filter(|definition| definition.scope == scope) {
        variables.define(
            definition.name.as_str().into(),
            Variable {
                value: Arc::new(definition.value.clone()),
                variable_type: definition.variable_type,
                readonly: definition.readonly,
            },
        );
    }
    variables
}
