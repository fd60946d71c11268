//! Why a change of a conversation, or a question to it, is refused.

use std::fmt;

/// A refusal. The variant says what a caller can do about it. Nothing was changed when one is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversationError {
    /// A batch must start between the current boundary and the history's length.
    InvalidBoundary {
        /// The index asked for.
        index: u64,
        /// The lowest that is allowed.
        low: u64,
        /// The highest that is allowed: the length.
        high: u64,
    },
    /// No such batch on the way to the current one.
    UnknownBatch {
        /// The batch asked for.
        batch: u64,
    },
    /// A mark map that contradicts itself or its history.
    InvalidMarkMap {
        /// The field at fault, as a JSON pointer inside the mark map.
        pointer: String,
        /// The fault.
        message: String,
    },
    /// Something other than appends happened since the basis was taken: take a new one and start over.
    Changed,
    /// A selection that makes no sense (`INVALID_HISTORY_OPTIONS`).
    InvalidHistoryOptions {
        /// The field at fault, as a JSON pointer inside the options.
        pointer: String,
        /// The fault.
        message: String,
    },
    /// The selection to replace holds no visible message.
    NothingSelected,
    /// An insert position outside the visible messages.
    PositionOutOfRange {
        /// The position asked for.
        position: i64,
        /// Messages that are visible.
        visible: u64,
    },
    /// A truncate that names none, or several, of its ways.
    InvalidTruncate {
        /// The fault.
        message: String,
    },
}

impl ConversationError {
    /// The stable code a program may match on.
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

    /// The fault's place in the refused JSON, relative to the refused value; empty: the value itself.
    pub fn pointer(&self) -> &str {
        match self {
            Self::InvalidMarkMap { pointer, .. } | Self::InvalidHistoryOptions { pointer, .. } => pointer,
            Self::InvalidBoundary { .. }
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
