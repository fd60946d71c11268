//! Receives the messages that a person sends to a run while it executes.
//!
//! | state of the main conversation | a message `BeforeNextRequest` | a message `WhenIdle` |
//! |---|---|---|
//! | a model call is next | is added before its request | waits |
//! | an LLM node is about to finish | is added, and the node calls its model again | the same |
//! | no LLM node, or a node is in progress | waits | waits |
//! | the main thread has ended | is refused; one that waits is reported as undelivered | the same |
//!
//! Messages are added in the order of their arrival, except that a message `BeforeNextRequest` precedes the messages `WhenIdle` that
//! wait. A message is added only between two model calls of an LLM node, when every tool call of the conversation has its result.

use std::sync::Arc;

use pirn_definition::definition::ConversationMode;
use pirn_definition::event_type::EventType;
use pirn_definition::graph::NodeKind;

use crate::run::data::message::{Message, ToSupervisor};
use crate::run::data::user_messages::{
    MAX_MESSAGE_ID, MAX_WAITING_BYTES, MAX_WAITING_MESSAGES, MessageRefused, UserMessage, UserMessages, event_fields,
};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::thread::When;

impl RunMachine {
    /// Converts a person's message to the message for the run. Returns `None` if a message with this id was accepted before: it has
    /// its effect once. Without an id the message gets one that is unique in the run.
    ///
    /// # Errors
    /// Returns an error if the run has ended, cannot use the message, or has too many that wait.
    pub fn accept_message(
        &self,
        id: Option<Arc<str>>,
        text: Arc<str>,
        when: When,
    ) -> Result<Option<Message>, MessageRefused> {
        // Nothing changes here: the caller records the message first, and the run takes it in order with its other inputs.
        check(id.as_deref(), &text)?;
        let known = self.user_messages.as_deref();
        // Before the check for the end: a caller that repeats a message of a run that has ended in between was successful.
        if let Some(id) = &id
            && (known.is_some_and(|known| known.has_received(id)) || self.queued().any(|queued| queued.id == *id))
        {
            return Ok(None);
        }
        if !self.is_open(0) {
            return Err(MessageRefused::Ended);
        }
        if !self.calls_model() {
            return Err(MessageRefused::NoModel);
        }
        let waiting = || self.waiting_messages().chain(self.queued());
        let (count, bytes) = waiting().fold((0, text.len()), |(count, bytes), message| {
            (count + 1, bytes + message.text.len())
        });
        if count >= MAX_WAITING_MESSAGES {
            let reason =
                format!("{count} messages wait for the next model request, the maximum is {MAX_WAITING_MESSAGES}");
            return Err(MessageRefused::Full { reason });
        }
        if bytes > MAX_WAITING_BYTES {
            let reason = format!("the waiting messages would have {bytes} bytes, the maximum is {MAX_WAITING_BYTES}");
            return Err(MessageRefused::Full { reason });
        }
        let received = known.map_or(0, UserMessages::received) + self.queued().count() as u64;
        let id = id.unwrap_or_else(|| format!("{}.message-{}", self.run_id, received + 1).into());
        let message = Box::new(UserMessage { id, text, when });
        Ok(Some(Message::Supervisor(ToSupervisor::Say(message))))
    }

    /// Returns the messages that are not in the conversation yet, in the order of their arrival.
    pub(in crate::run) fn waiting_messages(&self) -> impl Iterator<Item = &UserMessage> {
        self.user_messages.iter().flat_map(|known| known.waiting())
    }

    /// Returns the accepted messages that the run has not processed yet.
    fn queued(&self) -> impl Iterator<Item = &UserMessage> {
        self.mailbox.iter().filter_map(|queued| match queued {
            Message::Supervisor(ToSupervisor::Say(message)) => Some(&**message),
            _ => None,
        })
    }

    /// Returns true if a node of the main workflow may call a model in the main conversation.
    fn calls_model(&self) -> bool {
        self.graph_of(0).nodes.iter().any(|node| match &node.kind {
            NodeKind::Llm(_) => true,
            // The called workflow may: a message that finds no model call is reported as undelivered.
            NodeKind::Subgraph { conversation, .. } => *conversation == ConversationMode::Share,
            _ => false,
        })
    }

    /// Receives a message.
    pub(in crate::run) fn say(&mut self, message: UserMessage, step: &mut Step<'_>) {
        self.memory.made(message.text.len() as u64);
        step.env.noted(0, format_args!("received message {}", message.id));
        self.emit(0, EventType::UserMessage, step, || {
            event_fields(&message, "RECEIVED").into()
        });
        self.user_messages.get_or_insert_default().receive(message);
        // The main thread may have ended while the message was queued.
        if !self.tree.is_live(0) {
            self.report_undelivered(step);
        }
    }

    /// Reports the messages that wait although the main thread has ended. They stay in the report of the run.
    pub(in crate::run) fn report_undelivered(&mut self, step: &mut Step<'_>) {
        let undelivered: Vec<UserMessage> = self.waiting_messages().cloned().collect();
        for message in &undelivered {
            self.emit(0, EventType::UserMessage, step, || {
                event_fields(message, "UNDELIVERED").into()
            });
        }
    }
}

fn check(id: Option<&str>, text: &str) -> Result<(), MessageRefused> {
    let invalid = |reason: String| Err(MessageRefused::Invalid { reason });
    if text.trim().is_empty() {
        return invalid("its text is empty".to_owned());
    }
    if text.len() > MAX_WAITING_BYTES {
        let bytes = text.len();
        return invalid(format!(
            "its text has {bytes} bytes, the maximum is {MAX_WAITING_BYTES}"
        ));
    }
    match id.map(str::len) {
        Some(0) => invalid("its id is empty".to_owned()),
        Some(bytes) if bytes > MAX_MESSAGE_ID => {
            invalid(format!("its id has {bytes} bytes, the maximum is {MAX_MESSAGE_ID}"))
        }
        Some(_) | None => Ok(()),
    }
}
