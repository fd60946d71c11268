//! Which triggers an event can concern: by its type, its name, whose it is, and a field that their expressions compare.
//!
//! Looking up costs a few searches and what is found, however many triggers there are.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::equality::Equality;
use super::literals::Literals;
use super::owner::{Owner, TriggerKey};
use super::short::ShortText;
use crate::definition::TriggerDefinition;
use crate::event::{Event, EventType};

/// A trigger that was found: what it is called, and where the machine keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub(super) key: TriggerKey,
    pub(super) slot: u32,
    /// Where it is found its expression holds: it compares a field with a literal and says nothing else.
    pub(super) is_answered: bool,
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
struct ByName(HashTable<(u64, Box<Named>)>);

/// A name, and beside it what most of its events look at.
#[derive(Debug)]
struct Named {
    name: ShortText,
    places: Places,
}

impl ByName {
    fn get(&self, name: &str) -> Option<&Places> {
        let hash = hash_of(name);
        self.0
            .find(hash, |(own, named)| *own == hash && named.name.is(name))
            .map(|(_, named)| &named.places)
    }

    fn entry(&mut self, name: &str) -> &mut Places {
        let hash = hash_of(name);
        let is_it = |(own, named): &(u64, Box<Named>)| *own == hash && named.name.is(name);
        let named = self.0.entry(hash, is_it, |(hash, _)| *hash).or_insert_with(|| {
            let named = Named {
                name: name.into(),
                places: Places::default(),
            };
            (hash, Box::new(named))
        });
        &mut named.into_mut().1.places
    }
}

pub(super) fn hash_of(what: &(impl Hash + ?Sized)) -> u64 {
    FixedState::default().hash_one(what)
}

#[derive(Debug, Default)]
struct Places {
    anywhere: Row,
    elsewhere: Option<Box<Elsewhere>>,
}

#[derive(Debug, Default)]
struct Elsewhere {
    in_workflow: BTreeMap<Arc<str>, Row>,
    in_thread: BTreeMap<String, Row>,
}

/// Triggers that watch the same events. Mostly they compare one and the same field.
#[derive(Debug, Default)]
struct Row {
    first: Option<Literals>,
    rest: Option<Box<Rest>>,
}

#[derive(Debug, Default)]
struct Rest {
    /// Their expressions, if any, are evaluated for every event.
    all: Vec<Found>,
    by_field: BTreeMap<String, Literals>,
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
        match equality {
            Some(equality) => row.literals(&equality.field).add(equality, found),
            None => row.rest.get_or_insert_default().all.push(found),
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
        match equality {
            Some(equality) => row.remove(equality, found),
            None => row.rest.get_or_insert_default().all.retain(|other| *other != found),
        }
    }

    /// Appends what may concern the event, in no order. A trigger that names a thread may name another workflow than the
    /// event's.
    pub(super) fn find(&self, event: &Event, found: &mut Vec<Found>) {
        let Some(of_type) = self.by_type.get(&event.raised.event_type) else {
            return;
        };
        of_type.any.find(event, found);
        if let Some(name) = &event.raised.event_name
            && let Some(named) = of_type.named.get(name)
        {
            named.find(event, found);
        }
    }

    fn row_of(&mut self, owner: &Owner, definition: &TriggerDefinition) -> &mut Row {
        let names = self.by_type.entry(definition.condition.event_type).or_default();
        let places = match &definition.condition.event_name {
            None => &mut names.any,
            Some(name) => names.named.entry(name),
        };
        if let Some(thread) = &definition.thread_id {
            let elsewhere = places.elsewhere.get_or_insert_default();
            return elsewhere.in_thread.entry(thread.clone()).or_default();
        }
        match workflow_of(owner, definition) {
            Some(workflow) => {
                let elsewhere = places.elsewhere.get_or_insert_default();
                elsewhere.in_workflow.entry(workflow.into()).or_default()
            }
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

impl Places {
    fn find(&self, event: &Event, found: &mut Vec<Found>) {
        self.anywhere.find(event, found);
        if let Some(elsewhere) = &self.elsewhere {
            let workflow = elsewhere.in_workflow.get(&event.workflow_id);
            let thread = elsewhere.in_thread.get(&*event.thread_id);
            for row in [workflow, thread].into_iter().flatten() {
                row.find(event, found);
            }
        }
    }
}

impl Row {
    fn literals(&mut self, field: &str) -> &mut Literals {
        let is_first = self.first.as_ref().is_none_or(|first| first.compare(field));
        if is_first {
            return self.first.get_or_insert_with(|| Literals::new(field));
        }
        let by_field = &mut self.rest.get_or_insert_default().by_field;
        by_field.entry(field.to_owned()).or_insert_with(|| Literals::new(field))
    }

    fn remove(&mut self, equality: &Equality, found: Found) {
        let field = &equality.field;
        let literals = self.literals(field);
        literals.remove(equality, found);
        if !literals.is_empty() {
            return;
        }
        if self.first.as_ref().is_some_and(|first| first.compare(field)) {
            let next = self.rest.as_mut().and_then(|rest| rest.by_field.pop_first());
            self.first = next.map(|(_, literals)| literals);
        } else if let Some(rest) = &mut self.rest {
            rest.by_field.remove(field);
        }
    }

    fn find(&self, event: &Event, found: &mut Vec<Found>) {
        if let Some(first) = &self.first {
            first.find(&event.raised, found);
        }
        if let Some(rest) = &self.rest {
            found.extend(&rest.all);
            for literals in rest.by_field.values() {
                literals.find(&event.raised, found);
            }
        }
    }
}
