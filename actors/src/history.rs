//! Initial conversations of runs.

use std::sync::Arc;

use pirn_conversation::conversation::{Conversation, ConversationError, CountedMessage, MarkMap, Tokenizer};
use pirn_core::run::{ConversationReport, SessionState, StoredConversation};
use pirn_definition::message::Message;

/// Immutable messages that start a conversation. Cloning is O(1).
///
/// A history [prepared](crate::engine::EngineShared::history) by an engine contains the token count of each message. A run with
/// that tokenizer starts without counting; other runs count again. Tokenizers are compared by address, because engines may use
/// one name for different tokenizers.
#[derive(Clone, Default)]
pub struct History {
    kind: Kind,
}

#[derive(Clone, Default)]
enum Kind {
    /// No messages, the initial state of most runs. Allocates nothing.
    #[default]
    Empty,
    /// Messages without counts, and validated marks. None if all messages are visible as batch 0.
    Uncounted(Arc<Vec<Message>>, Option<MarkMap>),
    /// The flag is true if a message is nested too deeply: found once here, not by each run.
    Counted(Conversation, Arc<dyn Tokenizer>, bool),
}

impl History {
    /// True if a message has a value that is nested too deeply to be recorded.
    pub(crate) fn is_too_deep(&self) -> bool {
        match &self.kind {
            Kind::Empty => false,
            Kind::Uncounted(messages, _) => messages.iter().any(Message::is_too_deep),
            Kind::Counted(_, _, is_too_deep) => *is_too_deep,
        }
    }

    /// A complete history with its mark map. Archived messages stay archived and can be restored.
    ///
    /// # Errors
    /// [`ConversationError::InvalidMarkMap`] if the map does not match the messages.
    pub fn of_parts(messages: Vec<Message>, marks: MarkMap) -> Result<Self, ConversationError> {
        marks.check(messages.len())?;
        let kind = Kind::Uncounted(Arc::new(messages), Some(marks));
        Ok(Self { kind })
    }

    /// The final conversation of a run, for a run that continues it.
    ///
    /// # Errors
    /// Fails as [`History::of_parts`] does, if the report was modified.
    pub fn of_report(report: &ConversationReport) -> Result<Self, ConversationError> {
        let messages = report.messages.iter().map(|message| (**message).clone());
        Self::of_parts(messages.collect(), report.mark_map.clone())
    }

    /// Number of messages, including archived ones.
    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::Empty => 0,
            Kind::Uncounted(messages, _) => messages.len(),
            Kind::Counted(conversation, ..) => conversation.len(),
        }
    }

    /// True if there are no messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts the messages with `tokenizer`.
    pub(crate) fn counted_by(self, tokenizer: Arc<dyn Tokenizer>) -> Self {
        let is_too_deep = self.is_too_deep();
        // A snapshot, so that its messages are shared once here and not again by each fork of each run.
        let conversation = self.begin(&tokenizer).snapshot();
        let kind = Kind::Counted(conversation, tokenizer, is_too_deep);
        Self { kind }
    }

    /// Returns the conversation of a run that counts with `tokenizer`.
    pub(crate) fn begin(self, tokenizer: &Arc<dyn Tokenizer>) -> Conversation {
        match self.kind {
            Kind::Empty => Conversation::new(),
            // The messages are copied only if another holder shares the history.
            Kind::Uncounted(messages, marks) => counted(Arc::unwrap_or_clone(messages), marks, tokenizer),
            Kind::Counted(conversation, by, _) if is_same(&by, tokenizer) => conversation,
            // Another tokenizer made these counts, so all messages are counted again.
            Kind::Counted(conversation, ..) => {
                let marks = conversation.mark_map().clone();
                counted(conversation.complete().messages(), Some(marks), tokenizer)
            }
        }
    }
}

/// Counts a session's conversation with `tokenizer`, unless a tokenizer of this name counted it.
pub fn recounted(state: SessionState, tokenizer: &Arc<dyn Tokenizer>) -> SessionState {
    // Compared by name, because an address is meaningless for a state from another process.
    if *state.tokenizer == *tokenizer.name() {
        return state;
    }
    let marks = state.conversation.mark_map().clone();
    let conversation = counted(state.conversation.complete().messages(), Some(marks), tokenizer);
    let tokens = || conversation.since(0).map(|counted| counted.tokens).collect();
    SessionState {
        tokenizer: tokenizer.name().into(),
        // The stored messages stay; only their counts have changed.
        stored: state.stored.map(|stored| StoredConversation {
            tokens: tokens(),
            memory: conversation.memory_total(),
            ..stored
        }),
        conversation,
        ..state
    }
}

fn counted<T: Into<Arc<Message>>>(
    messages: Vec<T>,
    marks: Option<MarkMap>,
    tokenizer: &Arc<dyn Tokenizer>,
) -> Conversation {
    let counted = messages
        .into_iter()
        .map(|message| CountedMessage::new(message, &**tokenizer));
    let Some(marks) = marks.filter(|marks| *marks != MarkMap::default()) else {
        return Conversation::from_messages(counted);
    };
    let counted: Vec<CountedMessage> = counted.collect();
    // The marks were validated when the history was created.
    Conversation::from_parts(counted.clone(), marks).unwrap_or_else(|_| Conversation::from_messages(counted))
}

/// True if both are one object. Both are alive, so their addresses differ if they are different objects.
fn is_same(one: &Arc<dyn Tokenizer>, other: &Arc<dyn Tokenizer>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// A history without token counts.
impl From<Vec<Message>> for History {
    fn from(messages: Vec<Message>) -> Self {
        if messages.is_empty() {
            return Self::default();
        }
        let kind = Kind::Uncounted(Arc::new(messages), None);
        Self { kind }
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by = match &self.kind {
            Kind::Empty | Kind::Uncounted(..) => None,
            Kind::Counted(_, tokenizer, _) => Some(tokenizer.name()),
        };
        f.debug_struct("History")
            .field("messages", &self.len())
            .field("counted_by", &by)
            .finish()
    }
}
