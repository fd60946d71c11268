//! Record of a trigger's firing: the sequence number of the event, and the action.
//!
//! The event is not copied into the record: a rebuilt run raises it again, under its current id. An imported or forked run thus
//! uses its event, and the record stores each event's data once.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::definition::{InDoubt, TriggerDefinition};
use pirn_events::event::Event;
use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::firing::Firing;
use super::message::{Message, ToSupervisor};
use super::record::JournaledInput;
use super::trigger_calls::{CallTarget, TriggerCall};

/// A trigger fired on an event of the run. Firing and action are one message, so that they are recorded atomically.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FiringRecord {
    /// Sequence number of the event.
    pub sequence: u64,
    /// Name of the trigger, with its owner.
    pub trigger: Arc<str>,
    /// The event. Not serialized: a rebuilt run raises it again before this message is taken.
    #[serde(skip)]
    event: Option<Arc<Event>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    does: Option<Action>,
}

/// Action of a trigger in the run that raised the event.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Action {
    Fire(Arc<TriggerDefinition>),
    FireAlone(Arc<TriggerDefinition>),
    Call {
        trigger_id: Arc<str>,
        target: CallTarget,
        in_doubt: InDoubt,
        holds_outcome: bool,
    },
    /// A message that does not contain the event.
    Tell(Box<Message>),
}

impl FiringRecord {
    /// Creates the record. `does` is the message to the run; `None` if the trigger does nothing in the run.
    pub fn new(sequence: u64, trigger: Arc<str>, does: Option<Message>) -> Self {
        let (event, does) = match does {
            None => (None, None),
            Some(Message::Supervisor(ToSupervisor::Fire(firing))) => {
                (Some(firing.event), Some(Action::Fire(firing.trigger)))
            }
            Some(Message::Supervisor(ToSupervisor::FireAlone(firing))) => {
                (Some(firing.event), Some(Action::FireAlone(firing.trigger)))
            }
            Some(Message::Supervisor(ToSupervisor::CallTrigger(call))) => {
                // The sender usually passes its only reference: the call is moved, not copied.
                let TriggerCall {
                    trigger_id,
                    event,
                    target,
                    in_doubt,
                    holds_outcome,
                } = Arc::unwrap_or_clone(call);
                let call = Action::Call {
                    trigger_id,
                    target,
                    in_doubt,
                    holds_outcome,
                };
                (Some(event), Some(call))
            }
            // The message itself: it has no event that could be left out of the record.
            Some(message) => (None, Some(Action::Tell(Box::new(message)))),
        };
        Self {
            sequence,
            trigger,
            event,
            does,
        }
    }

    /// Returns true if the event must be attached before the message is taken.
    fn needs_event(&self) -> bool {
        match &self.does {
            Some(Action::Fire(_) | Action::FireAlone(_) | Action::Call { .. }) => self.event.is_none(),
            Some(Action::Tell(_)) | None => false,
        }
    }

    /// Returns false if the trigger does not watch events of this type.
    fn fits(&self, event: &Event) -> bool {
        match &self.does {
            Some(Action::Fire(trigger) | Action::FireAlone(trigger)) => {
                // False if the run was rebuilt under another definition: another event may have this number then.
                trigger.watches().any(|watched| watched == event.raised.event_type)
            }
            // The record of a call does not have the definition of the trigger.
            Some(Action::Call { .. } | Action::Tell(_)) | None => true,
        }
    }

    /// Returns the message for the run; `None` if the trigger does nothing there.
    pub(super) fn message(self) -> Option<Message> {
        let message = match (self.does?, self.event) {
            (Action::Tell(message), _) => return Some(*message),
            (Action::Fire(trigger), Some(event)) => ToSupervisor::Fire(Box::new(Firing { trigger, event })),
            (Action::FireAlone(trigger), Some(event)) => ToSupervisor::FireAlone(Box::new(Firing { trigger, event })),
            (
                Action::Call {
                    trigger_id,
                    target,
                    in_doubt,
                    holds_outcome,
                },
                Some(event),
            ) => ToSupervisor::CallTrigger(Arc::new(TriggerCall {
                trigger_id,
                event,
                target,
                in_doubt,
                holds_outcome,
            })),
            // Not reached: a replay ends with `Diverged` if `NamedEvents::complete` finds no event.
            (Action::Fire(_) | Action::FireAlone(_) | Action::Call { .. }, None) => return None,
        };
        Some(Message::Supervisor(message))
    }
}

/// Events of a replay that its records refer to.
#[derive(Debug, Default)]
pub(super) struct NamedEvents {
    run_id: Arc<str>,
    /// Number of records that refer to each event.
    named: BTreeMap<u64, usize>,
    raised: BTreeMap<u64, Arc<Event>>,
}

impl NamedEvents {
    pub(super) fn of(run_id: &Arc<str>, told: &[JournaledInput]) -> Self {
        let mut named = BTreeMap::new();
        for told in told {
            if let Message::Supervisor(ToSupervisor::Fired(fired)) = &told.message
                && fired.needs_event()
            {
                // Counted, because several triggers may have fired on one event.
                *named.entry(fired.sequence).or_insert(0) += 1;
            }
        }
        Self {
            run_id: Arc::clone(run_id),
            named,
            raised: BTreeMap::new(),
        }
    }

    /// Collects the events among the effects of a step.
    pub(super) fn saw(&mut self, at: Millis, effects: &[Effect]) {
        // Most runs have no firing: their events are not examined.
        if self.named.is_empty() {
            return;
        }
        for emitted in effects.iter().filter_map(Effect::emitted) {
            for (sequence, raised) in emitted.numbered() {
                // Only events that a later record refers to are copied.
                if self.named.contains_key(&sequence) {
                    let event = emitted.event(&self.run_id, at, (sequence, raised));
                    self.raised.insert(sequence, Arc::new(event));
                }
            }
        }
    }

    /// Attaches the event to a record. Returns false if the run has raised no matching event.
    pub(super) fn complete(&mut self, told: &mut JournaledInput) -> bool {
        let Message::Supervisor(ToSupervisor::Fired(fired)) = &mut told.message else {
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
