//! The session of a run: what it begins with, and what it leaves.
//!
//! | at | does |
//! |---|---|
//! | the run's beginning | asks for its turn; the main thread waits |
//! | its turn | the conversation and the session's variables are the main thread's and the run's; the main thread begins |
//! | a refusal | the main thread fails |
//! | the outcome | leaves what it came to, where it had its turn and completed, or keeps that on failure; else nothing |

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::message::{HandedConversation, ToThread};
use super::report::RunReport;
use super::slots::Slot;
use super::step::Step;
use super::{Effect, RunMachine};
use crate::conversation::{Conversation, MarkMap};
use crate::error::RunError;
use crate::graph::Graph;
use crate::status::ThreadStatus;
use crate::thread::Input;

/// The session that a run belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSeed {
    /// Names it.
    pub id: Arc<str>,
    /// The run's place in the order of all that came to their sessions.
    pub number: u64,
    /// The outcome is left in the session even where the run does not complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_on_failure: bool,
    /// The run goes on from one of the session's and leaves nothing in it: a fork.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_aside: bool,
}

/// The state that a session's last run has left.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// How many runs have left something; 0: none, and the run begins with what it was started with.
    pub version: u64,
    /// The tokenizer that counted the conversation.
    pub tokenizer: Arc<str>,
    /// The conversation.
    pub conversation: Conversation,
    /// The session's variables.
    pub variables: BTreeMap<Arc<str>, Arc<Value>>,
    /// The stored form of the conversation; none where no store has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredConversation>,
}

/// A reference to a conversation in a store, which a record has instead of its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredConversation {
    /// Name of its last part, as the store names it.
    pub part: Arc<str>,
    /// Number of its parts.
    pub parts: u64,
    /// Bytes of memory that its messages take.
    pub memory: u64,
    /// Cost of every message, where another tokenizer has counted them since; empty: as stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u64>,
}

impl SessionState {
    /// The state as people see it: `{id, version, conversation: {messages, markMap}, variables}`.
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

/// The outcome of a run as its session keeps it.
#[derive(Clone, Debug)]
pub struct SessionLeft {
    /// The session.
    pub id: Arc<str>,
    /// The state, of the version after the one that the run began with. The first [`Conversation::inherited`] messages are
    /// those of the conversation before.
    pub state: SessionState,
    /// The conversation before, as a store has it.
    pub follows: Option<StoredConversation>,
    /// The marks of the conversation before.
    pub marks: MarkMap,
}

/// See the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunSession {
    seed: SessionSeed,
    /// Since its turn.
    began: Option<SessionBegan>,
}

/// The state that a run began with, without its messages.
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
    /// The session that the run belongs to.
    pub fn session(&self) -> Option<&SessionSeed> {
        self.session.as_ref().map(|session| &session.seed)
    }

    /// The workflow of the main thread.
    pub fn graph_of_main(&self) -> &Arc<Graph> {
        self.graph_of(0)
    }

    /// The session's id, for reports: not that of one that it leaves nothing in.
    pub(super) fn session_id(&self) -> Option<String> {
        let session = self.session().filter(|session| !session.is_aside)?;
        Some(session.id.to_string())
    }

    /// True while the main thread waits for the run's turn.
    pub(super) fn awaits_session(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.began.is_none())
    }

    /// The run has its turn, or will never have it.
    pub(super) fn session_turn(&mut self, turn: Result<SessionState, RunError>, step: &mut Step<'_>) {
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
            // A constant of the workflow stays what the workflow says.
            if self.globals.variable(&name).is_none_or(|variable| !variable.readonly) {
                self.globals.assign(step, &name, value, false)?;
                self.globals.hand_on(&name);
            }
        }
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
        let length = state.conversation.len();
        let conversation = state.conversation.inheriting(length);
        match self.slots.first_mut() {
            Some(Slot::NotStarted(Some(start))) => {
                start.conversation = HandedConversation::Snapshot(conversation);
            }
            // It was told something before its turn.
            Some(Slot::Live(live)) => live.begin_with(conversation),
            Some(Slot::NotStarted(None) | Slot::Ended(_)) | None => {}
        }
        Ok(())
    }

    /// The run's end, for its session; none where it has none.
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
        Some(Effect::LeaveSession(left))
    }
}
