//! Which triggers an event can concern: by its type, its name, whose it is, and a field that their expressions compare.
//!
//! Looking up costs a few searches and what is found, however many triggers there are.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::equality::{Equality, Kind, Known, Literal, Seen, known};
use super::owner::{Owner, TriggerKey};
use crate::definition::TriggerDefinition;
use crate::event::{Event, EventType};

/// A trigger that was found: what it is called, and where the machine keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub(super) key: TriggerKey,
    pub(super) slot: u32,
}

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
/// is the same hash in every process, and the table's order is nowhere seen.
#[derive(Debug, Default)]
struct ByName(HashTable<Named>);

#[derive(Debug)]
struct Named {
    hash: u64,
    name: Box<str>,
    places: Box<Places>,
}

impl ByName {
    fn get(&self, name: &str) -> Option<&Places> {
        self.0
            .find(hash_of(name), |named| *named.name == *name)
            .map(|named| &*named.places)
    }

    fn entry(&mut self, name: &str) -> &mut Places {
        let hash = hash_of(name);
        let named = self
            .0
            .entry(hash, |named| *named.name == *name, |named| named.hash)
            .or_insert_with(|| Named {
                hash,
                name: name.into(),
                places: Box::default(),
            });
        &mut named.into_mut().places
    }
}

fn hash_of(what: &(impl Hash + ?Sized)) -> u64 {
    FixedState::default().hash_one(what)
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
    all: Vec<Found>,
    by_field: BTreeMap<String, Field>,
}

/// Triggers that compare the same field.
#[derive(Debug, Default)]
struct Field {
    /// By their literal's hash: whether it is that literal is seen at the trigger, which is looked at anyway.
    equal: HashTable<Equal>,
    /// Those of them that compare by `==`, by their literal's kind, for a value of another kind.
    loose: BTreeMap<Kind, Vec<Found>>,
}

/// Triggers whose literals have this hash.
#[derive(Debug)]
struct Equal {
    hash: u64,
    first: Found,
    more: BTreeSet<Found>,
}

impl Field {
    fn add(&mut self, literal: &Literal, found: Found) {
        let hash = hash_of(&literal.seen());
        match self.equal.entry(hash, |equal| equal.hash == hash, |equal| equal.hash) {
            Entry::Occupied(mut equal) => {
                equal.get_mut().more.insert(found);
            }
            Entry::Vacant(place) => {
                let (first, more) = (found, BTreeSet::new());
                place.insert(Equal { hash, first, more });
            }
        }
    }

    fn remove(&mut self, literal: &Literal, found: Found) {
        let hash = hash_of(&literal.seen());
        let Ok(mut equal) = self.equal.find_entry(hash, |equal| equal.hash == hash) else {
            return;
        };
        let Equal { first, more, .. } = equal.get_mut();
        if *first != found {
            more.remove(&found);
        } else if let Some(next) = more.pop_first() {
            *first = next;
        } else {
            equal.remove();
        }
    }

    fn find(&self, seen: Seen<'_>, found: &mut Vec<Found>) {
        let hash = hash_of(&seen);
        if let Some(equal) = self.equal.find(hash, |equal| equal.hash == hash) {
            found.push(equal.first);
            found.extend(&equal.more);
        }
    }
}

impl Index {
    pub(super) fn add(
        &mut self,
        found: Found,
        owner: &Owner,
        definition: &TriggerDefinition,
        equality: Option<&Equality>,
    ) {
        let row = self.row_of(owner, definition);
        let Some(equality) = equality else {
            return row.all.push(found);
        };
        let field = row.by_field.entry(equality.field.clone()).or_default();
        field.add(&equality.literal, found);
        if equality.is_loose {
            field.loose.entry(equality.literal.kind()).or_default().push(found);
        }
    }

    pub(super) fn remove(
        &mut self,
        found: Found,
        owner: &Owner,
        definition: &TriggerDefinition,
        equality: Option<&Equality>,
    ) {
        let row = self.row_of(owner, definition);
        let Some(equality) = equality else {
            return forget(&mut row.all, found);
        };
        if let Some(field) = row.by_field.get_mut(&equality.field) {
            if let Some(loose) = field.loose.get_mut(&equality.literal.kind()) {
                forget(loose, found);
            }
            field.remove(&equality.literal, found);
            if field.equal.is_empty() {
                row.by_field.remove(&equality.field);
            }
        }
    }

    /// Appends what may concern the event, in no order, maybe also what compares a field with a literal of the same hash
    /// as the event's. A trigger that names a thread may name another workflow than the event's.
    pub(super) fn find(&self, event: &Event, found: &mut Vec<Found>) {
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
    fn find(&self, event: &Event, found: &mut Vec<Found>) {
        found.extend(&self.all);
        for (name, field) in &self.by_field {
            match known(&event.raised, name) {
                Known::Nothing => {}
                Known::Other => found.extend(field.loose.values().flatten()),
                Known::Is(seen) => {
                    // `==` between different kinds converts; whether it holds is for the expression to say.
                    let others = field.loose.iter().filter(|(kind, _)| **kind != seen.kind());
                    found.extend(others.flat_map(|(_, keys)| keys));
                    field.find(seen, found);
                }
            }
        }
    }
}

fn forget(list: &mut Vec<Found>, found: Found) {
    list.retain(|other| *other != found);
}
