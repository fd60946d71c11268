//! Messages of a report: a snapshot of the conversation, converted on first access.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use pirn_conversation::conversation::Conversation;
use pirn_definition::message::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// All messages in order, including archived ones; dereferences to a slice. The list is built on first access, so that the end of a
/// run does not wait for a long history.
///
/// ```
/// # use pirn_core::run::Messages;
/// # use pirn_definition::message::{Message, Role};
/// let messages = Messages::from(vec![Message::new(Role::User, "hi").into()]);
/// assert_eq!(messages.last().map(|message| message.content.as_str()), Some("hi"));
/// ```
#[derive(Clone, Default)]
pub struct Messages {
    snapshot: Conversation,
    /// Index of the first message in the JSON form.
    from: usize,
    list: OnceLock<Vec<Arc<Message>>>,
}

impl Messages {
    pub(in crate::run) fn of(conversation: &Conversation, from: usize) -> Self {
        Self {
            // The clone costs O(1) and does not follow later changes.
            snapshot: conversation.clone(),
            from,
            list: OnceLock::new(),
        }
    }
}

impl Messages {
    /// Returns the conversation that contains them.
    pub(in crate::run) fn conversation(&self) -> &Conversation {
        &self.snapshot
    }
}

impl Deref for Messages {
    type Target = [Arc<Message>];

    fn deref(&self) -> &Self::Target {
        self.list.get_or_init(|| self.snapshot.complete().messages())
    }
}

impl From<Vec<Arc<Message>>> for Messages {
    fn from(list: Vec<Arc<Message>>) -> Self {
        Self {
            snapshot: Conversation::new(),
            from: 0,
            // The list is set, so `deref` never reads the empty snapshot.
            list: OnceLock::from(list),
        }
    }
}

impl<'a> IntoIterator for &'a Messages {
    type Item = &'a Arc<Message>;
    type IntoIter = std::slice::Iter<'a, Arc<Message>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        // Compares the messages, not the state: one list may be converted already and the other not.
        **self == **other
    }
}

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl Serialize for Messages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The inherited messages are skipped in the snapshot: the complete list would cost the whole history of the session.
        if self.from > 0 {
            return serializer.collect_seq(self.snapshot.since(self.from).map(|counted| &counted.message));
        }
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}
