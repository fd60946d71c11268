//! The conversation: history, batches, selection, tokens, pinned context, requests, compression.
//!
//! - [`Conversation`] is the log; its clone is the O(1) snapshot that FORK needs.
//! - [`select`] is the one selection, [`tool_blocks`] the one notion of a block, [`repair_tool_pairs`] the one pair rule.
//! - [`build_request`] builds the request for a model: a projection, never stored. An [`Outline`] prepares it without its messages.
//! - [`shown_result`] decides which tool results become previews; [`read_artifact`] and [`recall`] return the hidden text.
//! - [`apply`] is CONTEXT_PROCESSOR; [`compression`] holds the strategies, [`extractive`] a summary without a model.
//! - [`ConversationMachine`] wraps it all for an actor.
//!
//! Not here: the format of a provider's messages, which is in the embedding layer.

mod blocks;
pub mod compression;
mod error;
pub mod extractive;
mod history;
mod large_results;
mod machine;
mod media;
mod operation;
mod requests;
mod select;
mod sub_agent;
#[cfg(test)]
mod tests;
mod tokens;
mod usage;
mod watch;

pub use blocks::{block_before, split_block, tool_blocks, widen};
pub use error::ConversationError;
pub use history::log::{Basis, Conversation};
pub use history::marks::MarkMap;
pub use history::view::Visible;
pub use large_results::{
    DEFAULT_KEPT_BYTES, DEFAULT_PAGE_TOKENS, DroppedResult, LargeResults, ShownResult, artifact_of, no_longer_shown,
    read_artifact, recall, shown_result,
};
pub use machine::{ConversationEffect, ConversationInput, ConversationMachine};
pub use media::MediaRule;
pub use operation::{ResolvedContext, apply};
pub use requests::order::{MessageRules, Repairs, USER_FIRST, USER_LAST, repair_order};
pub use requests::pinned::pinned_messages;
pub use requests::position::{PinStrategy, pin_position};
pub use requests::prefix::{MessageKind, Prefix, PrefixBreak, PrefixWatch, RequestPrefix, hash_text};
pub use requests::prepared::{Outline, PreparedRequest};
pub use requests::request::{AgentKind, Layout, ModelRequest, RequestParts, build_request, place};
pub use requests::tool_pairs::{UNANSWERED, repair_tool_pairs};
pub use select::{parse_selection, select, select_counted, select_from, select_positions};
pub use sub_agent::{RoleMissing, first_prompt};
pub use tokens::{CountedMessage, Estimator, EstimatorOf, MESSAGE_OVERHEAD, Tokenizer, message_cost};
pub use usage::{Cost, Currency, TokenUsage};
pub use watch::{PendingCall, TokenLimit, TokenSignal, TokenWatch};
