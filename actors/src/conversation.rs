//! The conversations' actor: each conversation is a machine in its run's; nothing is under way for any of them.

use pirn_core::run::{Message, ThreadNo, ToConversation};

use crate::turn::Turn;

pub(crate) struct ConversationActor;

impl ConversationActor {
    /// Takes a message for the conversation that belongs to `owner`.
    #[allow(clippy::unused_self)] // as every actor
    pub(crate) fn handle(&mut self, owner: ThreadNo, message: ToConversation, turn: &mut Turn<'_>) {
        turn.step(Message::Conversation(owner, message));
    }
}
