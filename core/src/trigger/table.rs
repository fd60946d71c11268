//! Triggers by the literal that they compare a field with.
//!
//! An event looks for one literal, among those of thousands of names that no cache holds: what counts is how many places of
//! memory that takes. Few literals are told apart by a byte of their hash, which stands beside what is looked at anyway; of
//! the literals themselves, which lie elsewhere, one is looked at.

use std::collections::BTreeSet;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::equality::{Literal, Seen};
use super::index::{Found, hash_of};
use super::short::ShortText;

/// How many literals are few.
const FEW: usize = 16;

#[derive(Debug)]
pub(super) enum Table {
    Few([u8; FEW], Vec<Equal>),
    Many(HashTable<Equal>),
}

/// Triggers that have the same literal. Mostly it is one.
#[derive(Debug)]
pub(super) struct Equal {
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

impl Default for Table {
    fn default() -> Self {
        Self::Few([0; FEW], Vec::new())
    }
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(_, equal) => equal.is_empty(),
            Self::Many(equal) => equal.is_empty(),
        }
    }

    pub(super) fn add(&mut self, literal: &Literal, found: Found) {
        let seen = literal.seen();
        let hash = hash_of(&seen);
        if let Self::Few(bytes, equal) = self {
            if let Some(place) = place_of(bytes, equal, hash, seen) {
                return equal[place].add(found);
            }
            if let Some(byte) = bytes.get_mut(equal.len()) {
                *byte = byte_of(hash);
                return equal.push(Equal::new(literal, found));
            }
            let mut many = HashTable::new();
            for equal in equal.drain(..) {
                many.insert_unique(equal.hash(), equal, Equal::hash);
            }
            *self = Self::Many(many);
        }
        if let Self::Many(equal) = self {
            match equal.entry(hash, |equal| equal.literal.is(seen), Equal::hash) {
                Entry::Occupied(mut equal) => equal.get_mut().add(found),
                Entry::Vacant(place) => {
                    place.insert(Equal::new(literal, found));
                }
            }
        }
    }

    pub(super) fn remove(&mut self, literal: &Literal, found: Found) {
        let seen = literal.seen();
        let hash = hash_of(&seen);
        match self {
            Self::Few(bytes, equal) => {
                if let Some(place) = place_of(bytes, equal, hash, seen)
                    && equal[place].remove(found)
                {
                    bytes[place] = bytes[equal.len() - 1];
                    equal.swap_remove(place);
                }
            }
            Self::Many(equal) => {
                if let Ok(mut equal) = equal.find_entry(hash, |equal| equal.literal.is(seen))
                    && equal.get_mut().remove(found)
                {
                    equal.remove();
                }
            }
        }
    }

    /// Appends those that have this literal.
    pub(super) fn find(&self, seen: Seen<'_>, found: &mut Vec<Found>) {
        let hash = hash_of(&seen);
        let equal = match self {
            Self::Few(bytes, equal) => place_of(bytes, equal, hash, seen).and_then(|place| equal.get(place)),
            Self::Many(equal) => equal.find(hash, |equal| equal.literal.is(seen)),
        };
        if let Some(equal) = equal {
            found.push(equal.first);
            if let Some(more) = &equal.more {
                found.extend(more.iter());
            }
        }
    }
}

fn place_of(bytes: &[u8; FEW], equal: &[Equal], hash: u64, seen: Seen<'_>) -> Option<usize> {
    let mut places = bytes.iter().zip(0..equal.len());
    let byte = byte_of(hash);
    let is_it = |place: usize| equal.get(place).is_some_and(|equal| equal.literal.is(seen));
    places.find_map(|(own, place)| (*own == byte && is_it(place)).then_some(place))
}

fn byte_of(hash: u64) -> u8 {
    (hash >> 56) as u8
}

impl Equal {
    fn new(literal: &Literal, first: Found) -> Self {
        let (literal, more) = (Own::from(literal), None);
        Self { literal, first, more }
    }

    fn hash(&self) -> u64 {
        hash_of(&self.literal.seen())
    }

    fn add(&mut self, found: Found) {
        self.more.get_or_insert_default().insert(found);
    }

    /// Whether none is left.
    fn remove(&mut self, found: Found) -> bool {
        let Self { first, more, .. } = self;
        if *first != found {
            if let Some(more) = more {
                more.remove(&found);
            }
            return false;
        }
        match more.as_mut().and_then(|more| more.pop_first()) {
            Some(next) => *first = next,
            None => return true,
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Of numbers, some equal texts and some flags.
    fn literal(n: u8) -> Literal {
        match n {
            0 | 1 => Literal::Bool(n == 1),
            2..20 => Literal::Text(n.to_string().repeat(usize::from(n))),
            _ => Literal::Whole(i64::from(n) - 30),
        }
    }

    proptest! {
        #[test]
        fn few_or_many_literals_lead_to_the_triggers_that_have_them_and_to_no_others(
            steps in prop::collection::vec((any::<bool>(), 0..60_u8, 0..3_u32), 0..200),
        ) {
            let mut table = Table::default();
            let mut expected: BTreeMap<u8, BTreeSet<Found>> = BTreeMap::new();
            for (is_added, n, key) in steps {
                let found = Found { key, slot: u32::from(n), is_answered: key == 1 };
                let own = expected.entry(n).or_default();
                if is_added {
                    if own.insert(found) {
                        table.add(&literal(n), found);
                    }
                } else {
                    own.remove(&found);
                    table.remove(&literal(n), found);
                }
                for n in 0..60 {
                    let mut all = Vec::new();
                    table.find(literal(n).seen(), &mut all);
                    all.sort_unstable();
                    prop_assert!(all.iter().eq(expected.get(&n).into_iter().flatten()), "{n}: {all:?}");
                }
                prop_assert_eq!(table.is_empty(), expected.values().all(BTreeSet::is_empty));
            }
        }
    }
}
