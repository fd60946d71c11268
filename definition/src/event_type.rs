//! The types of events, which triggers and WAIT nodes of a workflow name.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Fields of every event. `eventName` and `triggerDepth` may be absent.
pub const EVENT_FIELDS: [&str; 8] = [
    "type",
    "sequence",
    "timestamp",
    "runId",
    "workflowId",
    "threadId",
    "eventName",
    "triggerDepth",
];

macro_rules! event_types {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal [$($field:literal),*],)*) => {
        /// The type of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum EventType {
            $($(#[doc = $doc])* #[serde(rename = $word)] $name,)*
        }

        impl EventType {
            /// Every type, in declaration order.
            pub const ALL: &'static [EventType] = &[$(EventType::$name,)*];

            /// The upper-case word used in JSON.
            #[inline]
            pub fn as_str(self) -> &'static str {
                match self { $(EventType::$name => $word,)* }
            }

            /// Returns the fields of an event of this type, in addition to [`EVENT_FIELDS`]. Some may be absent.
            pub fn fields(self) -> &'static [&'static str] {
                match self { $(EventType::$name => &[$($field),*],)* }
            }
        }
    };
}

event_types! {
    /// A thread took its first step.
    ThreadStarted = "THREAD_STARTED" ["kind", "pathId"],
    /// A thread ended COMPLETED.
    ThreadCompleted = "THREAD_COMPLETED" ["status", "pathId", "output", "error"],
    /// A thread ended FAILED or TIMEOUT.
    ThreadFailed = "THREAD_FAILED" ["status", "pathId", "output", "error"],
    /// A thread ended CANCELLED.
    ThreadCancelled = "THREAD_CANCELLED" ["status", "pathId", "output", "error"],
    /// A thread stopped at a safe point.
    ThreadPaused = "THREAD_PAUSED" ["nodeId"],
    /// A paused thread resumed.
    ThreadResumed = "THREAD_RESUMED" ["nodeId"],
    /// A FORK started its paths.
    ThreadForkStarted = "THREAD_FORK_STARTED" ["nodeId", "forkPathIds", "forkStrategy", "subgraphId"],
    /// Every path that a FORK started has ended.
    ThreadForkCompleted = "THREAD_FORK_COMPLETED" ["nodeId"],
    /// A JOIN started to wait.
    ThreadJoinStarted = "THREAD_JOIN_STARTED" ["nodeId", "joinStrategy", "timeoutMs"],
    /// A JOIN's strategy succeeded.
    ThreadJoinConditionMet = "THREAD_JOIN_CONDITION_MET" ["joinStrategy"],
    /// A node started (each attempt).
    NodeStarted = "NODE_STARTED" ["nodeId", "nodeType", "attempt"],
    /// A node completed.
    NodeCompleted = "NODE_COMPLETED" ["nodeId", "nodeType", "attempts", "output"],
    /// A node failed (each attempt).
    NodeFailed = "NODE_FAILED" ["nodeId", "nodeType", "attempt", "error"],
    /// A message was appended to a conversation.
    MessageAdded = "MESSAGE_ADDED" ["index", "message", "tokens"],
    /// A model request was built; with its estimated tokens and the position of the pinned block.
    RequestPrepared = "REQUEST_PREPARED" ["profileId", "tokensUsed", "tokenLimit", "messages", "pinnedAt", "stablePrefixTokens", "brokenAt", "why"],
    /// A model request was repaired: calls without result closed, orphan results removed.
    RequestRepaired = "REQUEST_REPAIRED" ["repairs"],
    /// The next request is over the token limit.
    TokenLimitExceeded = "TOKEN_LIMIT_EXCEEDED" ["tokensUsed", "tokenLimit", "currentTurnTokens"],
    /// The next request is over 80 % of the token limit.
    TokenUsageWarning = "TOKEN_USAGE_WARNING" ["tokensUsed", "tokenLimit"],
    /// A compression was applied.
    CompressionCompleted = "COMPRESSION_COMPLETED" ["changed", "messagesBefore", "messagesAfter", "tokensBefore", "tokensAfter", "result", "warnings"],
    /// A compression was not applied; the conversation is unchanged.
    CompressionFailed = "COMPRESSION_FAILED" ["error", "triggerId"],
    /// A triggered sub-workflow started.
    TriggeredSubgraphStarted = "TRIGGERED_SUBGRAPH_STARTED" ["triggerId", "firing", "childThreadId", "currentNodeId", "nextNodeId", "error"],
    /// A triggered sub-workflow ended and its results were applied.
    TriggeredSubgraphCompleted = "TRIGGERED_SUBGRAPH_COMPLETED" ["triggerId", "firing", "childThreadId", "currentNodeId", "nextNodeId", "error"],
    /// A triggered sub-workflow failed; the main thread continues unchanged.
    TriggeredSubgraphFailed = "TRIGGERED_SUBGRAPH_FAILED" ["triggerId", "firing", "error"],
    /// A trigger's action failed.
    TriggerFailed = "TRIGGER_FAILED" ["triggerId", "error"],
    /// A called sub-workflow started.
    SubgraphStarted = "SUBGRAPH_STARTED" ["nodeId", "childThreadId", "subgraphId", "definition", "label"],
    /// A called sub-workflow ended.
    SubgraphCompleted = "SUBGRAPH_COMPLETED" ["childThreadId", "status"],
    /// A tool call started.
    ToolCallStarted = "TOOL_CALL_STARTED" ["nodeId", "toolCallId", "name", "arguments", "client"],
    /// A tool call completed.
    ToolCallCompleted = "TOOL_CALL_COMPLETED" ["nodeId", "toolCallId", "name", "result", "client"],
    /// A tool call failed. A model that requested the call receives the error as its result.
    ToolCallFailed = "TOOL_CALL_FAILED" ["nodeId", "toolCallId", "name", "result", "client"],
    /// A thread asked a person a question.
    InteractionRequested = "INTERACTION_REQUESTED" ["interactionId", "nodeId", "question", "assignee", "schema", "choices", "timeoutMs", "tool", "clientTool"],
    /// A question was answered.
    InteractionAnswered = "INTERACTION_ANSWERED" ["interactionId", "nodeId", "answer", "by"],
    /// A question was withdrawn, because its thread stopped waiting.
    InteractionWithdrawn = "INTERACTION_WITHDRAWN" ["interactionId", "nodeId"],
    /// A question was not answered in time.
    InteractionTimedOut = "INTERACTION_TIMED_OUT" ["interactionId", "nodeId"],
    /// A variable was assigned.
    VariableChanged = "VARIABLE_CHANGED" ["name", "value", "scope"],
    /// A checkpoint was stored.
    CheckpointCreated = "CHECKPOINT_CREATED" [],
    /// A piece of a model's reply.
    LlmToken = "LLM_TOKEN" ["nodeId", "text", "restart"],
    /// A trigger's SEND_NOTIFICATION.
    Notification = "NOTIFICATION" ["message", "triggerId"],
    /// A run was resumed after a crash with an effect that was started and has no recorded outcome.
    EffectInDoubt = "EFFECT_IN_DOUBT" ["nodeId", "effectId", "kind", "policy", "resolution"],
    /// Raised by user code.
    Custom = "CUSTOM" ["data"],
    /// Retained CUSTOM events that WAIT nodes could have received were dropped: the limit for their name was reached.
    EventDropped = "EVENT_DROPPED" ["name", "dropped", "upTo"],
    /// A time of a SCHEDULE trigger is due. This event is the input of the scheduled run; no run raises it.
    ScheduleDue = "SCHEDULE_DUE" ["triggerId", "scheduledAt"],
    /// A script wrote a line with `console`.
    ScriptLog = "SCRIPT_LOG" ["nodeId", "level", "message", "dropped"],
    /// A large tool result was stored as an artifact, and the conversation contains a preview.
    ArtifactKept = "ARTIFACT_KEPT" ["artifactId", "toolCallId", "tokens", "previewTokens"],
    /// The artifact of a large tool result was deleted: the run has too many.
    ArtifactDropped = "ARTIFACT_DROPPED" ["artifactId", "bytes", "maxBytes"],
    /// The used share of a budget reached a warning threshold.
    BudgetWarning = "BUDGET_WARNING" ["kind", "used", "limit", "budgetOf", "budgetOfPath"],
    /// A model call used more than it had reserved of its budget.
    BudgetOverrun = "BUDGET_OVERRUN" ["nodeId", "reserved", "used"],
    /// The next request is over the share of the token limit at which a speculative compression starts.
    TokenLimitApproached = "TOKEN_LIMIT_APPROACHED" ["tokensUsed", "tokenLimit", "speculativeAt"],
    /// A person's message to the run was received, was added to the conversation, or was not added before the run ended.
    UserMessage = "USER_MESSAGE" ["messageId", "status", "when", "text"],
    /// A provider read less than half of the expected tokens from its prompt cache.
    CacheCollapsed = "CACHE_COLLAPSED" ["nodeId", "reason", "expectedTokens", "stableTokens", "readTokens", "lostTokens", "idleMs", "cost", "brokenAt", "why"],
}

/// Names of the event types other than CUSTOM.
static TYPES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let types = EventType::ALL.iter().filter(|known| **known != EventType::Custom);
    types.map(|known| known.as_str()).collect()
});

/// True if a word names CUSTOM events, which are retained for later waits.
#[inline]
pub fn is_kept(word: &str) -> bool {
    !TYPES.contains(word)
}
