//! Index of triggers by event type, name, workflow or thread, and a field compared with a literal.
//!
//! The triggers of one event type and name are stored in hash maps: one for each combination of parts that their conditions test,
//! keyed by the values of these parts. An event makes one lookup in each map. The iteration order of a hash map is never
//! observable: the caller sorts the result.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use pirn_definition::definition::TriggerDefinition;
use pirn_definition::event_type::EventType;
use smol_str::SmolStr;

use super::equality::{Equality, FieldValue, Literal, LiteralKind, field_value};
use super::owner::{Owner, TriggerKey};
use crate::event::Event;

/// A trigger that may match an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) key: TriggerKey,
    /// True if the comparison that the index made is the whole expression, so the expression holds.
    pub(super) is_answered: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TriggerIndex {
    by_type: BTreeMap<EventType, OfType>,
}

/// Triggers of one event type.
#[derive(Clone, Debug, Default)]
struct OfType {
    /// Triggers with conditions without a name.
    unnamed: Tables,
    by_name: HashMap<SmolStr, Tables, FixedState>,
}

/// Triggers of one event type and name: a table for each combination of parts that their conditions test.
#[derive(Clone, Debug, Default)]
struct Tables(Vec<(Probe, Table)>);

type Table = HashMap<Values, Candidates, FixedState>;

/// Triggers with equal values. Most values have one trigger, which is stored inline.
#[derive(Clone, Debug)]
enum Candidates {
    One(Candidate),
    More(Vec<Candidate>),
}

/// Parts of an event that a condition tests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Probe {
    source: SourceProbe,
    field: FieldProbe,
}

/// Required source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceProbe {
    Anywhere,
    Workflow,
    Thread,
}

/// Test of a field of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldProbe {
    None,
    Equals(SmolStr),
    /// The field has another type than the literal: `==` converts, so only the expression can decide.
    NotOfKind(SmolStr, LiteralKind),
}

/// Values that a condition requires; `None` for a part that its probe does not test.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Values {
    source: Option<SmolStr>,
    literal: Option<Literal>,
}

/// A condition as the index stores it.
struct Condition {
    probe: Probe,
    values: Values,
    /// True if the trigger's expression holds for each event that matches.
    is_answered: bool,
}

impl TriggerIndex {
    pub(super) fn add(&mut self, key: TriggerKey, owner: &Owner, definition: &TriggerDefinition) {
        for event_type in definition.watches() {
            let of_type = self.by_type.entry(event_type).or_default();
            let tables = match &definition.condition.event_name {
                Some(name) => of_type.by_name.entry(name.into()).or_default(),
                None => &mut of_type.unnamed,
            };
            for condition in conditions(owner, definition) {
                let candidate = Candidate {
                    key,
                    is_answered: condition.is_answered,
                };
                tables.add(condition, candidate);
            }
        }
    }

    pub(super) fn remove(&mut self, key: TriggerKey, owner: &Owner, definition: &TriggerDefinition) {
        let name = definition.condition.event_name.as_deref();
        for event_type in definition.watches() {
            let Some(of_type) = self.by_type.get_mut(&event_type) else {
                continue;
            };
            let tables = match name {
                Some(name) => of_type.by_name.get_mut(name),
                None => Some(&mut of_type.unnamed),
            };
            if let Some(tables) = tables {
                // Parsed again instead of stored, because only a removal needs them.
                for condition in conditions(owner, definition) {
                    tables.remove(&condition, key);
                }
                // Names are arbitrary, and empty entries would accumulate. Event types are few, so their entries stay.
                if let Some(name) = name.filter(|_| tables.0.is_empty()) {
                    of_type.by_name.remove(name);
                }
            }
        }
    }

    /// Appends the triggers that may match the event, unordered, each once. A trigger that names a thread may belong to another
    /// workflow than the event's.
    pub(super) fn find(&self, event: &Event, found: &mut Vec<Candidate>) {
        let Some(of_type) = self.by_type.get(&event.raised.event_type) else {
            return;
        };
        of_type.unnamed.find(event, found);
        let name = event.raised.event_name.as_deref();
        if let Some(named) = name.and_then(|name| of_type.by_name.get(name)) {
            named.find(event, found);
        }
    }
}

impl Tables {
    fn add(&mut self, condition: Condition, candidate: Candidate) {
        let Condition { probe, values, .. } = condition;
        // Linear in the combinations of tested parts, not in the triggers.
        let place = self.0.iter().position(|(known, _)| *known == probe);
        let place = place.unwrap_or_else(|| {
            self.0.push((probe, Table::default()));
            self.0.len() - 1
        });
        match self.0[place].1.entry(values) {
            // Most values have one trigger, which needs no list.
            Entry::Vacant(place) => {
                place.insert(Candidates::One(candidate));
            }
            Entry::Occupied(mut place) => place.get_mut().push(candidate),
        }
    }

    fn remove(&mut self, condition: &Condition, key: TriggerKey) {
        let Condition { probe, values, .. } = condition;
        for (_, table) in self.0.iter_mut().filter(|(known, _)| known == probe) {
            if let Some(candidates) = table.get_mut(values) {
                let is_left = match candidates {
                    Candidates::One(candidate) => candidate.key != key,
                    Candidates::More(candidates) => {
                        candidates.retain(|candidate| candidate.key != key);
                        !candidates.is_empty()
                    }
                };
                if !is_left {
                    table.remove(values);
                }
            }
        }
        // An empty table would cost a lookup for each event.
        self.0.retain(|(_, table)| !table.is_empty());
    }

