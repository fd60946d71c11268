//! Events that the records of a replay refer to.
//!
//! The event is not copied into the record of a firing: a rebuilt run raises it again, under its current id. An imported or forked
//! run thus uses its event, and the record stores each event's data once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pirn_definition::Millis;
use pirn_events::event::Event;

use crate::run::data::effect::Effect;
use crate::run::data::message::{Message, ToSupervisor};

/// Events of a replay that its records refer to.
#[derive(Debug, Default)]
pub(in crate::run) struct NamedEvents {
    run_id: Arc<str>,
    /// Number of records that refer to each event.
    named: BTreeMap<u64, usize>,
    raised: BTreeMap<u64, Arc<Event>>,
    /// The newest events, at most `most`, which records of a later part of the journal may refer to.
    recent: VecDeque<Arc<Event>>,
    most: usize,
}

impl NamedEvents {
    /// Creates an empty set that retains the newest `most` events.
    pub(in crate::run) fn new(run_id: &Arc<str>, most: usize) -> Self {
        Self {
            run_id: Arc::clone(run_id),
            most,
            ..Self::default()
        }
    }

    /// Adds the records of further inputs.
    pub(in crate::run) fn name<'m>(&mut self, inputs: impl Iterator<Item = &'m Message>) {
        for input in inputs {
            if let Message::Supervisor(ToSupervisor::Fired(fired)) = input
                && fired.needs_event()
            {
                // Counted, because several triggers may have fired on one event.
                *self.named.entry(fired.sequence).or_insert(0) += 1;
                let recent = self.recent.iter().find(|event| event.sequence == fired.sequence);
                self.raised
                    .extend(recent.map(|event| (fired.sequence, Arc::clone(event))));
            }
        }
    }

    /// Collects the events among the effects of a step.
    pub(in crate::run) fn saw(&mut self, at: Millis, effects: &[Effect]) {
        // Most runs have no firing: their events are not examined.
        if self.named.is_empty() && self.most == 0 {
            return;
        }
        for emitted in effects.iter().filter_map(Effect::emitted) {
            for (sequence, raised) in emitted.numbered() {
                let is_named = self.named.contains_key(&sequence);
                // Only events that a later record refers to, or may refer to, are copied.
                if !is_named && self.most == 0 {
                    continue;
                }
                let event = Arc::new(emitted.event(&self.run_id, at, (sequence, raised)));
                if is_named {
                    self.raised.insert(sequence, Arc::clone(&event));
                }
                if self.recent.len() == self.most {
                    self.recent.pop_front();
                }
                if self.most > 0 {
                    self.recent.push_back(event);
                }
            }
        }
    }

    /// Attaches the event to a record. Returns false if the run has raised no matching event.
    pub(in crate::run) fn complete(&mut self, input: &mut Message) -> bool {
        let Message::Supervisor(ToSupervisor::Fired(fired)) = input else {
            return true;
        };
        if !fired.needs_event() {
            return true;
        }
        fired.event = (self.raised.get(&fired.sequence))
            .filter(|event| fired.fits(event))
            .cloned();
        if let Some(records) = self.named.get_mut(&fired.sequence) {
            *records -= 1;
            if *records == 0 {
                // Freed with the last reference: a long run would otherwise hold every such event until the end of the replay.
                self.named.remove(&fired.sequence);
                self.raised.remove(&fired.sequence);
            }
        }
        fired.event.is_some()
    }
}
