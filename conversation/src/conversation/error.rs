//! Rejections of changes and queries of a conversation.

use std::fmt;

/// Reason of a rejection, by what the caller can do about it. A rejected call changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConversationError {
    /// A batch must start between the current boundary and the history's length.
    InvalidBoundary {
        /// Requested index.
        index: u64,
        /// Lowest allowed index.
        low: u64,
        /// Highest allowed index: the length.
        high: u64,
    },
    /// The batch is not on the path to the current one.
    UnknownBatch {
        /// Requested batch.
        batch: u64,
    },
    /// A mark map that contradicts itself or its history.
    InvalidMarkMap {
        /// JSON pointer to the field, inside the mark map.
        pointer: String,
        /// Description of the fault.
        message: String,
    },
    /// Something other than an append happened since the basis was taken. Take a new basis and retry.
    Changed,
    /// Invalid options of a selection (`INVALID_HISTORY_OPTIONS`).
    InvalidHistoryOptions {
        /// JSON pointer to the field, inside the options.
        pointer: String,
        /// Description of the fault.
        message: String,
    },
    /// The selection to replace contains no visible message.
    NothingSelected,
    /// The insert position is outside the visible messages.
    PositionOutOfRange {
        /// Requested position.
        position: i64,
        /// Number of visible messages.
        visible: u64,
    },
    /// The truncate operation has none or several of its alternative fields.
    InvalidTruncate {
        /// Description of the fault.
        message: String,
    },
}

impl ConversationError {
    /// Returns a stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidBoundary { .. } => "INVALID_BOUNDARY",
            Self::UnknownBatch { .. } => "UNKNOWN_BATCH",
            Self::InvalidMarkMap { .. } => "INVALID_MARK_MAP",
            Self::Changed => "CONVERSATION_CHANGED",
            Self::InvalidHistoryOptions { .. } => "INVALID_HISTORY_OPTIONS",
            Self::NothingSelected => "NOTHING_SELECTED",
            Self::PositionOutOfRange { .. } => "POSITION_OUT_OF_RANGE",
            Self::InvalidTruncate { .. } => "INVALID_TRUNCATE",
        }
    }

    /// Returns the JSON pointer to the fault, relative to the rejected value; empty for the value itself.
    pub fn pointer(&self) -> &str {
        match self {
            Self::InvalidMarkMap { pointer, .. } | Self::InvalidHistoryOptions { pointer, .. } => pointer,
            Self::InvalidBoundary { .. }
            // These concern the call and not a field of its argument.
            | Self::UnknownBatch { .. }
            | Self::Changed
            | Self::NothingSelected
            | Self::PositionOutOfRange { .. }
            | Self::InvalidTruncate { .. } => "",
        }
    }
}

impl fmt::Display for ConversationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidBoundary { index, low, high } => {
                write!(f, "Invalid boundary index {index} (must be {low}..{high})")
            }
            Self::UnknownBatch { batch } => write!(f, "Target batch {batch} not found"),
            Self::InvalidMarkMap { message, .. } => write!(f, "the mark map is broken: {message}"),
            Self::Changed => f.write_str("the conversation was changed by something other than an append"),
            Self::InvalidHistoryOptions { message, .. } | Self::InvalidTruncate { message } => f.write_str(message),
            Self::NothingSelected => f.write_str("the selection holds no visible message (index out of range)"),
            Self::PositionOutOfRange { position, visible } => {
                write!(f, "position {position} is out of range: {visible} messages are visible")
            }
        }
    }
}

impl std::error::Error for ConversationError {}
