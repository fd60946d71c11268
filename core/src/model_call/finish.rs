//! Why a model's reply ended.

use serde::{Deserialize, Serialize};

/// Why a model's reply ended. A workflow can route on it: a reply that was cut, filtered or refused is a reply all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done.
    #[default]
    Stop,
    /// The reply reached `maxTokens`, or the model's context was full: it is cut.
    Length,
    /// The provider's filter cut the reply, or left nothing of it.
    ContentFilter,
    /// The model declined; the content is what it said about that.
    Refusal,
    /// The provider stopped in the middle of a long turn; asked again, the model goes on.
    Pause,
    /// The model asks for tools.
    ToolCalls,
    /// The model wrote a tool call that is none. As the end of a call it is an error that is tried again.
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

    /// True if the model has said all that it wanted to say.
    pub fn is_whole(self) -> bool {
        match self {
            Self::Stop | Self::ToolCalls => true,
            Self::Length | Self::ContentFilter | Self::Refusal | Self::Pause | Self::Malformed => false,
        }
    }
}
