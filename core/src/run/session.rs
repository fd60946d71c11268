//! The session of a run: its initial state, and the state after it.
//!
//! | at | action |
//! |---|---|
//! | start of the run | the run requests its turn; the main thread waits |
//! | turn | the main thread gets the conversation, the run gets the session's variables; the main thread starts |
//! | refusal | the main thread fails |
//! | outcome | the session gets the new state if the run had its turn and completed, or keeps state on failure; else no change |

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_conversation::conversation::{Conversation, MarkMap};
use pirn_definition::error::RunError;
use pirn_definition::graph::Graph;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::message::{ConversationSource, ToThread};
use super::report::RunReport;
use super::slots::Slot;
use super::step::Step;
use super::{Effect, RunMachine};
use crate::status::ThreadStatus;
use crate::thread::Input;

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
pub(super) struct RunSession {
    seed: SessionSeed,
    /// Set when the run has its turn.
    began: Option<SessionBegan>,
}

/// Initial session state of the run, without its messages.
#[derive(Debug, Serialize, Deserialize)]
struct SessionBegan {
    version: u64,
    tokenizer: Arc<str>,
    stored: Option<StoredConversation>,
    marks: MarkMap,
}

impl RunSession {
    pub(super) fn new(seed: SessionSeed) -> Self {
        Self { seed, began: None }
    }
}

impl RunMachine {
    /// Returns the session that the run belongs to.
    pub fn session(&self) -> Option<&SessionSeed> {
        self.session.as_ref().map(|session| &session.seed)
    }

    /// Returns the workflow of the main thread.
    pub fn graph_of_main(&self) -> &Arc<Graph> {
        self.graph_of(0)
    }

    /// Returns the session's id for reports; `None` for a fork, which does not update the session.
    pub(super) fn session_id(&self) -> Option<String> {
        // The session never contains the messages of a fork, so the report of a fork lists all of them.
        let session = self.session().filter(|session| !session.is_aside)?;
        Some(session.id.to_string())
    }

    /// Returns true while the main thread waits for the run's turn.
    pub(super) fn awaits_session(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.began.is_none())
    }

    /// Starts the main thread in its turn, or fails it.
    pub(super) fn session_turn(&mut self, turn: Result<SessionState, RunError>, step: &mut Step<'_>) {
        // The run may have been cancelled while it waited for its turn.
        if !self.awaits_session() || !self.tree.is_live(0) {
            return;
        }
        let begun = turn.and_then(|state| self.take_session(state, step));
        match begun {
            Ok(()) => self.begin_main(step),
            Err(error) => self.send(0, ToThread::Input(Input::Fail(error))),
        }
    }

    fn take_session(&mut self, state: SessionState, step: &mut Step<'_>) -> Result<(), RunError> {
        self.memory.made(state.conversation.memory_total());
        for (name, value) in state.variables {
            self.memory.took(&value);
            // The workflow's readonly variables take precedence over the session's.
            if self.globals.variable(&name).is_none_or(|variable| !variable.readonly) {
                self.globals.assign(step, &name, value, false)?;
                // The update replaces all variables of the session, so those that the run never assigns are passed on too.
                self.globals.hand_on(&name);
            }
        }
        // Also for version 0: the first run creates the state of the session when it ends its turn.
        if let Some(session) = &mut self.session {
            session.began = Some(SessionBegan {
                version: state.version,
                tokenizer: state.tokenizer,
                stored: state.stored,
                marks: state.conversation.mark_map().clone(),
            });
        }
        if state.version == 0 {
            return Ok(());
        }
        // Everything behind these messages is the run's own. Its report and its update of the session contain only that.
        let length = state.conversation.len();
        let conversation = state.conversation.inheriting(length);
        match self.slots.first_mut() {
            Some(Slot::NotStarted(Some(start))) => {
                start.conversation = ConversationSource::Snapshot(conversation);
            }
            // The thread received a message (such as a pause) before its turn, so that its state exists already.
            Some(Slot::Live(live)) => live.begin_with(conversation),
            // The main thread is no branch, and `session_turn` has checked that it has not ended.
            Some(Slot::NotStarted(None) | Slot::Ended(_)) | None => {}
        }
        Ok(())
    }

    /// Returns the effect that ends the run's turn, with the update of the session if there is one.
    pub(super) fn leave_session(&self, report: &RunReport) -> Option<Effect> {
        let session = self.session.as_ref()?;
        let is_kept = report.status == ThreadStatus::Completed || session.seed.keeps_on_failure;
        let began = session.began.as_ref().filter(|_| is_kept && !session.seed.is_aside);
        let left = began.map(|began| {
            let variables = self.globals.handed_on();
            let state = SessionState {
                version: began.version + 1,
                tokenizer: Arc::clone(&began.tokenizer),
                conversation: report.conversation.messages.conversation().clone(),
                // A store adds the reference when it writes the conversation.
                stored: None,
                variables: variables
                    .map(|(name, value)| (Arc::clone(name), Arc::clone(value)))
                    .collect(),
            };
            let id = Arc::clone(&session.seed.id);
            Box::new(SessionLeft {
                id,
                state,
                follows: began.stored.clone(),
                marks: began.marks.clone(),
            })
        });
        // Sent without an update too: the next run of the session waits for the end of this turn.
        Some(Effect::LeaveSession(left))
    }
}
