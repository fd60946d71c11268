//! CONTEXT_PROCESSOR.

use std::ops::Range;

use pirn_definition::definition::{
    AllWord, ClearContext, CompressionConfig, ContextOperation, ConversationHistoryOptions, FilterContext,
    HistoryRange, InsertContext, NodeConfig, PinContext, PinSection, ReplaceContext, Replacement, RoleCount, RoleRange,
    Target, TextMessage, TruncateContext,
};
use pirn_definition::message::Role;
use serde_json::Value;

use super::Step;

/// CONTEXT_PROCESSOR: changes the conversation.
#[derive(Clone, Debug)]
pub struct Context(ContextOperation);

/// A selection of messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Messages {
    /// The last N visible messages.
    Last(u64),
    /// The last N visible messages of a role.
    LastOf(Role, u64),
    /// All visible messages of a role.
    Of(Role),
    /// Messages by position in the complete history; archived ones are omitted.
    Range(Range<u64>),
    /// Messages by position among the visible ones of a role.
    RangeOf(Role, Range<u64>),
}

impl Messages {
    pub(super) fn options(self) -> ConversationHistoryOptions {
        let mut options = ConversationHistoryOptions::default();
        match self {
            Self::Last(count) => options.last_n = Some(count),
            Self::LastOf(role, count) => options.last_n_by_role = Some(RoleCount { role, count }),
            Self::Of(role) => options.by_role = Some(role),
            Self::Range(Range { start, end }) => options.range = Some(HistoryRange { start, end }),
            Self::RangeOf(role, Range { start, end }) => {
                options.range_by_role = Some(RoleRange { role, start, end });
            }
        }
        options
    }
}

/// The messages that remain when a conversation is truncated.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    /// The first N messages.
    First(u64),
    /// The last N messages.
    Last(u64),
    /// All but the first N messages.
    AllButFirst(u64),
    /// All but the last N messages.
    AllButLast(u64),
    /// Messages between two positions.
    Range(Range<u64>),
}

impl Context {
    /// Appends messages, with templates as contents.
    pub fn insert(messages: impl IntoIterator<Item = (Role, impl Into<String>)>) -> Self {
        Self::insert_at(-1, messages)
    }

    /// Inserts messages at a position among the visible ones. Negative positions count from the end, and -1 appends.
    pub fn insert_at(position: i64, messages: impl IntoIterator<Item = (Role, impl Into<String>)>) -> Self {
        let messages = messages.into_iter();
        Self(ContextOperation::Insert(InsertContext {
            messages: messages.map(text_message).collect(),
            position,
        }))
    }

    /// Replaces all visible messages except system messages by one, with a template as content.
    pub fn replace_all(role: Role, text: impl Into<String>) -> Self {
        Self(ContextOperation::Replace(ReplaceContext {
            target: Target::Word(AllWord::All),
            replacement: Replacement::Text(text.into()),
            role,
        }))
    }

    /// Replaces messages by others, with templates as contents.
    pub fn replace(target: Messages, messages: impl IntoIterator<Item = (Role, impl Into<String>)>) -> Self {
        let messages = messages.into_iter();
        Self(ContextOperation::Replace(ReplaceContext {
            target: Target::Selection(target.options()),
            replacement: Replacement::Messages(messages.map(text_message).collect()),
            // Every message has a role, so this one is not used.
            role: Role::User,
        }))
    }

    /// Removes all messages outside of the selection.
    pub fn truncate(kept: Kept) -> Self {
        Self::truncate_of(None, kept)
    }

    /// Counts and removes only messages of one role.
    pub fn truncate_role(role: Role, kept: Kept) -> Self {
        Self::truncate_of(Some(role), kept)
    }

    fn truncate_of(role: Option<Role>, kept: Kept) -> Self {
        let mut truncate = TruncateContext {
            role,
            ..TruncateContext::default()
        };
        match kept {
            Kept::First(count) => truncate.keep_first = Some(count),
            Kept::Last(count) => truncate.keep_last = Some(count),
            Kept::AllButFirst(count) => truncate.remove_first = Some(count),
            Kept::AllButLast(count) => truncate.remove_last = Some(count),
            Kept::Range(range) => {
                truncate.range = Some(HistoryRange {
                    start: range.start,
                    end: range.end,
                });
            }
        }
        Self(ContextOperation::Truncate(truncate))
    }

    /// Removes all messages except system messages.
    pub fn clear() -> Self {
        Self(ContextOperation::Clear(ClearContext { keep_system: true }))
    }

    /// Removes all messages.
    pub fn clear_all() -> Self {
        Self(ContextOperation::Clear(ClearContext { keep_system: false }))
    }

    /// Removes messages that do not meet all of the given conditions.
    pub fn filter(filter: FilterContext) -> Self {
        Self(ContextOperation::Filter(filter))
    }

    /// Compresses the conversation by a strategy with parameters.
    pub fn compress<K: Into<String>, V: Into<Value>>(
        strategy: impl Into<String>,
        parameters: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let parameters = parameters.into_iter();
        Self(ContextOperation::Compress(CompressionConfig {
            strategy: Some(strategy.into()),
            parameters: parameters.map(|(name, value)| (name.into(), value.into())).collect(),
            speculative_at: None,
        }))
    }

    /// Sets a section of the pinned context; null removes it.
    pub fn pin(section: PinSection, value: impl Into<Value>) -> Self {
        let value = value.into();
        Self(ContextOperation::Pin(PinContext { section, value }))
    }
}

fn text_message((role, content): (Role, impl Into<String>)) -> TextMessage {
    let content = content.into();
    TextMessage {
        role,
        content,
        pin: false,
    }
}

impl From<Context> for Step {
    fn from(context: Context) -> Self {
        Self(NodeConfig::ContextProcessor(context.0))
    }
}
