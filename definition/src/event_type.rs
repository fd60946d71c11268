//! The types of events, which triggers and WAIT nodes of a workflow name.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

macro_rules! event_types {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal,)*) => {
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
        }
    };
}

event_types! {
    /// A thread took its first step.
    ThreadStarted = "THREAD_STARTED",
    /// A thread ended COMPLETED.
    ThreadCompleted = "THREAD_COMPLETED",
    /// A thread ended FAILED or TIMEOUT.
    ThreadFailed = "THREAD_FAILED",
    /// A thread ended CANCELLED.
    ThreadCancelled = "THREAD_CANCELLED",
    /// A thread stopped at a safe point.
    ThreadPaused = "THREAD_PAUSED",
    /// A paused thread resumed.
    ThreadResumed = "THREAD_RESUMED",
    /// A FORK started its paths.
    ThreadForkStarted = "THREAD_FORK_STARTED",
    /// Every path that a FORK started has ended.
    ThreadForkCompleted = "THREAD_FORK_COMPLETED",
    /// A JOIN started to wait.
    ThreadJoinStarted = "THREAD_JOIN_STARTED",
    /// A JOIN's strategy succeeded.
    ThreadJoinConditionMet = "THREAD_JOIN_CONDITION_MET",
    /// A node started (each attempt).
    NodeStarted = "NODE_STARTED",
    /// A node completed.
    NodeCompleted = "NODE_COMPLETED",
    /// A node failed (each attempt).
    NodeFailed = "NODE_FAILED",
    /// A message was appended to a conversation.
    MessageAdded = "MESSAGE_ADDED",
    /// A model request was built; with its estimated tokens and the position of the pinned block.
    RequestPrepared = "REQUEST_PREPARED",
    /// A model request was repaired: calls without result closed, orphan results removed.
    RequestRepaired = "REQUEST_REPAIRED",
    /// The next request is over the token limit.
    TokenLimitExceeded = "TOKEN_LIMIT_EXCEEDED",
    /// The next request is over 80 % of the token limit.
    TokenUsageWarning = "TOKEN_USAGE_WARNING",
    /// A compression was applied.
    CompressionCompleted = "COMPRESSION_COMPLETED",
    /// A compression was not applied; the conversation is unchanged.
    CompressionFailed = "COMPRESSION_FAILED",
    /// A triggered sub-workflow started.
    TriggeredSubgraphStarted = "TRIGGERED_SUBGRAPH_STARTED",
    /// A triggered sub-workflow ended and its results were applied.
    TriggeredSubgraphCompleted = "TRIGGERED_SUBGRAPH_COMPLETED",
    /// A triggered sub-workflow failed; the main thread continues unchanged.
    TriggeredSubgraphFailed = "TRIGGERED_SUBGRAPH_FAILED",
    /// A trigger's action failed.
    TriggerFailed = "TRIGGER_FAILED",
    /// A called sub-workflow started.
    SubgraphStarted = "SUBGRAPH_STARTED",
    /// A called sub-workflow ended.
    SubgraphCompleted = "SUBGRAPH_COMPLETED",
    /// A tool call started.
    ToolCallStarted = "TOOL_CALL_STARTED",
    /// A tool call completed.
    ToolCallCompleted = "TOOL_CALL_COMPLETED",
    /// A tool call failed. A model that requested the call receives the error as its result.
    ToolCallFailed = "TOOL_CALL_FAILED",
    /// A thread asked a person a question.
    InteractionRequested = "INTERACTION_REQUESTED",
    /// A question was answered.
    InteractionAnswered = "INTERACTION_ANSWERED",
    /// A question was withdrawn, because its thread stopped waiting.
    InteractionWithdrawn = "INTERACTION_WITHDRAWN",
    /// A question was not answered in time.
    InteractionTimedOut = "INTERACTION_TIMED_OUT",
    /// A variable was assigned.
    VariableChanged = "VARIABLE_CHANGED",
    /// A checkpoint was stored.
    CheckpointCreated = "CHECKPOINT_CREATED",
    /// A piece of a model's reply.
    LlmToken = "LLM_TOKEN",
    /// A trigger's SEND_NOTIFICATION.
    Notification = "NOTIFICATION",
    /// A run was resumed after a crash with an effect that was started and has no recorded outcome.
    EffectInDoubt = "EFFECT_IN_DOUBT",
    /// Raised by user code.
    Custom = "CUSTOM",
    /// Retained CUSTOM events that WAIT nodes could have received were dropped: the limit for their name was reached.
    EventDropped = "EVENT_DROPPED",
    /// A time of a SCHEDULE trigger is due. This event is the input of the scheduled run; no run raises it.
    ScheduleDue = "SCHEDULE_DUE",
    /// A script wrote a line with `console`.
    ScriptLog = "SCRIPT_LOG",
    /// A large tool result was stored as an artifact, and the conversation contains a preview.
    ArtifactKept = "ARTIFACT_KEPT",
    /// The artifact of a large tool result was deleted: the run has too many.
    ArtifactDropped = "ARTIFACT_DROPPED",
    /// The used share of a budget reached a warning threshold.
    BudgetWarning = "BUDGET_WARNING",
    /// A model call used more than it had reserved of its budget.
    BudgetOverrun = "BUDGET_OVERRUN",
    /// The next request is over the share of the token limit at which a speculative compression starts.
    TokenLimitApproached = "TOKEN_LIMIT_APPROACHED",
    /// A person's message to the run was received, was added to the conversation, or was not added before the run ended.
    UserMessage = "USER_MESSAGE",
    /// A provider read less than half of the expected tokens from its prompt cache.
    CacheCollapsed = "CACHE_COLLAPSED",
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
