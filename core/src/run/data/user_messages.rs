//! Messages of people to a run. [`crate::run::message_intake`] has the table of their states.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::thread::When;

/// Maximum number of messages that wait in a run.
pub const MAX_WAITING_MESSAGES: usize = 100;

/// Maximum number of bytes of all messages that wait in a run.
pub const MAX_WAITING_BYTES: usize = 1 << 20;

/// Maximum number of bytes of a message's id.
pub const MAX_MESSAGE_ID: usize = 128;

/// Number of ids that a run remembers, so that a repeated message has no effect.
const MAX_RECENT_IDS: usize = 1_024;

/// A person's message to the model of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserMessage {
    /// Id of the message, unique in the run.
    pub id: Arc<str>,
    /// Text of the message.
    pub text: Arc<str>,
    /// Time at which the message is added to the conversation.
    pub when: When,
}

/// Reason that a run refused a message. The message has no effect, except possibly after [`Self::NotKept`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum MessageRefused {
    /// The run has ended.
    #[error("the run has ended and receives no more messages")]
    Ended,
    /// The main workflow calls no model that could read the message.
    #[error(
        "no node of the run's workflow calls a model in the main conversation: emit an event or answer a question instead"
    )]
    NoModel,
    /// The message or its id is empty or too long.
    #[error("invalid message: {reason}")]
    Invalid {
        /// Explanation, one sentence.
        reason: String,
    },
    /// Too many messages wait, or too many bytes.
    #[error("the run accepts no more messages: {reason}")]
    Full {
        /// Explanation, one sentence.
        reason: String,
    },
    /// The run's store failed, or the run left this process, before the message was durable. The message may or may not have been
    /// stored. Sending it again with the same id is safe.
    #[error("the message may be lost: {reason}")]
    NotKept {
        /// Explanation, one sentence.
        reason: String,
    },
}

impl MessageRefused {
    /// Returns the refusal for an error of the store, or of the run, that prevented the message from becoming durable.
    pub fn not_kept(error: &pirn_definition::error::RunError) -> Self {
        Self::NotKept {
            reason: error.to_string(),
        }
    }

    /// Returns a stable code: `RUN_HAS_ENDED`, `NO_MODEL_REQUESTS`, `INVALID_MESSAGE`, `TOO_MANY_MESSAGES` or `STORE_ERROR`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ended => "RUN_HAS_ENDED",
            Self::NoModel => "NO_MODEL_REQUESTS",
            Self::Invalid { .. } => "INVALID_MESSAGE",
            Self::Full { .. } => "TOO_MANY_MESSAGES",
            Self::NotKept { .. } => "STORE_ERROR",
        }
    }
}

/// Messages of a run. Boxed in the run, because few runs receive any.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct UserMessages {
    /// Messages that are not in the conversation yet, in the order of their arrival.
    waiting: Vec<UserMessage>,
    /// Ids of the last messages, oldest first.
    recent: VecDeque<Arc<str>>,
    /// Number of messages received.
    received: u64,
}

impl UserMessages {
    /// Returns the messages that are not in the conversation yet, in the order of their arrival.
    pub(in crate::run) fn waiting(&self) -> &[UserMessage] {
        &self.waiting
    }

    /// Returns true if the run has received a message with this id.
    pub(in crate::run) fn has_received(&self, id: &Arc<str>) -> bool {
        self.recent.contains(id)
    }

    /// Returns the number of messages received.
    pub(in crate::run) fn received(&self) -> u64 {
        self.received
    }

    /// Returns when the most urgent message is to be added; `None` if no message waits.
    pub(in crate::run) fn next(&self) -> Option<When> {
        self.waiting.iter().map(|message| message.when).min()
    }

    /// Removes the messages that are to be added now, in the order of their arrival. At [`When::WhenIdle`] these are all.
    pub(in crate::run) fn take(&mut self, now: When) -> Vec<UserMessage> {
        let (due, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|message| message.when <= now);
        self.waiting = later;
        due
    }

    pub(in crate::run) fn receive(&mut self, message: UserMessage) {
        self.received += 1;
        if self.recent.len() == MAX_RECENT_IDS {
            self.recent.pop_front();
        }
        self.recent.push_back(Arc::clone(&message.id));
        self.waiting.push(message);
    }
}

/// Returns the fields of `USER_MESSAGE`.
pub(in crate::run) fn event_fields(
    message: &UserMessage,
    status: &'static str,
) -> [(&'static str, serde_json::Value); 4] {
    [
        ("messageId", json!(message.id)),
        ("status", json!(status)),
        ("when", json!(message.when)),
        ("text", json!(message.text)),
    ]
}
