//! State of a thread in its run: not started, live with its conversation, or ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pirn_conversation::conversation::compression::SummaryPlan;
use pirn_conversation::conversation::{Basis, Conversation, ConversationMachine, TokenLimit};
use pirn_definition::definition::AgentConfig;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::Graph;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::last_request::{LastRequest, Requests};
use super::message::{ConversationSource, FinalThreadState, Merge, ThreadResult};
use crate::run::ThreadNo;
use crate::run::parts::tree::Origin;
use crate::status::ThreadStatus;
use crate::thread;
use crate::thread::{
    EffectId, FiringId, NodeRecord, Output, Outputs, ThreadEnd, ThreadId, ThreadKind, ThreadMachine, ThreadSeed,
    Variables, thread_variables,
};

/// State of a thread by its phase.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) enum Slot {
    /// Thread that has received no message. Contains the initial state; that of a branch is stored in its fork.
    NotStarted(Option<Box<InitialState>>),
    Live(Box<LiveThread>),
    Ended(Box<ThreadResult>),
}

/// Initial state of a thread that is not a branch.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct InitialState {
    #[serde(skip)]
    pub(in crate::run) graph: Option<Arc<Graph>>,
    pub(in crate::run) kind: ThreadKind,
    pub(in crate::run) origin: Origin,
    pub(in crate::run) input: Arc<Value>,
    pub(in crate::run) variables: Variables,
    pub(in crate::run) conversation: ConversationSource,
    pub(in crate::run) agent: Option<AgentConfig>,
    pub(in crate::run) depth: u32,
    pub(in crate::run) trigger_depth: u32,
    pub(in crate::run) is_unlimited: bool,
    pub(in crate::run) is_detached: bool,
    /// Last request to the conversation's model, if the thread continues an existing conversation.
    #[serde(default)]
    pub(in crate::run) asked: Option<Box<LastRequest>>,
}

impl InitialState {
    /// Creates the initial state of a thread that walks `graph` from its start node, with the variables of the workflow.
    pub(in crate::run) fn of(graph: Arc<Graph>, kind: ThreadKind, origin: Origin, input: Arc<Value>) -> Self {
        Self {
            variables: thread_variables(&graph),
            graph: Some(graph),
            kind,
            origin,
            input,
            conversation: ConversationSource::Snapshot(Conversation::new()),
            agent: None,
            depth: 0,
            trigger_depth: 0,
            is_unlimited: false,
            is_detached: false,
            asked: None,
        }
    }

    /// Converts to the seed of the thread and its conversation. Returns `None` if the workflow is not attached yet.
    pub(in crate::run) fn into_seed(self, thread_id: ThreadId) -> Option<(Arc<Graph>, ThreadSeed, ConversationSource)> {
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
        Some((graph, seed, self.conversation))
    }
}

/// State of a thread that has started or received a message.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct LiveThread {
    pub(in crate::run) machine: ThreadMachine,
    pub(in crate::run) speech: ConversationSlot,
    /// Effect that the supervisor performs for the thread. Further ones are in [`RareFields`].
    pub(in crate::run) supervised: Option<EffectId>,
    /// True after a panic: all further messages are dropped.
    pub(in crate::run) has_panicked: bool,
    /// True if the starter of the thread uses its remaining state.
    pub(in crate::run) keeps_artifacts: bool,
    pub(in crate::run) rare: Option<Box<RareFields>>,
}

/// Fields that few threads have.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct RareFields {
    pub(in crate::run) merges: BTreeMap<FiringId, Box<Merge>>,
    /// Effects that the supervisor performs for the thread, in addition to [`LiveThread::supervised`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(in crate::run) supervised: BTreeSet<EffectId>,
    /// Effects that exceeded the limit of the last turn.
    pub(in crate::run) left_over: VecDeque<thread::Effect>,
}

impl LiveThread {
    /// Returns the conversation that the thread owns; `None` if it uses another thread's, or if it was lost.
    pub(in crate::run) fn conversation(&self) -> Option<&Conversation> {
        match &self.speech {
            ConversationSlot::Own(own) => Some(own.machine.conversation()),
            ConversationSlot::Shared(_) | ConversationSlot::Lost => None,
        }
    }

    /// Replaces the conversation of a thread that has not started.
    pub(in crate::run) fn begin_with(&mut self, conversation: Conversation) {
        if let ConversationSlot::Own(own) = &mut self.speech {
            // The creation of the thread has determined the limit. Only the messages come from the session.
            *own = ConversationState::new(conversation, own.machine.token_limit());
        }
    }

