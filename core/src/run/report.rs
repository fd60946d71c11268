//! The report of a run that has ended.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::doubt::{DoubtReport, RepeatReport};
use super::messages::Messages;
use super::thread_list::ThreadList;
use crate::conversation::{Conversation, MarkMap, Spent};
use crate::error::RunError;
use crate::model_call::FinishReason;
use crate::status::ThreadStatus;
use crate::thread::{NodeStatus, ThreadKind};

/// A run's result: what `pirn run --output json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// Names the run.
    pub run_id: String,
    /// The main thread.
    pub thread_id: String,
    /// Its workflow.
    pub workflow_id: String,
    /// The session that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The status of the main thread.
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
    /// The tokens that it costs and cost.
    pub tokens: TokenReport,
    /// The same tokens, by node and by path.
    #[serde(default, skip_serializing_if = "UsageReport::is_nothing")]
    pub usage: UsageReport,
    /// The budget of its workflow, and how much of it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetReport>,
    /// The nodes the main thread entered, in order.
    pub nodes: Vec<NodeReport>,
    /// Every thread of the run, in the order they were started.
    pub threads: ThreadList,
    /// The firings of triggers, one record each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firings: Vec<FiringReport>,
    /// Effects that had begun and had no outcome when a process of the run ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<DoubtReport>,
    /// Those of them that were done once more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<RepeatReport>,
    /// From start to the main thread's end, on the host's clock.
    pub elapsed_ms: u64,
}

impl RunReport {
    /// The report of a run that nothing is known of but how it stands, and why.
    pub fn unknown(run_id: &str, status: ThreadStatus, error: RunError) -> Self {
        Self {
            run_id: run_id.to_owned(),
            thread_id: format!("{run_id}.0"),
            workflow_id: String::new(),
            session: None,
            status,
            output: Value::Null,
            variables: BTreeMap::new(),
            error: Some(error),
            conversation: ConversationReport::default(),
            tokens: TokenReport::default(),
            usage: UsageReport::default(),
            budget: None,
            nodes: Vec::new(),
            threads: ThreadList::default(),
            firings: Vec::new(),
            in_doubt: Vec::new(),
            repeated: Vec::new(),
            elapsed_ms: 0,
        }
    }
}

/// A conversation in a report.
///
/// As JSON a run of a session has the messages that it added, and the marks of the current batch: what was said before is in the
/// session, and a report does not grow with it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationReport {
    /// Place in the complete history of the first message that is written as JSON: so many came from the session.
    #[serde(default)]
    pub from: usize,
    /// Every message, archived ones too.
    pub messages: Messages,
    /// Which are visible.
    pub mark_map: MarkMap,
}

impl ConversationReport {
    /// `in_session`: the session has the messages that the run began with.
    pub(super) fn of(conversation: &Conversation, in_session: bool) -> Self {
        let from = if in_session { conversation.inherited() } else { 0 };
        Self {
            from,
            messages: Messages::of(conversation, from),
            mark_map: conversation.mark_map().clone(),
        }
    }
}

impl Serialize for ConversationReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Written<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            from: Option<usize>,
            messages: &'a Messages,
            mark_map: Cow<'a, MarkMap>,
        }
        let from = Some(self.from).filter(|from| *from > 0);
        let written = Written {
            from,
            messages: &self.messages,
            mark_map: match from {
                Some(_) => Cow::Owned(self.mark_map.of_current_batch()),
                None => Cow::Borrowed(&self.mark_map),
            },
        };
        written.serialize(serializer)
    }
}

/// Tokens in a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenReport {
    /// The tokens of the visible messages.
    pub context: u64,
    /// The tokens that providers reported, children included.
    pub spent: Spent,
}

/// The tokens of a run, taken apart. Each list but `paths` adds up to the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    /// By the node that called the model, in whichever threads.
    pub nodes: Vec<NodeUsage>,
    /// By path of a fork, with everything that its threads started; nested paths count for the outer one too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathUsage>,
}

impl UsageReport {
    /// True if no call has cost anything.
    pub fn is_nothing(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// The tokens of a node's model calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUsage {
    /// The node's workflow.
    pub workflow_id: Arc<str>,
    /// The user's id.
    pub node_id: Arc<str>,
    /// Its tokens.
    pub usage: Spent,
}

/// The tokens of a fork's path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathUsage {
    /// The fork's workflow.
    pub workflow_id: Arc<str>,
    /// The user's id.
    pub path_id: Arc<str>,
    /// Its tokens.
    pub usage: Spent,
}

/// A budget in a report: the figures that it limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetReport {
    /// Tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<BudgetFigure>,
    /// Money, in the currency of the profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<BudgetFigure>,
    /// Calls of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<BudgetFigure>,
}

/// A limit, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetFigure {
    /// The limit.
    pub limit: Value,
    /// The part of it that calls have used, or may have.
    pub used: Value,
}

/// A node in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// The user's id.
    pub node_id: Arc<str>,
    /// Its status.
    pub status: NodeStatus,
    /// The number of attempts.
    pub attempts: u32,
    /// Why the last reply of an LLM node's model ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
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
    /// Its kind.
    pub kind: ThreadKind,
    /// Its workflow.
    pub workflow_id: Arc<str>,
    /// The user's id of its fork path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_id: Option<Arc<str>>,
    /// Its final or present status.
    pub status: ThreadStatus,
    /// The tokens of its own model calls.
    #[serde(default, skip_serializing_if = "Spent::is_nothing")]
    pub usage: Spent,
    /// Those and the tokens of everything it started, where that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_with_started: Option<Spent>,
}

/// One firing of a trigger that started a sub-workflow.
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
    /// The end of the sub-workflow or the detached run; none while it runs, and where it never began.
    pub status: Option<ThreadStatus>,
    /// The outcome of the firing.
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

/// The outcome of a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FiringOutcome {
    /// It waits for its thread, or runs: a detached run may outlive the run that started it.
    Open,
    /// The result that it handed back has taken effect.
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

/// The state of a run while it runs.
#[derive(Clone, Debug)]
pub struct RunStatus {
    /// The main thread's status.
    pub status: ThreadStatus,
    /// Every thread so far.
    pub threads: Vec<ThreadReport>,
}
