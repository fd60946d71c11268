//! State of a run, and its properties. `machine.rs` and the files that it calls change it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_conversation::conversation::{Conversation, LargeResults};
use pirn_conversation::model_call::CacheReport;
use pirn_definition::Millis;
use pirn_definition::definition::{Pinned, ToolDefinition};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::Graph;
use pirn_events::event::EventMask;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::data::branches::ForkRun;
use super::data::doubt::{DoubtReport, Doubts};
use super::data::message::{Message, ToThread};
use super::data::session::{RunSession, SessionSeed};
use super::data::summaries::{RunSummaryRules, SummaryRules};
use super::data::thread_state::{EffectBuffers, LiveThread, Slot};
use super::data::trigger::TriggerCalls;
use super::data::user_messages::UserMessages;
use super::parts::agents::AgentCounts;
use super::parts::firing::Firings;
use super::parts::globals::Globals;
use super::parts::graphs::Graphs;
use super::parts::ledger::Ledger;
use super::parts::mailbox::Mailbox;
use super::parts::memory::Memory;
use super::parts::quiescence::Termination;
use super::parts::tree::{Origin, Tree, TreeNode};
use super::{ForkNo, ThreadNo};
use crate::thread::{EffectId, ThreadId, ThreadKind};

/// Configuration and initial state of a new run.
#[derive(Clone, Debug)]
pub struct RunSeed {
    /// Id of the run.
    pub run_id: Arc<str>,
    /// Compiled workflow.
    pub graph: Arc<Graph>,
    /// Input of the workflow.
    pub input: Arc<Value>,
    /// Initial messages of the main thread's conversation.
    pub conversation: Conversation,
    /// Initial pinned context.
    pub pinned: Pinned,
    /// Metadata of the caller, passed to everything that the run calls.
    pub metadata: Option<Arc<Map<String, Value>>>,
    /// True if a token event started the run, directly or through another run: its token limit is not checked.
    pub is_unlimited: bool,
    /// Time limit of the main thread, in addition to the limit of its workflow.
    pub deadline_ms: Option<Millis>,
    /// Number of triggers in the chain from another run's step to this run.
    pub trigger_depth: u32,
    /// Seed of the random numbers for jitter; 0 disables jitter.
    pub seed: u64,
    /// True if an external scheduler picks the order of first steps: the run emits [`Effect::Begin`](super::Effect::Begin) for each new thread, and
    /// [`RunMachine::begin`] starts it.
    pub picks_starts: bool,
    /// True if a JOIN or MAP takes over every assignment of its branches and raises VARIABLE_CHANGED for it. False for a run
    /// that version 0.2.0 or an earlier one started: only changed values are taken over, without events.
    pub merges_assignments: bool,
    /// Memory limit in bytes, if the workflow sets none.
    pub run_bytes: u64,
    /// Session of the run. The run starts when it gets its turn there.
    pub session: Option<SessionSeed>,
    /// Tools that the run's client executes.
    pub client_tools: Option<Arc<Vec<ToolDefinition>>>,
    /// Rules for summaries.
    pub summaries: SummaryRules,
    /// Gaps before the starts of forks, if the run is one.
    pub gaps: Vec<ForkGap>,
}

/// Time between the last step that a fork shares with its base and the start of the fork. Time limits and the elapsed time of the
/// fork do not include the gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkGap {
    /// Time of the last shared step.
    pub from: Millis,
    /// Start of the fork. Its own steps have this time or a later one.
    pub to: Millis,
}

/// The gaps of a fork, in order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ForkGaps(pub(super) Vec<ForkGap>);

impl ForkGap {
    /// Returns the length of the gap's part before this time.
    pub fn until(self, now: Millis) -> Millis {
        now.min(self.to).saturating_sub(self.from)
    }
}

/// State of a run. `machine.rs` has the table of its messages.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunMachine {
    pub(super) run_id: Arc<str>,
    pub(super) started_at: Millis,
    /// Gaps before the starts of forks. Boxed because most runs are no forks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gaps: Option<Box<ForkGaps>>,
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) picks_starts: bool,
    #[serde(default)]
    pub(super) merges_assignments: bool,
    pub(super) graphs: Graphs,
    pub(super) tree: Tree,
    pub(super) slots: Vec<Slot>,
    pub(super) forks: BTreeMap<ForkNo, ForkRun>,
    pub(super) next_fork: ForkNo,
    pub(super) firings: Firings,
    pub(super) globals: Globals,
    /// Large tool results. Boxed because most runs have none.
    #[serde(default)]
    pub(super) results: Option<Box<LargeResults>>,
    /// Pinned context; `None` until a section is set.
    pub(super) pinned: Option<Box<Pinned>>,
    pub(super) mailbox: Mailbox,
    pub(super) quiescence: Termination,
    /// Conversation of the main thread, saved when its actor panicked.
    pub(super) salvaged: Option<Box<Conversation>>,
    pub(super) is_paused: bool,
    /// Time limit of the main thread, in addition to the limit of its workflow.
    #[serde(default)]
    pub(super) deadline_ms: Option<Millis>,
    /// Account of the bytes that the run allocates.
    pub(super) memory: Memory,
    /// Event types for which a WAIT node has waited.
    pub(super) awaited: EventMask,
    /// Number of messages taken.
    pub(super) steps: u64,
    /// Number of events raised.
    #[serde(default)]
    pub(super) events: u64,
    /// Effects that were in doubt after a crash. Boxed because few runs have any.
    #[serde(default)]
    pub(super) doubts: Option<Box<Doubts>>,
    /// Calls of the run's triggers. Boxed because few runs have any.
    #[serde(default)]
    pub(super) trigger_calls: Option<Box<TriggerCalls>>,
    /// Messages of people to the run. Boxed because few runs have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_messages: Option<Box<UserMessages>>,
    /// Rules for summaries.
    pub(super) summaries: RunSummaryRules,
    /// Use of the providers' prompt caches. Boxed because runs with offline models have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cache: Option<Box<CacheReport>>,
    /// Tools that the run's client executes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_tools: Option<Arc<Vec<ToolDefinition>>>,
    /// Session state, if the run belongs to a session.
    #[serde(default)]
    pub(super) session: Option<Box<RunSession>>,
    /// Budget accounts; `None` while no thread has a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) budget: Option<Box<Ledger>>,
    /// Agents that submitted workflows have started. Boxed because few runs have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agents: Option<Box<AgentCounts>>,
    /// The main thread after its end. Nothing reads it. It is dropped with the machine instead of at once, because freeing it takes
    /// long after a fork of many branches and the outcome would wait for it.
    #[serde(skip)]
    pub(super) remains: Option<Box<LiveThread>>,
    /// Allocation of a thread that ended, reused by the next thread.
    #[serde(skip)]
    pub(super) spare: Option<Box<LiveThread>>,
    #[serde(skip)]
    pub(super) buffers: EffectBuffers,
}

