//! What the actors of one run share on their arbiter, and what a run says of itself.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pirn_core::conversation::{Conversation, MarkMap, Spent, Tokenizer};
use pirn_core::definition::Pinned;
use pirn_core::error::RunError;
use pirn_core::event::{EventMask, EventType, RaisedEvent};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{Effect, Moment, NodeStatus, ThreadKind, Variables};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{EngineShared, Local};
use crate::events::{BusMsg, Source};
use crate::host::Host;
use crate::line::{BusLine, SupervisorLine};
use crate::messages::Messages;
use crate::thread_list::ThreadList;
use crate::waits::Ticket;

/// A run's supervisor. An address of its own costs every holder two allocations; whoever holds one here shares it.
pub(crate) type SupervisorAddr = Arc<SupervisorLine>;

/// A tokenizer, and what a workflow calls it.
type NamedTokenizer = (Option<String>, Arc<dyn Tokenizer>);

/// Shared by the actors of one run; never leaves their thread.
pub(crate) struct RunShared {
    pub(crate) engine: Arc<EngineShared>,
    pub(crate) host: Host,
    pub(crate) run_id: Arc<str>,
    pub(crate) local: Local,
    pub(crate) globals: RefCell<Variables>,
    pub(crate) pinned: RefCell<Pinned>,
    /// By the name that a workflow gives, see [`Self::tokenizer`].
    pub(crate) tokenizers: RefCell<Vec<NamedTokenizer>>,
    pub(crate) supervisor: SupervisorAddr,
    /// Event types that a WAIT node of this run listens for.
    pub(crate) awaited: Cell<EventMask>,
    pub(crate) next_wait: Cell<Ticket>,
    /// Whether the bus was told anything of this run.
    pub(crate) is_on_bus: Cell<bool>,
    /// What threads have said of firings and their supervisor has not heard yet: a thread's end comes after it.
    pub(crate) unheard: Cell<u32>,
    /// Something was raised that a trigger may watch for, and the matcher was not heard out since.
    pub(crate) is_watched: Cell<bool>,
}

/// Effects to carry out, and those a step has just asked for: lent to whichever thread of an arbiter takes its turn.
#[derive(Default)]
pub(crate) struct EffectBuffers {
    pub(crate) queue: VecDeque<Effect>,
    pub(crate) out: Vec<Effect>,
}

impl RunShared {
    /// The tokenizer of this name, asked for once a run: a fork whose branches all speak does not make one for each.
    pub(crate) fn tokenizer(&self, name: Option<&str>) -> Arc<dyn Tokenizer> {
        // A run has few workflows, most one.
        let known = |known: &&NamedTokenizer| known.0.as_deref() == name;
        if let Some((_, tokenizer)) = self.tokenizers.borrow().iter().find(known) {
            return Arc::clone(tokenizer);
        }
        let tokenizer = (self.engine.ports.tokenizer)(name);
        let mut tokenizers = self.tokenizers.borrow_mut();
        tokenizers.reserve_exact(1);
        tokenizers.push((name.map(str::to_owned), Arc::clone(&tokenizer)));
        tokenizer
    }

    /// The world as a machine of this run sees it now.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            random: self.host.random(),
            interest: self.interest(),
            holding: self.engine.interest.holding(),
        }
    }

    fn interest(&self) -> EventMask {
        self.engine.interest.listening().union(self.awaited.get())
    }

    /// Whether somebody listens to events of this type.
    pub(crate) fn listens(&self, event_type: EventType) -> bool {
        self.interest().contains(event_type)
    }

    /// The bus, to be told something of this run: then it is told of the run's end too.
    pub(crate) fn bus(&self) -> &BusLine {
        self.is_on_bus.set(true);
        &self.engine.bus
    }

    /// Whether the bus knows of this run or may: it has kept something of it, or somebody asked for its events.
    pub(crate) fn may_be_on_bus(&self) -> bool {
        self.is_on_bus.get() || self.engine.interest.is_in_one_run()
    }

    /// Tells the bus what happened in a thread.
    pub(crate) fn emit(&self, workflow_id: &Arc<str>, thread_id: &Arc<str>, raised: RaisedEvent) {
        let types = EventMask::of(raised.event_type);
        self.tell_bus(types, workflow_id, thread_id, |source| BusMsg::Raise {
            follows: false,
            source,
            raised,
        });
    }

    /// The same for events that came together.
    pub(crate) fn emit_all(
        &self,
        types: EventMask,
        workflow_id: &Arc<str>,
        thread_id: &Arc<str>,
        raised: Vec<RaisedEvent>,
    ) {
        self.tell_bus(types, workflow_id, thread_id, |source| BusMsg::RaiseAll {
            source,
            raised,
        });
    }

    fn tell_bus(
        &self,
        types: EventMask,
        workflow_id: &Arc<str>,
        thread_id: &Arc<str>,
        message: impl FnOnce(Source) -> BusMsg,
    ) {
        if self.engine.interest.triggers().intersects(types) {
            self.is_watched.set(true);
        }
        let source = Source {
            run_id: Arc::clone(&self.run_id),
            workflow_id: Arc::clone(workflow_id),
            thread_id: Arc::clone(thread_id),
            timestamp: self.host.wall_clock(),
        };
        self.bus().do_send(message(source));
    }
}

