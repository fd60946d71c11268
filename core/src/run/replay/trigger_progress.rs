//! Recorded progress of a run's triggers over its events. After a crash it determines which events have yet to be matched.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::record::ReplayStep;
use crate::run::data::effect::Effect;
use crate::run::data::message::{Message, ToSupervisor};

/// Progress of the triggers.
#[derive(Clone, Debug, Default)]
pub struct TriggerProgress {
    /// Triggers that have fired, each with the sequence number of the event.
    fired: BTreeSet<(u64, Arc<str>)>,
    /// All triggers were matched with the events up to this sequence number.
    matched: u64,
    /// Sequence number of the last event, and of the last event before the latest [`crate::run::ToSupervisor::TriggersQuiet`] request.
    raised: u64,
    asked: u64,
}

/// Remaining work for an event and a trigger that watches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// The trigger has fired. Its action is recorded and not repeated.
    Fired,
    /// The trigger has not fired on this event and will not.
    Over,
    /// Unknown: the trigger must be matched with the event now.
    Open,
}

impl TriggerProgress {
    /// Applies one element of a replay.
    pub fn saw(&mut self, replayed: &ReplayStep<'_>) {
        match replayed {
            ReplayStep::Input(input) => match &input.message {
                Message::Supervisor(ToSupervisor::Fired(fired)) => {
                    self.fired.insert((fired.sequence, Arc::clone(&fired.trigger)));
                }
                // The answer covers the events before the request only: later ones may be unmatched.
                Message::Supervisor(ToSupervisor::TriggersQuiet) => self.matched = self.asked,
                Message::Supervisor(_) | Message::Thread(..) | Message::Conversation(..) => {}
            },
            ReplayStep::Effects(_, effects) => effects.iter().for_each(|effect| self.did(effect)),
        }
    }

    fn did(&mut self, effect: &Effect) {
        match effect {
            Effect::Emit { sequence, .. } => self.raised = *sequence,
            // The list may be empty (`Message::limit_levels` empties a refused raise): the result is then the event before `first`.
            Effect::EmitAll { first, events, .. } => self.raised = first + events.len() as u64 - 1,
            Effect::QuiesceTriggers => self.asked = self.raised,
            _ => {}
        }
    }

    /// Returns the remaining work for an event and the trigger of this name. Triggers match events in order, so that all events
    /// before the last one with a firing have been matched. A firing is recorded before anything follows from it.
    pub fn about(&self, sequence: u64, trigger: &Arc<str>) -> Matching {
        // The set is ordered by sequence number first, so that its last element has the highest one.
        let last = self.fired.last().map_or(0, |(sequence, _)| *sequence);
        if self.fired.contains(&(sequence, Arc::clone(trigger))) {
            Matching::Fired
        // Not `<=`: the process may have ended between two triggers of the last event.
        } else if sequence <= self.matched || sequence < last {
            Matching::Over
        } else {
            Matching::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use pirn_definition::definition::{SourceFile, load};
    use pirn_definition::event_type::EventType;
    use pirn_definition::graph::{CompileContext, compile_loaded};
    use pirn_events::event::RaisedEvent;

    use super::*;
    use crate::run::data::message::FiringRecord;
    use crate::run::environment::EventInterest;
    use crate::run::replay::record::JournaledInput;

    fn journaled(message: ToSupervisor) -> JournaledInput {
        JournaledInput {
            at: 0,
            after: 0,
            listening: EventInterest::default(),
            uncarried: false,
            before: Vec::new(),
            message: Message::Supervisor(message),
            settings: Vec::new(),
        }
    }

    #[test]
    fn an_event_is_matched_again_unless_its_match_is_recorded() {
        let text = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
                       "edges": [{"from": "s", "to": "e"}]}"#;
        let loaded = load(&SourceFile::new("w.json", text));
        let graph = compile_loaded(&loaded, &CompileContext::default()).graphs.remove(0);
        let mut acted = TriggerProgress::default();
        let emit = |sequence| Effect::Emit {
            sequence,
            graph: Arc::clone(&graph),
            thread_id: "r.0".into(),
            event: RaisedEvent::new(EventType::NodeCompleted, []),
        };
        let (one, other): (Arc<str>, Arc<str>) = ("w/one".into(), "w/other".into());
        acted.saw(&ReplayStep::Effects(0, &mut (1..=4).map(emit).collect()));
        assert_eq!(acted.about(1, &one), Matching::Open, "nothing is recorded");
        let fired = FiringRecord::new(3, Arc::clone(&one), None);
        acted.saw(&ReplayStep::Input(&journaled(ToSupervisor::Fired(Box::new(fired)))));
        assert_eq!(
            acted.about(2, &one),
            Matching::Over,
            "met before the one that it fired on"
        );
        assert_eq!(acted.about(3, &one), Matching::Fired);
        assert_eq!(
            acted.about(3, &other),
            Matching::Open,
            "the process may have ended in between"
        );
        assert_eq!(acted.about(4, &one), Matching::Open);
        acted.saw(&ReplayStep::Effects(0, &mut vec![Effect::QuiesceTriggers, emit(5)]));
        acted.saw(&ReplayStep::Input(&journaled(ToSupervisor::TriggersQuiet)));
        assert_eq!(acted.about(4, &other), Matching::Over, "they were quiet after it");
        assert_eq!(acted.about(5, &one), Matching::Open, "raised after the question");
    }
}
