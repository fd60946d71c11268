//! Which triggers an event can concern: by its type, its name, whose it is, and a field that their expressions compare.
//!
//! Looking up costs a few searches and what is found, however many triggers there are.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::equality::{Equality, Kind, Known, Literal, known};
use super::owner::{Owner, TriggerKey};
use crate::definition::TriggerDefinition;
use crate::event::{Event, EventType};

#[derive(Debug, Default)]
pub(super) struct Index {
    by_type: BTreeMap<EventType, Names>,
}

#[derive(Debug, Default)]
struct Names {
    any: Places,
    named: ByName,
}

/// Names by their hash: a search that compares names reads one of them, scattered over the memory, for every step. It
/// is the same hash in every process, and its order is nowhere seen.
#[derive(Debug, Default)]
struct ByName(BTreeMap<u64, Vec<(String, Places)>>);

impl ByName {
    fn get(&self, name: &str) -> Option<&Places> {
        let alike = self.0.get(&hash_of(name))?;
        alike.iter().find(|(own, _)| own == name).map(|(_, places)| places)
    }

    fn entry(&mut self, name: &str) -> &mut Places {
        let alike = self.0.entry(hash_of(name)).or_default();
        let place = alike.iter().position(|(own, _)| own == name).unwrap_or_else(|| {
            // Hashes differ, but for a miracle.
            alike.reserve_exact(1);
            alike.push((name.to_owned(), Places::default()));
            alike.len() - 1
        });
        &mut alike[place].1
    }
}

fn hash_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[derive(Debug, Default)]
struct Places {
    anywhere: Row,
    in_workflow: BTreeMap<Arc<str>, Row>,
    in_thread: BTreeMap<String, Row>,
}

/// Triggers that watch the same events.
#[derive(Debug, Default)]
struct Row {
    /// Their expressions, if any, are evaluated for every event.
    all: Vec<TriggerKey>,
    by_field: BTreeMap<String, Field>,
}

/// Triggers that compare the same field.
#[derive(Debug, Default)]
struct Field {
    equal: BTreeSet<(Literal, TriggerKey)>,
    /// Those of them that compare by `==`, by their literal's kind, for a value of another kind.
    loose: BTreeMap<Kind, Vec<TriggerKey>>,
}

impl Index {
    pub(super) fn add(
        &mut self,
        key: TriggerKey,
        owner: &Owner,
        definition: &TriggerDefinition,
        equality: Option<&Equality>,
    ) {
        let row = self.row_of(owner, definition);
        let Some(equality) = equality else {
            return row.all.push(key);
        };
        let field = row.by_field.entry(equality.field.clone()).or_default();
        field.equal.insert((equality.literal.clone(), key));
        if equality.is_loose {
            field.loose.entry(equality.literal.kind()).or_default().push(key);
        }
    }

    pub(super) fn remove(
        &mut self,
        key: TriggerKey,
        owner: &Owner,
        definition: &TriggerDefinition,
        equality: Option<&Equality>,
    ) {
        let row = self.row_of(owner, definition);
        let Some(equality) = equality else {
            return forget(&mut row.all, key);
        };
        if let Some(field) = row.by_field.get_mut(&equality.field) {
            if let Some(loose) = field.loose.get_mut(&equality.literal.kind()) {
                forget(loose, key);
            }
            field.equal.remove(&(equality.literal.clone(), key));
            if field.equal.is_empty() {
                row.by_field.remove(&equality.field);
            }
        }
    }

    /// Appends what may concern the event. A trigger that names a thread may name another workflow than the event's.
    pub(super) fn find(&self, event: &Event, found: &mut Vec<TriggerKey>) {
        let Some(of_type) = self.by_type.get(&event.raised.event_type) else {
            return;
        };
        let named = event
            .raised
            .event_name
            .as_ref()
            .and_then(|name| of_type.named.get(name));
        for places in [Some(&of_type.any), named].into_iter().flatten() {
            let workflow = places.in_workflow.get(&event.workflow_id);
            let thread = places.in_thread.get(&*event.thread_id);
            for row in [Some(&places.anywhere), workflow, thread].into_iter().flatten() {
                row.find(event, found);
            }
        }
    }

    fn row_of(&mut self, owner: &Owner, definition: &TriggerDefinition) -> &mut Row {
        let names = self.by_type.entry(definition.condition.event_type).or_default();
        let places = match &definition.condition.event_name {
            None => &mut names.any,
            Some(name) => names.named.entry(name),
        };
        if let Some(thread) = &definition.thread_id {
            return places.in_thread.entry(thread.clone()).or_default();
        }
        match workflow_of(owner, definition) {
            Some(workflow) => places.in_workflow.entry(workflow.into()).or_default(),
            None => &mut places.anywhere,
        }
    }
}

/// The one workflow whose events a trigger watches.
pub(super) fn workflow_of<'a>(owner: &'a Owner, definition: &'a TriggerDefinition) -> Option<&'a str> {
    match owner {
        Owner::Engine => definition.workflow_id.as_deref(),
        Owner::Workflow(id) => Some(id),
    }
}

impl Row {
    fn find(&self, event: &Event, found: &mut Vec<TriggerKey>) {
        found.extend(&self.all);
        for (name, field) in &self.by_field {
            match known(&event.raised, name) {
                Known::Nothing => {}
                Known::Other => found.extend(field.loose.values().flatten()),
                Known::Is(literal) => {
                    // `==` between different kinds converts; whether it holds is for the expression to say.
                    let others = field.loose.iter().filter(|(kind, _)| **kind != literal.kind());
                    found.extend(others.flat_map(|(_, keys)| keys));
                    let from = (literal, TriggerKey::MIN);
                    let equal = field.equal.range(&from..).take_while(|(other, _)| *other == from.0);
                    found.extend(equal.map(|(_, key)| *key));
                }
            }
        }
    }
}

fn forget(keys: &mut Vec<TriggerKey>, key: TriggerKey) {
    keys.retain(|other| *other != key);
}
