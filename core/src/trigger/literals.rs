//! Triggers that compare one field of the event with literals.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::equality::{Equality, Kind, Known, Literal, Seen, known};
use super::index::{Found, hash_of};
use super::short::ShortText;
use crate::event::RaisedEvent;

/// Triggers that compare the same field.
#[derive(Debug)]
pub(super) struct Literals {
    field: ShortText,
    /// By what they compare it with, which lies in the table itself.
    equal: HashTable<Equal>,
    /// Those of them that compare by `==`, by their literal's kind, for a value of another kind.
    loose: BTreeMap<Kind, Vec<Found>>,
}

/// Triggers that have the same literal. Mostly it is one.
#[derive(Debug)]
struct Equal {
    literal: Own,
    first: Found,
    #[allow(clippy::box_collection)] // mostly there are none, and what many of these take is what an event waits for
    more: Option<Box<BTreeSet<Found>>>,
}

#[derive(Debug)]
enum Own {
    Text(ShortText),
    Whole(i64),
    Bool(bool),
}

impl Own {
    fn is(&self, seen: Seen<'_>) -> bool {
        match (self, seen) {
            (Self::Text(own), Seen::Text(text)) => own.is(text),
            (Self::Whole(own), Seen::Whole(whole)) => *own == whole,
            (Self::Bool(own), Seen::Bool(flag)) => *own == flag,
            (Self::Text(_) | Self::Whole(_) | Self::Bool(_), _) => false,
        }
    }

    fn seen(&self) -> Seen<'_> {
        match self {
            Self::Text(text) => Seen::Text(text.as_str()),
            Self::Whole(whole) => Seen::Whole(*whole),
            Self::Bool(flag) => Seen::Bool(*flag),
        }
    }
}

impl From<&Literal> for Own {
    fn from(literal: &Literal) -> Self {
        match literal {
            Literal::Text(text) => Self::Text(text.as_str().into()),
            Literal::Whole(whole) => Self::Whole(*whole),
            Literal::Bool(flag) => Self::Bool(*flag),
        }
    }
}

impl Literals {
    pub(super) fn new(field: &str) -> Self {
        Self {
            field: field.into(),
            equal: HashTable::new(),
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
        let seen = equality.literal.seen();
        let hash_of_one = |equal: &Equal| hash_of(&equal.literal.seen());
        match self
            .equal
            .entry(hash_of(&seen), |equal| equal.literal.is(seen), hash_of_one)
        {
            Entry::Occupied(mut equal) => {
                equal.get_mut().more.get_or_insert_default().insert(found);
            }
            Entry::Vacant(place) => {
                let literal = Own::from(&equality.literal);
                let (first, more) = (found, None);
                place.insert(Equal { literal, first, more });
            }
        }
        if equality.is_loose {
            let kind = equality.literal.kind();
            self.loose.entry(kind).or_default().push(found);
        }
    }

    pub(super) fn remove(&mut self, equality: &Equality, found: Found) {
        if let Some(loose) = self.loose.get_mut(&equality.literal.kind()) {
            loose.retain(|other| *other != found);
        }
        let seen = equality.literal.seen();
        let Ok(mut equal) = self.equal.find_entry(hash_of(&seen), |equal| equal.literal.is(seen)) else {
            return;
        };
        let Equal { first, more, .. } = equal.get_mut();
        if *first != found {
            if let Some(more) = more {
                more.remove(&found);
            }
        } else if let Some(next) = more.as_mut().and_then(|more| more.pop_first()) {
            *first = next;
        } else {
            equal.remove();
        }
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
        if let Some(equal) = self.equal.find(hash_of(&seen), |equal| equal.literal.is(seen)) {
            found.push(equal.first);
            if let Some(more) = &equal.more {
                found.extend(more.iter());
            }
        }
    }
}
