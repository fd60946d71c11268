//! The session of a run: its state before and after the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_conversation::conversation::{Conversation, MarkMap};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The session that a run belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSeed {
    /// Id of the session.
    pub id: Arc<str>,
    /// Sequence number among all runs that arrived at sessions: it determines the order of turns.
    pub number: u64,
    /// True if the run updates the session even if it does not complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_on_failure: bool,
    /// True for a fork: the run starts from the session's state and never updates it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_aside: bool,
}

/// State of a session after its last run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// Number of runs that have updated the session. 0: none, and the run starts with its seed's conversation.
    pub version: u64,
    /// Tokenizer that counted the conversation's tokens.
    pub tokenizer: Arc<str>,
    /// Conversation of the session.
    pub conversation: Conversation,
    /// Variables of the session.
    pub variables: BTreeMap<Arc<str>, Arc<Value>>,
    /// Reference to the stored conversation; `None` if no store has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredConversation>,
}

/// Reference to a conversation in a store. A record contains it instead of the messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredConversation {
    /// Key of the last part in the store.
    pub part: Arc<str>,
    /// Number of parts.
    pub parts: u64,
    /// Memory of the messages in bytes.
    pub memory: u64,
    /// Tokens of each message, if another tokenizer has counted them since; empty: as stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u64>,
}

impl SessionState {
    /// Converts the state for users: `{id, version, conversation: {messages, markMap}, variables}`.
    pub fn shown(&self, id: &str) -> Value {
        json!({
            "id": id,
            "version": self.version,
            "conversation": {
                "messages": self.conversation.complete().messages(),
                "markMap": self.conversation.mark_map(),
            },
            "variables": self.variables,
        })
    }
}

/// Update of a session by the outcome of a run.
#[derive(Clone, Debug)]
pub struct SessionLeft {
    /// Id of the session.
    pub id: Arc<str>,
    /// New state; its version is one higher than that with which the run started. The first [`Conversation::inherited`] messages
    /// belong to the previous conversation.
    pub state: SessionState,
    /// Reference to the stored previous conversation.
    pub follows: Option<StoredConversation>,
    /// Marks of the previous conversation.
    pub marks: MarkMap,
}

/// Session state of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct RunSession {
    pub(in crate::run) seed: SessionSeed,
    /// Set when the run has its turn.
    pub(in crate::run) began: Option<SessionBegan>,
}

/// Initial session state of the run, without its messages.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct SessionBegan {
    pub(in crate::run) version: u64,
    pub(in crate::run) tokenizer: Arc<str>,
    pub(in crate::run) stored: Option<StoredConversation>,
    pub(in crate::run) marks: MarkMap,
}

impl RunSession {
    pub(in crate::run) fn new(seed: SessionSeed) -> Self {
        Self { seed, began: None }
    }
}
