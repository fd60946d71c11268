//! Times and positions of a run's open questions, from its events.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pirn_definition::event_type::EventType;
use pirn_events::event::Event;

use crate::runs::events::position::Position;

/// Position and time of a question's INTERACTION_REQUESTED event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AskedAt {
    pub(crate) sequence: u64,
    /// Milliseconds since the Unix epoch.
    pub(crate) at: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// Open questions by id.
    open: Mutex<BTreeMap<String, AskedAt>>,
    /// Position of the last event that a front end's stream sent before it ended with tool calls for the front end.
    paused_at: Mutex<Option<Position>>,
}

impl Questions {
    pub(crate) fn observe(&self, event: &Event) {
        let id = || event.raised.fields.text("interactionId");
        match event.raised.event_type {
            EventType::InteractionRequested => {
                let asked_at = AskedAt {
                    sequence: event.sequence,
                    at: event.timestamp,
                };
                self.state().extend(id().map(|id| (id.to_owned(), asked_at)));
            }
            EventType::InteractionAnswered | EventType::InteractionWithdrawn | EventType::InteractionTimedOut => {
                if let Some(id) = id() {
                    self.state().remove(id);
                }
            }
            _other => {}
        }
    }

    /// Returns the position and time of an open question; `None` if its event has not arrived.
    pub(crate) fn asked_at(&self, id: &str) -> Option<AskedAt> {
        self.state().get(id).copied()
    }

    /// Records that a front end's stream ended at this position with tool calls for the front end.
    pub(crate) fn paused(&self, position: Position) {
        *self.paused_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
    }

    /// Returns the position at which the last such stream ended; `None` if no stream has ended so in this process.
    pub(crate) fn paused_at(&self) -> Option<Position> {
        *self.paused_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the first open question; `None` if no question is open.
    pub(crate) fn first_at(&self) -> Option<u64> {
        self.state().values().map(|asked| asked.at).min()
    }

    /// Returns the number of open questions.
    pub(crate) fn count(&self) -> usize {
        self.state().len()
    }

    fn state(&self) -> MutexGuard<'_, BTreeMap<String, AskedAt>> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
