//! The session of a run: its initial state, and the state after it.
//!
//! | at | action |
//! |---|---|
//! | start of the run | the run requests its turn; the main thread waits |
//! | turn | the main thread gets the conversation, the run gets the session's variables; the main thread starts |
//! | refusal | the main thread fails |
//! | outcome | the session gets the new state if the run had its turn and completed, or keeps state on failure; else no change |

use std::sync::Arc;

use pirn_definition::error::RunError;
use pirn_definition::graph::Graph;

use crate::run::data::effect::Effect;
use crate::run::data::message::{ConversationSource, ToThread};
use crate::run::data::report::RunReport;
use crate::run::data::session::{SessionBegan, SessionLeft, SessionSeed, SessionState};
use crate::run::data::thread_state::Slot;
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::status::ThreadStatus;
use crate::thread::Input;

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
    pub(in crate::run) fn session_id(&self) -> Option<String> {
        // The session never contains the messages of a fork, so the report of a fork lists all of them.
        let session = self.session().filter(|session| !session.is_aside)?;
        Some(session.id.to_string())
    }

    /// Returns true while the main thread waits for the run's turn.
    pub(in crate::run) fn awaits_session(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.began.is_none())
    }

    /// Starts the main thread in its turn, or fails it.
    pub(in crate::run) fn session_turn(&mut self, turn: Result<SessionState, RunError>, step: &mut Step<'_>) {
        // The run may have been cancelled while it waited for its turn.
        if !self.awaits_session() || !self.tree.is_live(0) {
            return;
        }
        let taken = turn.and_then(|state| self.take_session(state, step));
        match taken {
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
                self.globals.keep_for_session(&name);
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
    pub(in crate::run) fn leave_session(&self, report: &RunReport) -> Option<Effect> {
        let session = self.session.as_ref()?;
        let is_kept = report.status == ThreadStatus::Completed || session.seed.keeps_on_failure;
        let began = session.began.as_ref().filter(|_| is_kept && !session.seed.is_aside);
        let left = began.map(|began| {
            let variables = self.globals.session_variables();
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
