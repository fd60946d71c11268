//! The conversation: history, batches, selection, tokens, pinned context, requests, compression.
//!
//! - [`Conversation`] is the log; its clone is the O(1) snapshot that FORK needs.
//! - [`select`] is the one selection, [`tool_blocks`] the one notion of a block, [`mend`] the one pair rule.
//! - [`build_request`] makes what a model gets: a projection, never stored.
//! - [`apply`] is CONTEXT_PROCESSOR; [`compression`] holds the strategies.
//! - [`ConversationMachine`] wraps it all for an actor.

mod blocks;
pub mod compression;
mod entries;
mod error;
mod log;
mod machine;
mod marks;
mod mend;
mod operation;
mod pinned;
mod position;
mod request;
mod select;
mod sub_agent;
#[cfg(test)]
mod tests;
mod tokens;
mod view;
mod watch;

pub use blocks::{block_before, split_block, tool_blocks, widen};
pub use error::ConversationError;
pub use log::{Basis, Conversation};
pub use machine::{ConversationEffect, ConversationInput, ConversationMachine};
pub use marks::MarkMap;
pub use mend::{Mended, UNANSWERED, mend};
pub use operation::{ResolvedContext, apply};
pub use pinned::pinned_messages;
pub use position::{PinStrategy, pin_position};
pub use request::{AgentKind, Layout, ModelRequest, RequestParts, build_request, place};
pub use select::{SelectionWarning, check, parse_selection, pointer_of, select, select_from, select_positions};
pub use sub_agent::{RoleMissing, first_prompt};
pub use tokens::{Counted, Estimator, MESSAGE_OVERHEAD, Spent, Tokenizer, message_cost};
pub use view::Visible;
pub use watch::{TokenSignal, TokenWatch};
