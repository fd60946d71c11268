//! Triggers that compare one field of the event with literals.

use std::collections::BTreeMap;

use super::equality::{Equality, Kind, Known, known};
use super::index::Found;
use super::short::ShortText;
use super::table::Table;
use crate::event::RaisedEvent;

/// Triggers that compare the same field.
#[derive(Debug)]
pub(super) struct Literals {
    field: ShortText,
    /// By what they compare it with.
    equal: Table,
    /// Those of them that compare by `==`, by their literal's kind, for a value of another kind.
    loose: BTreeMap<Kind, Vec<Found>>,
}

impl Literals {
    pub(super) fn new(field: &str) -> Self {
        Self {
            field: field.into(),
            equal: Table::default(),
            loose: BTreeMap::new(),
        }
    }

    /// Whether they compare this field.
    pub(super) fn compare(&self, field: &str) -> bool {
        self.field.is(field)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.equal.is_empty()
    }

    pub(super) fn add(&mut self, equality: &Equality, found: Found) {
        self.equal.add(&equality.literal, found);
        if equality.is_loose {
            let kind = equality.literal.kind();
            self.loose.entry(kind).or_default().push(found);
        }
    }

    pub(super) fn remove(&mut self, equality: &Equality, found: Found) {
        if let Some(loose) = self.loose.get_mut(&equality.literal.kind()) {
            loose.retain(|other| *other != found);
        }
        self.equal.remove(&equality.literal, found);
    }

    /// Appends those that the event may hold for.
    pub(super) fn find(&self, event: &RaisedEvent, found: &mut Vec<Found>) {
        let seen = match known(event, self.field.as_str()) {
            Known::Nothing => return,
            Known::Other => return found.extend(self.loose.values().flatten()),
            Known::Is(seen) => seen,
        };
        // `==` between different kinds converts; whether it holds is for the expression to say.
        for (_, others) in self.loose.iter().filter(|(kind, _)| **kind != seen.kind()) {
            found.extend(others);
        }
        self.equal.find(seen, found);
    }
}