    fn find(&self, event: &Event, found: &mut Vec<Candidate>) {
        for (probe, table) in &self.0 {
            if let Some(candidates) = probe.values(event).and_then(|values| table.get(&values)) {
                found.extend(candidates.as_slice());
            }
        }
    }
}

impl Candidates {
    fn push(&mut self, candidate: Candidate) {
        match self {
            Self::One(first) => *self = Self::More(vec![*first, candidate]),
            Self::More(candidates) => candidates.push(candidate),
        }
    }

    fn as_slice(&self) -> &[Candidate] {
        match self {
            Self::One(candidate) => std::slice::from_ref(candidate),
            Self::More(candidates) => candidates,
        }
    }
}

/// Returns the conditions under which a trigger is stored.
fn conditions(owner: &Owner, definition: &TriggerDefinition) -> Vec<Condition> {
    let (source, id) = match (&definition.thread_id, watched_workflow(owner, definition)) {
        // The thread is the narrower test. `TriggerRecord::watches` checks the workflow.
        (Some(thread), _) => (SourceProbe::Thread, Some(SmolStr::from(thread))),
        (None, Some(workflow)) => (SourceProbe::Workflow, Some(SmolStr::from(workflow))),
        (None, None) => (SourceProbe::Anywhere, None),
    };
    let with_field = |field: FieldProbe, literal: Option<Literal>, is_answered: bool| Condition {
        probe: Probe { source, field },
        values: Values {
            source: id.clone(),
            literal,
        },
        is_answered,
    };
    let expression = definition.condition.expression.as_deref();
    let Some(equality) = expression.and_then(|text| Equality::read(text, definition.condition.event_type)) else {
        return vec![with_field(FieldProbe::None, None, false)];
    };
    // The evaluation of the expression is skipped only if nothing but this comparison decides it.
    let is_answered = equality.is_whole_expression();
    let other_kind = FieldProbe::NotOfKind(equality.field.clone(), equality.literal.kind());
    let equals = FieldProbe::Equals(equality.field);
    let mut conditions = vec![with_field(equals, Some(equality.literal), is_answered)];
    // A field has the type of the literal or another one: an event meets at most one condition, so `find` returns each trigger
    // once.
    if equality.is_loose {
        conditions.push(with_field(other_kind, None, false));
    }
    conditions
}

/// Returns the workflow that a trigger watches, or `None` for all workflows.
pub(super) fn watched_workflow<'a>(owner: &'a Owner, definition: &'a TriggerDefinition) -> Option<&'a str> {
    match owner {
        Owner::Engine => definition.workflow_id.as_deref(),
        Owner::Workflow(id) => Some(id),
    }
}

impl Probe {
    /// Returns the event's values for this probe, or `None` if no trigger of this probe can match.
    fn values(&self, event: &Event) -> Option<Values> {
        let literal = match &self.field {
            FieldProbe::None => None,
            FieldProbe::Equals(field) => match field_value(&event.raised, field) {
                FieldValue::Literal(literal) => Some(literal),
                FieldValue::Absent | FieldValue::Other => return None,
            },
            FieldProbe::NotOfKind(field, kind) => match field_value(&event.raised, field) {
                // By `==`, an absent or null field equals no literal, whatever its type.
                FieldValue::Absent => return None,
                FieldValue::Literal(literal) if literal.kind() == *kind => return None,
                FieldValue::Literal(_) | FieldValue::Other => None,
            },
        };
        let source = match self.source {
            SourceProbe::Anywhere => None,
            // Short ids are stored inline, so that most lookups allocate nothing.
            SourceProbe::Workflow => Some(SmolStr::new(&event.workflow_id)),
            SourceProbe::Thread => Some(SmolStr::new(&event.thread_id)),
        };
        Some(Values { source, literal })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removed_triggers_leave_no_entry() {
        let conditions = [
            json!({"eventType": "CUSTOM", "eventName": "go"}),
            json!({"eventType": "CUSTOM", "eventName": "go", "expression": "event.data.a == 1"}),
            json!({"eventType": "NODE_STARTED", "expression": "event.nodeId === 'n'"}),
            json!({"eventType": "NODE_STARTED", "expression": "event.nodeId === 'n' && true"}),
        ];
        let definitions: Vec<TriggerDefinition> = conditions
            .iter()
            .map(|condition| {
                let action = json!({"type": "STOP_THREAD", "parameters": {}});
                let trigger = json!({"id": "t", "condition": condition, "action": action});
                serde_json::from_value(trigger).expect("a trigger")
            })
            .collect();
        let mut index = TriggerIndex::default();
        for (key, definition) in (0..).zip(&definitions) {
            index.add(key, &Owner::Engine, definition);
        }
        for (key, definition) in (0..).zip(&definitions) {
            index.remove(key, &Owner::Engine, definition);
        }
        for of_type in index.by_type.values() {
            assert!(
                of_type.unnamed.0.is_empty() && of_type.by_name.is_empty(),
                "{of_type:?}"
            );
        }
    }
}
