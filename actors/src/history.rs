//! What conversations start with.

use std::sync::Arc;

use pirn_core::conversation::{Conversation, Counted, Tokenizer};
use pirn_core::message::Message;

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
    /// As they came.
    Uncounted(Arc<Vec<Message>>),
    Counted(Conversation, Arc<dyn Tokenizer>),
}

impl History {
    /// How many messages there are.
    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::Uncounted(messages) => messages.len(),
            Kind::Counted(conversation, _) => conversation.len(),
        }
    }

    /// Whether there are none.
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
            Kind::Uncounted(messages) => counted(Arc::unwrap_or_clone(messages), tokenizer),
            Kind::Counted(conversation, by) if is_same(&by, tokenizer) => conversation,
            Kind::Counted(conversation, _) => counted(conversation.complete().messages(), tokenizer),
        }
    }
}

fn counted<T: Into<Arc<Message>>>(messages: Vec<T>, tokenizer: &Arc<dyn Tokenizer>) -> Conversation {
    let messages = messages.into_iter();
    Conversation::from_messages(messages.map(|message| Counted::new(message, &**tokenizer)))
}

/// Whether they are one object. Both are held, so neither's place can have been given to another.
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
        let kind = Kind::Uncounted(Arc::new(messages));
        Self { kind }
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by = match &self.kind {
            Kind::Uncounted(_) => None,
            Kind::Counted(_, tokenizer) => Some(tokenizer.name()),
        };
        f.debug_struct("History")
            .field("messages", &self.len())
            .field("counted_by", &by)
            .finish()
    }
}
