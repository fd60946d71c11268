//! State machine of one conversation.
//!
//! | input | conversation | effects |
//! |---|---|---|
//! | Append, Apply insert at the end | grows | MessageAdded each |
//! | Apply otherwise, StartNewBatch, Rollback, Restore | reshaped | Reshaped |
//! | Replace on a valid basis | reshaped, later appends stay | Reshaped |
//! | any of these, refused | unchanged | Rejected |
//! | BeforeModelCall | unchanged | Signal at a crossing |
//! | CompressionEnded, Spent | unchanged | none |

use pirn_definition::Millis;
use serde::{Deserialize, Serialize};

use super::compression::current_turn_start;
use super::{
    Basis, Conversation, ConversationError, CountedMessage, PendingCall, ResolvedContext, TokenLimit, TokenSignal,
    TokenUsage, TokenWatch, apply,
};

/// An input of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationInput {
    /// Appends messages in one step.
    Append(Vec<CountedMessage>),
    /// Applies a CONTEXT_PROCESSOR operation.
    Apply(ResolvedContext),
    /// Compare and swap: see [`Conversation::replace_visible`].
    Replace {
        /// State for which the replacement was prepared.
        basis: Basis,
        /// Messages that become visible.
        messages: Vec<CountedMessage>,
    },
    /// Replaces the content with that of another conversation (JOIN).
    Restore(Conversation),
    /// Starts a batch at an index of the complete history.
    StartNewBatch(usize),
    /// Makes a batch visible again.
    RollbackToBatch(u64),
    /// A model call with this number of tokens is about to be made: [`super::ModelRequest::tokens`].
    BeforeModelCall {
        /// Tokens of the request.
        tokens: u64,
        /// True if TOKEN_LIMIT_EXCEEDED was raised for this call, and its request was prepared again afterwards.
        is_repeated: bool,
    },
    /// A compression has succeeded or failed.
    CompressionEnded,
    /// A provider reported the usage of a request, or a child ended with this sum.
    Spent(TokenUsage),
}

/// A change to announce.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationEffect {
    /// A message was added (MESSAGE_ADDED).
    MessageAdded {
        /// Index of the message in the complete history.
        index: usize,
        /// Message with its tokens.
        message: CountedMessage,
    },
    /// The visible messages changed in another way than by an append.
    Reshaped {
        /// New version.
        version: u64,
    },
    /// TOKEN_LIMIT_EXCEEDED, TOKEN_USAGE_WARNING or TOKEN_LIMIT_APPROACHED.
    Signal(TokenSignal),
    /// The input was rejected and changed nothing.
    Rejected(ConversationError),
}

/// A conversation with its token limit check and the usage of its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationMachine {
    conversation: Conversation,
    watch: TokenWatch,
    /// Reported usage; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent: Option<Box<TokenUsage>>,
    /// Tokens of the last request in addition to the visible messages: pinned context, tools, stated results.
    overhead: u64,
}

impl ConversationMachine {
    /// Creates a machine for `conversation`.
    pub fn new(conversation: Conversation, limit: impl Into<TokenLimit>) -> Self {
        Self {
            conversation,
            watch: TokenWatch::new(limit.into()),
            // Boxed when the first usage is reported: many threads call no model.
            spent: None,
            overhead: 0,
        }
    }

    /// Returns the token limit.
    pub fn token_limit(&self) -> TokenLimit {
        self.watch.limit()
    }

    /// Returns the conversation. A clone is a snapshot in constant time.
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Returns a snapshot for many branches, which share all messages.
    pub fn snapshot(&mut self) -> Conversation {
        self.conversation.snapshot()
    }

    /// Returns the usage that providers reported, including children.
    pub fn spent(&self) -> TokenUsage {
        self.spent.as_deref().copied().unwrap_or_default()
    }

    /// Returns the expected tokens of the next request: visible messages, and the overhead of the last request.
    pub fn context_tokens(&self) -> u64 {
        // The overhead is an estimate: the next request is built only before its call.
        self.conversation.visible_tokens().saturating_add(self.overhead)
    }

    /// Processes an input. The time is unused; it is a parameter so that all machines have one signature.
    pub fn step(&mut self, _now: Millis, input: ConversationInput, out: &mut Vec<ConversationEffect>) {
        // Taken before the change, so that `tell` announces exactly what this input has changed.
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
            ConversationInput::BeforeModelCall { tokens, is_repeated } => {
                // Repairs may remove messages, so that a request can be smaller than the visible messages.
                self.overhead = tokens.saturating_sub(self.conversation.visible_tokens());
                // The search for the turn reads the messages, and only a context above the limit needs its result.
                let is_above = self.watch.exceeds(tokens);
                let turn_start = if is_above { self.turn_start() } else { 0 };
                let call = PendingCall {
                    tokens,
                    turn_start,
                    is_repeated,
                };
                out.extend(self.watch.before_model_call(call).map(ConversationEffect::Signal));
                return;
            }
            // Changes no message, so that nothing is announced or observed.
            ConversationInput::CompressionEnded => return self.watch.compression_ended(),
            ConversationInput::Spent(spent) => return self.spent.get_or_insert_default().add(spent),
        };
        if let Err(error) = outcome {
            // Nothing has changed: neither a change is announced nor the context observed.
            return out.push(ConversationEffect::Rejected(error));
        }
        self.tell(before, out);
        // Without a limit no event can be rearmed, and the sum is not computed.
        if self.watch.limit().tokens.is_some() {
            self.watch.observe(self.context_tokens());
        }
    }

    /// Returns the position of the current turn in the complete history.
    fn turn_start(&self) -> u64 {
        let visible: Vec<_> = self.conversation.visible().iter().collect();
        let turn = visible.len() - current_turn_start(&visible);
        // The visible messages of the turn are the last ones of the history.
        self.conversation.basis().length.saturating_sub(turn) as u64
    }

    fn tell(&self, before: Basis, out: &mut Vec<ConversationEffect>) {
        let version = self.conversation.version();
        // An append of no messages, or a rollback to the current batch.
        if version == before.version {
            return;
        }
        // One event for the whole change: its messages may have been in the log already.
        if !self.conversation.only_appended_since(before) {
            return out.push(ConversationEffect::Reshaped { version });
        }
        let added = self.conversation.since(before.length);
        out.extend(
            (before.length..)
                .zip(added)
                .map(|(index, message)| ConversationEffect::MessageAdded {
                    index,
                    // Copies a pointer.
                    message: message.clone(),
                }),
        );
    }
}