impl RunMachine {
    /// Returns the effects that were in doubt after a crash.
    pub(super) fn doubts(&self) -> &[DoubtReport] {
        self.doubts.as_ref().map_or(&[], |doubts| &doubts.0)
    }

    /// Returns the gaps before the starts of forks, in order.
    pub(super) fn gaps(&self) -> &[ForkGap] {
        self.gaps.as_ref().map_or(&[], |gaps| &gaps.0)
    }

    /// Returns a time without the gaps of forks before it: differences of such times are durations in the run.
    pub fn without_gaps(&self, at: Millis) -> Millis {
        let gaps = self.gaps().iter();
        gaps.fold(at, |time, gap| time.saturating_sub(gap.until(at)))
    }

    /// Returns the number of messages taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns true if a WAIT node of the run has waited for events of this type.
    pub fn awaits(&self, event_type: EventType) -> bool {
        self.awaited.contains(event_type)
    }

    /// Returns true if the run has settled: nothing can happen in it.
    pub fn has_ended(&self) -> bool {
        self.quiescence.is_settled()
    }

    /// Returns true if no message is queued.
    pub fn is_idle(&self) -> bool {
        self.mailbox.is_empty()
    }

    /// Returns the id of the run.
    pub fn run_id(&self) -> &Arc<str> {
        &self.run_id
    }

    /// Returns the number of threads started.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Returns true if no thread was started. Never true: the main thread starts with the run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the thread with this id.
    pub fn thread_of(&self, thread_id: &str) -> Option<ThreadNo> {
        let thread = ThreadId::number(&self.run_id, thread_id)?;
        // The id is parsed from a string that may come from outside: it may name a thread that was never started.
        ((thread as usize) < self.tree.len()).then_some(thread)
    }

    /// Returns the origin of a thread and the workflow that it walks.
    pub fn origin(&self, thread: ThreadNo) -> Option<(Origin, &Arc<Graph>)> {
        let at = self.tree.get(thread)?;
        Some((at.origin, self.graphs.get(at.graph)))
    }

    /// Returns the thread for which a thread runs; `None` for the main thread.
    pub fn parent(&self, thread: ThreadNo) -> Option<ThreadNo> {
        self.tree.get(thread)?.parent
    }

    /// Returns the thread that waits at a fork, and the effect that it awaits.
    pub fn fork_parent(&self, fork: ForkNo) -> Option<(ThreadNo, EffectId)> {
        self.forks.get(&fork).map(|run| (run.parent, run.effect))
    }

    /// Returns the time limit of a thread. A branch has none: the limit of the thread that forked it applies.
    pub(super) fn time_limit(&self, at: &TreeNode) -> Option<Millis> {
        let own = self.graphs.get(at.graph).config.timeout_ms;
        // The main thread suffices: its end cancels everything that it started, except what a JOIN detached.
        let of_run = self.deadline_ms.filter(|_| at.kind == ThreadKind::Main);
        let limits = [own, of_run].into_iter().flatten();
        limits
            .filter(|after_ms| *after_ms > 0 && !matches!(at.origin, Origin::Branch { .. }))
            .min()
    }

    /// Sends a message to a thread; dropped if the thread has ended.
    pub(super) fn send(&mut self, thread: ThreadNo, message: ToThread) {
        if self.tree.is_live(thread) {
            self.mailbox.send(Message::Thread(thread, message));
        }
    }

    pub(super) fn graph_of(&self, thread: ThreadNo) -> &Arc<Graph> {
        // Index 0 always exists: `new` adds the workflow of the main thread first.
        let graph = self.tree.get(thread).map_or(0, |at| at.graph);
        self.graphs.get(graph)
    }

    pub(super) fn path_id(&self, thread: ThreadNo) -> Option<Arc<str>> {
        self.tree.get(thread)?.origin.path_id(self.graph_of(thread))
    }
}
