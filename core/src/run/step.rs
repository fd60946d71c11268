//! Context of one step of a run: time, environment and the list of effects.

use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::event_type::EventType;
use pirn_definition::graph::Graph;
use pirn_events::event::{EventMask, RaisedEvent};

use super::data::effect::Effect;
use super::environment::{EventInterest, RunEnvironment};

pub(super) struct Step<'a> {
    pub(super) now: Millis,
    pub(super) env: &'a mut dyn RunEnvironment,
    pub(super) out: &'a mut Vec<Effect>,
    pub(super) listening: EventInterest,
    /// Event types for which a WAIT node of the run has waited.
    pub(super) awaited: EventMask,
    /// True if the step raised an event that a trigger watches.
    pub(super) raised_watched: bool,
    /// Number of events that the run has raised.
    pub(super) events: u64,
}

impl<'a> Step<'a> {
    pub(super) fn new(
        now: Millis,
        (awaited, events): (EventMask, u64),
        env: &'a mut dyn RunEnvironment,
        out: &'a mut Vec<Effect>,
    ) -> Self {
        Self {
            now,
            events,
            // Read once: a record contains one set of subscriptions for each input, and a replay must build the same events.
            listening: env.listening(),
            awaited,
            env,
            out,
            raised_watched: false,
        }
    }

    /// Returns the event types with subscribers, including WAIT nodes.
    pub(super) fn interest(&self) -> EventMask {
        self.listening.interest.union(self.awaited)
    }

    pub(super) fn listens(&self, event_type: EventType) -> bool {
        self.interest().contains(event_type)
    }

    pub(super) fn emit(&mut self, graph: &Arc<Graph>, thread_id: &Arc<str>, event: RaisedEvent) {
        // The outcome of the run waits for the triggers that watch this event (`Termination`).
        self.note_watched(EventMask::of(event.event_type));
        self.events += 1;
        self.out.push(Effect::Emit {
            sequence: self.events,
            graph: Arc::clone(graph),
            thread_id: Arc::clone(thread_id),
            event,
        });
    }

    pub(super) fn note_watched(&mut self, types: EventMask) {
        self.raised_watched |= self.listening.watched.intersects(types);
    }
}
