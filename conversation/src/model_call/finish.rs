//! Why a model's reply ended.

use serde::{Deserialize, Serialize};

/// Reason why a model's reply ended. Workflows can route on it: a truncated, filtered or refused reply is not an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done.
    #[default]
    Stop,
    /// The reply reached `maxTokens`, or the model's context was full: the reply is truncated.
    Length,
    /// The provider's content filter truncated or removed the reply.
    ContentFilter,
    /// The model declined; the content is its explanation.
    Refusal,
    /// The provider paused in the middle of a long turn; a further request continues it.
    Pause,
    /// The model requests tool calls.
    ToolCalls,
    /// The model wrote an invalid tool call. If the call ends with it, the call fails with an error that is retried.
    Malformed,
}

impl FinishReason {
    /// The word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Refusal => "refusal",
            Self::Pause => "pause",
            Self::ToolCalls => "tool_calls",
            Self::Malformed => "malformed",
        }
    }

    /// True if the model finished its reply.
    pub fn is_whole(self) -> bool {
        match self {
            Self::Stop | Self::ToolCalls => true,
            Self::Length | Self::ContentFilter | Self::Refusal | Self::Pause | Self::Malformed => false,
        }
    }
}