    #[allow(clippy::inline_always)] // a thread is created in its final place, without a copy
    #[inline(always)]
    pub(in crate::run) fn new(machine: ThreadMachine, speech: ConversationSlot, keeps_artifacts: bool) -> Self {
        Self {
            machine,
            speech,
            supervised: None,
            has_panicked: false,
            keeps_artifacts,
            rare: None,
        }
    }

    /// Records that the supervisor performs an effect of the thread.
    pub(in crate::run) fn supervise(&mut self, effect: EffectId) {
        // Most threads have one such effect at a time.
        match self.supervised {
            None => self.supervised = Some(effect),
            Some(_) => drop(self.rare.get_or_insert_default().supervised.insert(effect)),
        }
    }

    /// Removes an effect that was answered or cancelled. Returns false if the supervisor does not perform it.
    pub(in crate::run) fn unsupervise(&mut self, effect: EffectId) -> bool {
        if self.supervised == Some(effect) {
            self.supervised = None;
            return true;
        }
        self.rare.as_mut().is_some_and(|rare| rare.supervised.remove(&effect))
    }

    /// Returns the owner of the conversation that this thread uses.
    pub(in crate::run) fn speaks_in(&self, own: ThreadNo) -> ThreadNo {
        match self.speech {
            ConversationSlot::Own(_) | ConversationSlot::Lost => own,
            ConversationSlot::Shared(owner) => owner,
        }
    }

    /// Ends the thread after its actor panicked, with the history so far. The history is append-only, so that it is valid even if
    /// the panic interrupted a step.
    pub(in crate::run) fn panicked(&mut self, message: &str) -> ThreadResult {
        self.has_panicked = true;
        let history = self.machine.take_broken_history();
        let mut error = panicked(message);
        error.thread_id = Some(Arc::clone(self.machine.thread_id()));
        error.path_id = self.machine.path_id().cloned();
        error.node_id = Some(Arc::clone(&self.machine.graph().node(self.machine.node()).id));
        let end = ThreadEnd {
            status: ThreadStatus::Failed,
            output: Output::default(),
            error: Some(error),
        };
        self.ended(end, history, true)
    }

    pub(in crate::run) fn ended(&mut self, end: ThreadEnd, history: Vec<NodeRecord>, panicked: bool) -> ThreadResult {
        ThreadResult {
            end,
            spent: self.machine.spent().clone(),
            panicked,
            artifacts: self.keeps_artifacts.then(|| {
                Box::new(FinalThreadState {
                    variables: self.machine.variables().clone(),
                    history,
                    node: self.machine.node(),
                    // The conversation adds itself when it forwards the end, so that it contains all earlier operations.
                    conversation: None,
                    warnings: Vec::new(),
                })
            }),
        }
    }
}

/// Returns the error of a thread whose actor panicked.
pub(in crate::run) fn panicked(message: &str) -> RunError {
    let message = format!("the thread's actor panicked: {message}");
    RunError::new(RunErrorCode::ActorPanicked, message)
}

/// Conversation of a thread.
#[allow(clippy::large_enum_variant)] // most threads have one of their own: it is where they are
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) enum ConversationSlot {
    /// Owned by the thread.
    Own(ConversationState),
    /// Owned by another thread.
    Shared(ThreadNo),
    /// Was owned by the thread; its actor panicked.
    Lost,
}

/// A conversation with its compression and request state.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct ConversationState {
    pub(in crate::run) machine: ConversationMachine,
    /// Summary that a model is writing.
    pub(in crate::run) summary: Option<Box<PendingSummary>>,
    /// Requests sent to the conversation's model.
    #[serde(default)]
    pub(in crate::run) requests: Option<Box<Requests>>,
}

impl ConversationState {
    pub(in crate::run) fn new(conversation: Conversation, token_limit: TokenLimit) -> Self {
        Self {
            machine: ConversationMachine::new(conversation, token_limit),
            summary: None,
            requests: None,
        }
    }
}

/// Summary that a model is writing.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct PendingSummary {
    pub(in crate::run) plan: SummaryPlan,
    /// Version of the conversation that is summarized.
    pub(in crate::run) basis: Basis,
    /// Profile of the model; `None` for that of the node.
    pub(in crate::run) profile_id: Option<Arc<str>>,
    /// Text that lacks statements, while the model adds them.
    pub(in crate::run) first: Option<String>,
}

/// Buffers for effects: a queue of those to perform, and the output of the current step. Shared by all threads of a host, one turn
/// at a time.
#[derive(Debug, Default)]
pub struct EffectBuffers {
    pub(in crate::run) queue: VecDeque<thread::Effect>,
    pub(in crate::run) out: Vec<thread::Effect>,
}
