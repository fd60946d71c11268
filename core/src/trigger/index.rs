//! The triggers that an event can concern: by type, name, workflow or thread, and a field compared with a literal.
//!
//! Every trigger stands in one hash map, under everything its condition asks for. Which parts that is differs from trigger
//! to trigger; the map of probes lists the combinations in use, and an event makes one lookup for each of those. No order
//! of a hash map is ever seen: the caller sorts what is found.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use smol_str::SmolStr;

use super::equality::{Equality, FieldValue, Literal, LiteralKind, field_value};
use super::owner::{Owner, TriggerKey};
use crate::definition::TriggerDefinition;
use crate::event::{Event, EventType};

/// A trigger that an event can concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) key: TriggerKey,
    /// Its expression is nothing but the comparison that the index made, so it holds.
    pub(super) is_answered: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TriggerIndex {
    by_condition: HashMap<Condition, Vec<Candidate>, FixedState>,
    /// The probes to make for an event, and how many triggers need each.
    probes: HashMap<EventName, BTreeMap<Probe, usize>, FixedState>,
}

/// The type of an event, and its name where the trigger asks for one.
type EventName = (EventType, Option<SmolStr>);

/// Everything that the index knows of a trigger's condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Condition {
    event: EventName,
    source: Source,
    field: FieldTest,
}

/// The source the event must come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    Anywhere,
    Workflow(SmolStr),
    Thread(SmolStr),
}

/// The test of a field of the event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FieldTest {
    None,
    Equals(SmolStr, Literal),
    /// Of another kind than this: `==` converts, so only the expression can say whether it holds.
    NotOfKind(SmolStr, LiteralKind),
}

/// The parts of an event that make up a [`Condition`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Probe {
    source: SourceProbe,
    field: FieldProbe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SourceProbe {
    Anywhere,
    Workflow,
    Thread,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FieldProbe {
    None,
    Equals(SmolStr),
    NotOfKind(SmolStr, LiteralKind),
}

impl TriggerIndex {
    pub(super) fn add(&mut self, key: TriggerKey, owner: &Owner, definition: &TriggerDefinition) {
        for (condition, is_answered) in conditions(owner, definition) {
            let probes = self.probes.entry(condition.event.clone()).or_default();
            *probes.entry(condition.probe()).or_default() += 1;
            let candidates = self.by_condition.entry(condition).or_default();
            candidates.push(Candidate { key, is_answered });
        }
    }

    pub(super) fn remove(&mut self, key: TriggerKey, owner: &Owner, definition: &TriggerDefinition) {
        for (condition, _) in conditions(owner, definition) {
            if let Some(candidates) = self.by_condition.get_mut(&condition) {
                candidates.retain(|candidate| candidate.key != key);
                if candidates.is_empty() {
                    self.by_condition.remove(&condition);
                }
            }
            let probe = condition.probe();
            let Some(probes) = self.probes.get_mut(&condition.event) else {
                continue;
            };
            let left = probes.get_mut(&probe).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                probes.remove(&probe);
            }
            if probes.is_empty() {
                self.probes.remove(&condition.event);
            }
        }
    }

    /// Appends the triggers that the event can concern, in no order, each once. A trigger that names a thread may belong
    /// to another workflow than the event's.
    pub(super) fn find(&self, event: &Event, found: &mut Vec<Candidate>) {
        let raised = &event.raised;
        let names = [None, raised.event_name.as_deref().map(SmolStr::new)];
        let count = if names[1].is_some() { 2 } else { 1 };
        for name in names.into_iter().take(count) {
            let event_name = (raised.event_type, name);
            for probe in self.probes.get(&event_name).into_iter().flat_map(BTreeMap::keys) {
                if let Some(field) = probe.field.test(event) {
                    let condition = Condition {
                        event: event_name.clone(),
                        source: probe.source.of(event),
                        field,
                    };
                    found.extend(self.by_condition.get(&condition).into_iter().flatten());
                }
            }
        }
    }
}

/// The conditions that a trigger is found under, each with whether its expression then holds.
fn conditions(owner: &Owner, definition: &TriggerDefinition) -> Vec<(Condition, bool)> {
    let equality = definition.condition.expression.as_deref().and_then(Equality::read);
    let with_field = |field: FieldTest| Condition {
        event: (
            definition.condition.event_type,
            definition.condition.event_name.as_deref().map(SmolStr::new),
        ),
        source: match (&definition.thread_id, watched_workflow(owner, definition)) {
            (Some(thread), _) => Source::Thread(thread.into()),
            (None, Some(workflow)) => Source::Workflow(workflow.into()),
            (None, None) => Source::Anywhere,
        },
        field,
    };
    let Some(equality) = equality else {
        return vec![(with_field(FieldTest::None), false)];
    };
    let kind = equality.literal.kind();
    let other_kind = FieldTest::NotOfKind(equality.field.clone(), kind);
    let is_answered = equality.is_whole_expression();
    let is_loose = equality.is_loose;
    let equals = with_field(FieldTest::Equals(equality.field, equality.literal));
    let mut conditions = vec![(equals, is_answered)];
    if is_loose {
        conditions.push((with_field(other_kind), false));
    }
    conditions
}

/// The one workflow whose events a trigger watches.
pub(super) fn watched_workflow<'a>(owner: &'a Owner, definition: &'a TriggerDefinition) -> Option<&'a str> {
    match owner {
        Owner::Engine => definition.workflow_id.as_deref(),
        Owner::Workflow(id) => Some(id),
    }
}

impl Condition {
    fn probe(&self) -> Probe {
        Probe {
            source: match self.source {
                Source::Anywhere => SourceProbe::Anywhere,
                Source::Workflow(_) => SourceProbe::Workflow,
                Source::Thread(_) => SourceProbe::Thread,
            },
            field: match &self.field {
                FieldTest::None => FieldProbe::None,
                FieldTest::Equals(field, _) => FieldProbe::Equals(field.clone()),
                FieldTest::NotOfKind(field, kind) => FieldProbe::NotOfKind(field.clone(), *kind),
            },
        }
    }
}

impl SourceProbe {
    fn of(self, event: &Event) -> Source {
        match self {
            Self::Anywhere => Source::Anywhere,
            Self::Workflow => Source::Workflow(SmolStr::new(&event.workflow_id)),
            Self::Thread => Source::Thread(SmolStr::new(&event.thread_id)),
        }
    }
}

impl FieldProbe {
    /// The test that the event passes; none where no trigger found by this probe can hold.
    fn test(&self, event: &Event) -> Option<FieldTest> {
        match self {
            Self::None => Some(FieldTest::None),
            Self::Equals(field) => match field_value(&event.raised, field) {
                FieldValue::Literal(literal) => Some(FieldTest::Equals(field.clone(), literal)),
                FieldValue::Absent | FieldValue::Other => None,
            },
            Self::NotOfKind(field, kind) => match field_value(&event.raised, field) {
                FieldValue::Absent => None,
                FieldValue::Literal(literal) if literal.kind() == *kind => None,
                FieldValue::Literal(_) | FieldValue::Other => Some(FieldTest::NotOfKind(field.clone(), *kind)),
            },
        }
    }
}
