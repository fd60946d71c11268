//! A report's messages: a snapshot of the conversation, listed when somebody looks.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::conversation::Conversation;
use crate::message::Message;

/// Messages in order, archived ones too; a slice of them. A run's end does not pay for a history nobody reads.
///
/// ```
/// # use pirn_core::run::Messages;
/// # use pirn_core::message::{Message, Role};
/// let messages = Messages::from(vec![Message::new(Role::User, "hi").into()]);
/// assert_eq!(messages.last().map(|message| message.content.as_str()), Some("hi"));
/// ```
#[derive(Clone, Default)]
pub struct Messages {
    snapshot: Conversation,
    /// The first of the snapshot's messages that is written as JSON.
    from: usize,
    list: OnceLock<Vec<Arc<Message>>>,
}

impl Messages {
    pub(super) fn of(conversation: &Conversation, from: usize) -> Self {
        Self {
            snapshot: conversation.clone(),
            from,
            list: OnceLock::new(),
        }
    }
}

impl Messages {
    /// The conversation that they are of.
    pub(super) fn conversation(&self) -> &Conversation {
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
