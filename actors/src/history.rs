//! The beginnings of conversations.

use std::sync::Arc;

use pirn_core::conversation::{Conversation, ConversationError, Counted, MarkMap, Tokenizer};
use pirn_core::message::Message;
use pirn_core::run::{ConversationReport, SessionState, StoredConversation};

/// Messages for conversations to start with. They never change, and a clone costs the same whatever their number.
///
/// A history that an engine has [prepared](crate::engine::EngineShared::history) holds what each message costs by one
/// tokenizer: a run that counts with the same starts from it at once, any other one counts anew. Two tokenizers are the
/// same where they are one object; engines may give different ones the same name.
#[derive(Clone)]
pub struct History {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// As they came, and which are visible; the marks fit.
    Uncounted(Arc<Vec<Message>>, MarkMap),
    Counted(Conversation, Arc<dyn Tokenizer>),
}

impl History {
    /// True if a message has a value that is nested too deeply to be recorded.
    pub(crate) fn is_too_deep(&self) -> bool {
        match &self.kind {
            Kind::Uncounted(messages, _) => messages.iter().any(Message::is_too_deep),
            Kind::Counted(conversation, _) => {
                let visible = conversation.visible();
                visible.iter().any(|counted| counted.message.is_too_deep())
            }
        }
    }

    /// A complete history with its mark map: archived messages stay archived, and can be shown again.
    ///
    /// # Errors
    /// [`ConversationError::InvalidMarkMap`] where the two do not fit.
    pub fn of_parts(messages: Vec<Message>, marks: MarkMap) -> Result<Self, ConversationError> {
        marks.check(messages.len())?;
        let kind = Kind::Uncounted(Arc::new(messages), marks);
        Ok(Self { kind })
    }

    /// The conversation that a run ended with: the next one goes on from it.
    ///
    /// # Errors
    /// As [`History::of_parts`], where the report was changed.
    pub fn of_report(report: &ConversationReport) -> Result<Self, ConversationError> {
        let messages = report.messages.iter().map(|message| (**message).clone());
        Self::of_parts(messages.collect(), report.mark_map.clone())
    }

    /// The number of messages, archived ones included.
    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::Uncounted(messages, _) => messages.len(),
            Kind::Counted(conversation, _) => conversation.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same messages, known to cost what `tokenizer` says.
    pub(crate) fn counted_by(self, tokenizer: Arc<dyn Tokenizer>) -> Self {
        // Without a message of its own: otherwise each run that forks would share those anew.
        let conversation = self.begin(&tokenizer).snapshot();
        let kind = Kind::Counted(conversation, tokenizer);
        Self { kind }
    }

    /// The conversation of a run that counts with `tokenizer`.
    pub(crate) fn begin(self, tokenizer: &Arc<dyn Tokenizer>) -> Conversation {
        match self.kind {
            Kind::Uncounted(messages, marks) => counted(Arc::unwrap_or_clone(messages), marks, tokenizer),
            Kind::Counted(conversation, by) if is_same(&by, tokenizer) => conversation,
            Kind::Counted(conversation, _) => {
                let marks = conversation.mark_map().clone();
                counted(conversation.complete().messages(), marks, tokenizer)
            }
        }
    }
}

/// The same session, its conversation counted by `tokenizer`: anew, where another one of another name counted it.
pub fn recounted(state: SessionState, tokenizer: &Arc<dyn Tokenizer>) -> SessionState {
    if *state.tokenizer == *tokenizer.name() {
        return state;
    }
    let marks = state.conversation.mark_map().clone();
    let conversation = counted(state.conversation.complete().messages(), marks, tokenizer);
    let tokens = || conversation.since(0).map(|counted| counted.tokens).collect();
    SessionState {
        tokenizer: tokenizer.name().into(),
        stored: state.stored.map(|stored| StoredConversation {
            tokens: tokens(),
            memory: conversation.memory_total(),
            ..stored
        }),
        conversation,
        ..state
    }
}

fn counted<T: Into<Arc<Message>>>(messages: Vec<T>, marks: MarkMap, tokenizer: &Arc<dyn Tokenizer>) -> Conversation {
    let counted = messages.into_iter().map(|message| Counted::new(message, &**tokenizer));
    let counted: Vec<Counted> = counted.collect();
    if marks == MarkMap::default() {
        return Conversation::from_messages(counted);
    }
    // Checked where they came in.
    Conversation::from_parts(counted.clone(), marks).unwrap_or_else(|_| Conversation::from_messages(counted))
}

/// True if they are one object. Both are held, so neither's place can have been given to another.
fn is_same(one: &Arc<dyn Tokenizer>, other: &Arc<dyn Tokenizer>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

impl Default for History {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

/// Not counted: whatever starts from it counts it.
impl From<Vec<Message>> for History {
    fn from(messages: Vec<Message>) -> Self {
        let kind = Kind::Uncounted(Arc::new(messages), MarkMap::default());
        Self { kind }
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by = match &self.kind {
            Kind::Uncounted(..) => None,
            Kind::Counted(_, tokenizer) => Some(tokenizer.name()),
        };
        f.debug_struct("History")
            .field("messages", &self.len())
            .field("counted_by", &by)
            .finish()
    }
}