/// A run's result: what `pirn run --output json` prints (SPEC section 8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// Names the run.
    pub run_id: String,
    /// The main thread.
    pub thread_id: String,
    /// Its workflow.
    pub workflow_id: String,
    /// How the main thread ended.
    pub status: ThreadStatus,
    /// Its output; null where it did not complete.
    pub output: Value,
    /// Its variables, the run's global ones included.
    pub variables: BTreeMap<String, Value>,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Its conversation, complete.
    pub conversation: ConversationReport,
    /// What it costs and cost.
    pub tokens: TokenReport,
    /// The nodes the main thread entered, in order.
    pub nodes: Vec<NodeReport>,
    /// Every thread of the run, in the order they were started.
    pub threads: ThreadList,
    /// What triggers started, one record a firing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firings: Vec<FiringReport>,
    /// From start to the main thread's end, on the host's clock.
    pub elapsed_ms: u64,
}

/// A conversation in a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationReport {
    /// Every message, archived ones too.
    pub messages: Messages,
    /// Which are visible.
    pub mark_map: MarkMap,
}

impl ConversationReport {
    pub(crate) fn of(conversation: &Conversation) -> Self {
        Self {
            messages: Messages::of(conversation),
            mark_map: conversation.mark_map().clone(),
        }
    }
}

/// Tokens in a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenReport {
    /// What the visible messages cost.
    pub context: u64,
    /// What providers reported, children included.
    pub spent: Spent,
}

/// A node in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// The user's id.
    pub node_id: Arc<str>,
    /// How it went.
    pub status: NodeStatus,
    /// How often it was tried.
    pub attempts: u32,
    /// The firing whose sub-workflow it belongs to (`mergeHistory: true`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing: Option<u64>,
}

/// A thread in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadReport {
    /// Unique in the run.
    pub thread_id: Arc<str>,
    /// How it came to be.
    pub kind: ThreadKind,
    /// Its workflow.
    pub workflow_id: Arc<str>,
    /// The user's id of its fork path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_id: Option<Arc<str>>,
    /// How it ended, or where it is.
    pub status: ThreadStatus,
}

/// One firing of a trigger that started a sub-workflow (SPEC section 6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FiringReport {
    /// Names it.
    pub firing: u64,
    /// The trigger.
    pub trigger_id: String,
    /// The thread that raised the event.
    pub main_thread_id: String,
    /// The node it was in.
    pub current_node_id: Option<String>,
    /// The node after that, where it is known.
    pub next_node_id: Option<String>,
    /// When, as in events.
    pub timestamp: u64,
    /// The sub-workflow's thread.
    pub thread_id: String,
    /// How the sub-workflow or the detached run ended; none while it runs, and where it never began.
    pub status: Option<ThreadStatus>,
    /// What came of the firing.
    pub outcome: FiringOutcome,
    /// Firings of the same trigger that were not started because this one was queued or running.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub coalesced: u64,
    /// Why it failed or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The nodes it entered; empty under `recordHistory: false`.
    pub nodes: Vec<NodeReport>,
}

/// What came of a firing (SPEC section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FiringOutcome {
    /// It waits for its thread, or runs: a detached run may outlive the run that started it.
    Open,
    /// What it handed back has taken effect.
    Completed,
    /// It failed; the thread went on unchanged.
    Failed,
    /// It was never started: the thread had ended, or too many triggers waited for it.
    Refused,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(count: &u64) -> bool {
    *count == 0
}
