//! Report of a run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_conversation::conversation::{Conversation, MarkMap, TokenUsage};
use pirn_conversation::model_call::{CacheReport, FinishReason};
use pirn_definition::error::RunError;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::doubt::{DoubtReport, RepeatReport};
use super::messages::Messages;
use super::thread_list::{ThreadList, ThreadReport};
use super::user_messages::UserMessage;
use crate::status::ThreadStatus;
use crate::thread::NodeStatus;

/// Result of a run. `pirn run --output json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// Id of the run.
    pub run_id: String,
    /// Id of the main thread.
    pub thread_id: String,
    /// Id of the main thread's workflow.
    pub workflow_id: String,
    /// Id of the run's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Status of the main thread.
    pub status: ThreadStatus,
    /// Output of the main thread; null if it did not complete.
    pub output: Value,
    /// Variables of the main thread, and the run's global ones.
    pub variables: BTreeMap<String, Value>,
    /// Error, if the main thread did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Complete conversation of the main thread.
    pub conversation: ConversationReport,
    /// Tokens in the conversation, and tokens used.
    pub tokens: TokenReport,
    /// Used tokens by node and by path.
    #[serde(default, skip_serializing_if = "UsageReport::is_nothing")]
    pub usage: UsageReport,
    /// Budget of the workflow, with the amounts used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Boxed: see `UsageReport::cache`.
    pub budget: Option<Box<BudgetReport>>,
    /// Nodes that the main thread entered, in order.
    pub nodes: Vec<NodeReport>,
    /// All threads of the run, in start order.
    pub threads: ThreadList,
    /// Firings of triggers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firings: Vec<FiringReport>,
    /// Messages of people that are not in the conversation: they wait, or the run ended first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_messages: Vec<UserMessage>,
    /// Effects that had started and had no outcome when a process of the run ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<DoubtReport>,
    /// Effects in doubt that were performed again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<RepeatReport>,
    /// Time from the start to the main thread's end, by the host's clock, in milliseconds.
    pub elapsed_ms: u64,
}

impl RunReport {
    /// Creates the report of a run of which only the status and the error are available.
    pub fn unknown(run_id: &str, status: ThreadStatus, error: RunError) -> Self {
        Self {
            run_id: run_id.to_owned(),
            // The main thread has number 0 in every run, so its id needs no record of the run.
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
            waiting_messages: Vec::new(),
            in_doubt: Vec::new(),
            repeated: Vec::new(),
            elapsed_ms: 0,
        }
    }
}

/// A conversation in a report.
///
/// The JSON form of a run in a session has only the messages that the run added, and the marks of the current batch. The session
/// has the earlier messages, so that the size of a report does not grow with the session.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationReport {
    /// Index in the complete history of the first message in the JSON form: the number of messages from the session.
    #[serde(default)]
    pub from: usize,
    /// Every message, including archived ones.
    pub messages: Messages,
    /// Marks, which determine the visible messages.
    pub mark_map: MarkMap,
}

impl ConversationReport {
    /// Creates the report of a conversation. `in_session`: the session has the initial messages of the run.
    pub(in crate::run) fn of(conversation: &Conversation, in_session: bool) -> Self {
        // A fork of a session inherits messages too, but its report lists all of them (`RunMachine::session_id`).
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
        // Written for sessions only: a report without `from` has the complete history.
        let from = Some(self.from).filter(|from| *from > 0);
        let written = Written {
            from,
            messages: &self.messages,
            mark_map: match from {
                // The session has the marks of earlier batches. Their number grows with the session.
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
    /// Tokens of the visible messages.
    pub context: u64,
    /// Tokens that providers reported, including those of children.
    pub spent: TokenUsage,
}

/// Token usage of a run by node and path. The sum over `nodes` is the total; `paths` overlap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    /// Usage by the node that called the model, over all threads.
    pub nodes: Vec<NodeUsage>,
    /// Usage by path of a fork, including everything that its threads started. Nested paths count for the outer path too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathUsage>,
    /// Use of the providers' prompt caches, if replies reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Boxed: with it inline, a report in its `Arc` exceeds 1,000 bytes. From there on, glibc merges all of its free blocks before
    // each allocation.
    pub cache: Option<Box<CacheReport>>,
}

impl UsageReport {
    /// Returns true if no call used any tokens.
    pub fn is_nothing(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// The tokens of a node's model calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUsage {
    /// Id of the node's workflow.
    pub workflow_id: Arc<str>,
    /// Id of the node.
    pub node_id: Arc<str>,
    /// Usage of the node.
    pub usage: TokenUsage,
}

/// The tokens of a fork's path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathUsage {
    /// Id of the fork's workflow.
    pub workflow_id: Arc<str>,
    /// Id of the path.
    pub path_id: Arc<str>,
    /// Usage of the path.
    pub usage: TokenUsage,
}

/// A budget in a report: the figures that it limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetReport {
    /// Tokens, if limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<BudgetFigure>,
    /// Cost in the currency of the profiles, if limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<BudgetFigure>,
    /// Number of model calls, if limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<BudgetFigure>,
}

/// A limit with the amount used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetFigure {
    /// Configured limit.
    pub limit: Value,
    /// Amount that calls used. A call without reported usage counts with its maximum.
    pub used: Value,
}

/// A node in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Id of the node.
    pub node_id: Arc<str>,
    /// Status of the node.
    pub status: NodeStatus,
    /// Number of attempts.
    pub attempts: u32,
    /// Reason that the last reply of an LLM node's model ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Firing whose sub-workflow contains the node (`mergeHistory: true`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing: Option<u64>,
}

/// A firing of a trigger that started a sub-workflow or a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FiringReport {
    /// Number of the firing.
    pub firing: u64,
    /// Id of the trigger.
    pub trigger_id: String,
    /// Id of the thread that raised the event.
    pub main_thread_id: String,
    /// Id of that thread's node at the time.
    pub current_node_id: Option<String>,
    /// Id of the next node, if there is exactly one.
    pub next_node_id: Option<String>,
    /// Time of the event, in milliseconds.
    pub timestamp: u64,
    /// Id of the sub-workflow's thread.
    pub thread_id: String,
    /// Final status of the sub-workflow or the detached run; `None` while it runs or if it never started.
    pub status: Option<ThreadStatus>,
    /// Outcome of the firing.
    pub outcome: FiringOutcome,
    /// Number of further firings of this trigger that were dropped because this one was queued or running.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub coalesced: u64,
    /// Error, if the firing failed or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Warnings of the summaries that the sub-workflow wrote, each `{code, message, text?}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Value>,
    /// Nodes that the sub-workflow entered; empty with `recordHistory: false`.
    pub nodes: Vec<NodeReport>,
}

/// The outcome of a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FiringOutcome {
    /// Queued or running. A detached run may outlive the run that started it.
    Open,
    /// The result has taken effect.
    Completed,
    /// Failed; the thread continued unchanged.
    Failed,
    /// Never started: the thread had ended, or too many firings were queued for it.
    Refused,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Status of a run while it runs.
#[derive(Clone, Debug)]
pub struct RunStatus {
    /// Status of the main thread.
    pub status: ThreadStatus,
    /// All threads started so far.
    pub threads: Vec<ThreadReport>,
    /// Messages of people that are not in the conversation yet.
    pub waiting_messages: Vec<UserMessage>,
}
