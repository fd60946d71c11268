//! The actor of a run's conversations. Each conversation is a machine within the run's machine and has no pending work.

use pirn_core::run::{Message, ThreadNo, ToConversation};

use crate::run::turn::Turn;

pub(crate) struct ConversationActor;

impl ConversationActor {
    /// Handles a message for the conversation of `owner`.
    #[allow(clippy::unused_self)] // the signature of every actor
    pub(crate) fn handle(&mut self, owner: ThreadNo, message: ToConversation, turn: &mut Turn<'_>) {
        turn.step(Message::Conversation(owner, message));
    }
}
