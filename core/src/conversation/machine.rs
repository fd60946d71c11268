//! The conversation of one thread as a machine: what an actor is told, and what it has to tell others.
//!
//! | input | conversation | effects |
//! |---|---|---|
//! | Append, Apply insert at the end | grows | MessageAdded each |
//! | Apply otherwise, StartNewBatch, Rollback, Restore | reshaped | Reshaped |
//! | Replace on a good basis | reshaped, tail kept | Reshaped |
//! | any of these, refused | unchanged | Rejected |
//! | BeforeModelCall | unchanged | Signal at a crossing |
//! | CompressionEnded, Spent | unchanged | none |

use serde::{Deserialize, Serialize};

use super::{
    Basis, Conversation, ConversationError, Counted, ResolvedContext, Spent, TokenLimit, TokenSignal, TokenWatch, apply,
};
use crate::Millis;

/// An input of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationInput {
    /// Messages join at the end, in one step.
    Append(Vec<Counted>),
    /// A CONTEXT_PROCESSOR.
    Apply(ResolvedContext),
    /// Compare and swap: see [`Conversation::replace_visible`].
    Replace {
        /// The moment the replacement was prepared for.
        basis: Basis,
        /// The messages that become visible.
        messages: Vec<Counted>,
    },
    /// Another conversation's content takes this one's place (JOIN).
    Restore(Conversation),
    /// A batch starts at an index of the complete history.
    StartNewBatch(usize),
    /// A batch is shown again.
    RollbackToBatch(u64),
    /// A model call is about to be made with this context, in tokens: [`super::ModelRequest::tokens`].
    BeforeModelCall {
        /// Tokens of the request.
        tokens: u64,
    },
    /// A compression has ended, well or not.
    CompressionEnded,
    /// A provider reported what a request cost, or a child ended with its sum.
    Spent(Spent),
}

/// An effect to tell others of.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationEffect {
    /// MESSAGE_ADDED.
    MessageAdded {
        /// Its index in the complete history.
        index: usize,
        /// The message and its cost.
        message: Counted,
    },
    /// The visible messages changed by more than an append.
    Reshaped {
        /// The version now.
        version: u64,
    },
    /// TOKEN_LIMIT_EXCEEDED, TOKEN_USAGE_WARNING or TOKEN_LIMIT_APPROACHED.
    Signal(TokenSignal),
    /// The input was refused; nothing changed.
    Rejected(ConversationError),
}

/// A conversation, its token watch and its spent figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationMachine {
    conversation: Conversation,
    watch: TokenWatch,
    /// None while none were reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent: Option<Box<Spent>>,
    /// Tokens of the last request beyond the visible messages: pinned context, tools, stated results.
    overhead: u64,
}

impl ConversationMachine {
    /// A machine over `conversation`.
    pub fn new(conversation: Conversation, limit: impl Into<TokenLimit>) -> Self {
        Self {
            conversation,
            watch: TokenWatch::new(limit.into()),
            spent: None,
            overhead: 0,
        }
    }

    /// The token limit.
    pub fn token_limit(&self) -> TokenLimit {
        self.watch.limit()
    }

    /// The conversation. A clone of it is a snapshot, in O(1).
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// The same for many to start from: none of them copies a message.
    pub fn snapshot(&mut self) -> Conversation {
        self.conversation.snapshot()
    }

    /// Usage that providers reported, children included.
    pub fn spent(&self) -> Spent {
        self.spent.as_deref().copied().unwrap_or_default()
    }

    /// Tokens expected of the next request: visible messages, and what the last one cost beyond them.
    pub fn context_tokens(&self) -> u64 {
        self.conversation.visible_tokens().saturating_add(self.overhead)
    }

    /// Takes an input. Time plays no part; it is there so that every machine is stepped alike.
    pub fn step(&mut self, _now: Millis, input: ConversationInput, out: &mut Vec<ConversationEffect>) {
        let before = self.conversation.basis();
        let outcome = match input {
            ConversationInput::Append(messages) => {
                self.conversation.extend(messages);
                Ok(())
            }
            ConversationInput::Apply(operation) => apply(&mut self.conversation, operation),
            ConversationInput::Replace { basis, messages } => self.conversation.replace_visible(basis, messages),
            ConversationInput::Restore(snapshot) => {
                self.conversation.restore(&snapshot);
                Ok(())
            }
            ConversationInput::StartNewBatch(index) => self.conversation.start_new_batch(index),
            ConversationInput::RollbackToBatch(batch) => self.conversation.rollback_to_batch(batch),
            ConversationInput::BeforeModelCall { tokens } => {
                self.overhead = tokens.saturating_sub(self.conversation.visible_tokens());
                out.extend(self.watch.before_model_call(tokens).map(ConversationEffect::Signal));
                return;
            }
            ConversationInput::CompressionEnded => return self.watch.compression_ended(),
            ConversationInput::Spent(spent) => return self.spent.get_or_insert_default().add(spent),
        };
        if let Err(error) = outcome {
            return out.push(ConversationEffect::Rejected(error));
        }
        self.tell(before, out);
        if self.watch.limit().tokens.is_some() {
            self.watch.observe(self.context_tokens());
        }
    }

    fn tell(&self, before: Basis, out: &mut Vec<ConversationEffect>) {
        let version = self.conversation.version();
        if version == before.version {
            return;
        }
        if !self.conversation.only_appended_since(before) {
            return out.push(ConversationEffect::Reshaped { version });
        }
        let added = self.conversation.since(before.length);
        out.extend(
            (before.length..)
                .zip(added)
                .map(|(index, message)| ConversationEffect::MessageAdded {
                    index,
                    message: message.clone(),
                }),
        );
    }
}
