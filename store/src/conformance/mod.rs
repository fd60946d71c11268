//! Conformance suite for stores.
//!
//! ```
//! use pirn_store::{MemoryStore, Store, conformance};
//!
//! conformance::check(|_name| {
//!     let store = MemoryStore::new();
//!     Box::new(move || Box::new(store.clone()) as Box<dyn Store>)
//! });
//! ```
//!
//! Not here: tests of one kind of store.

mod journals;
mod random;
mod removal;
mod storage;

use futures::executor::block_on;

pub use random::{Step, contents_of, steps};

use crate::commit::{Commit, NewRun};
use crate::content::Content;
use crate::error::{Pending, StoreError};
use crate::run::Record;
use crate::store::Store;

/// Opens one store repeatedly. A reopened store must contain what the dropped one had acknowledged.
pub type Open = Box<dyn Fn() -> Box<dyn Store>>;

/// Property that every store must have.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// Description.
    pub name: &'static str,
    /// Checks the property with a store that is empty at first, and panics if it does not hold.
    pub check: fn(&Open),
}

/// Checks all properties, each with a store that `make` opens for its name. Panics at the first failure.
pub fn check(make: impl Fn(&str) -> Open) {
    for property in properties() {
        (property.check)(&make(property.name));
    }
}

/// Returns all properties.
pub fn properties() -> Vec<Property> {
    [
        journals::PROPERTIES,
        storage::PROPERTIES,
        removal::PROPERTIES,
        random::PROPERTIES,
    ]
    .concat()
}

/// Waits for an answer, and panics on an error.
fn done<T>(pending: Pending<T>) -> T {
    match block_on(pending) {
        Ok(value) => value,
        Err(error) => panic!("{}: {error}", error.code()),
    }
}

/// Waits for an error, and panics on an answer.
fn refused<T: std::fmt::Debug>(pending: Pending<T>) -> StoreError {
    match block_on(pending) {
        Ok(value) => panic!("not refused, but answered: {value:?}"),
        Err(error) => error,
    }
}

fn definition() -> Content {
    Content::new("{\"id\": \"flow\", \"nodes\": []}")
}

/// Starts a run of the definition above.
fn start(run: &str) -> Commit {
    Commit::start(run, NewRun::new("flow", definition().hash(), 1_000)).content(definition())
}

fn fork(run: &str, base: &str, step: u64) -> Commit {
    let mut new = NewRun::new("flow", definition().hash(), 2_000);
    new.base = Some(crate::Base {
        run: base.to_owned(),
        step,
    });
    Commit::start(run, new)
}

fn record(number: u64) -> Record {
    Record::new(1_000 + number, format!("{{\"number\": {number}}}")).effect(format!("effect-{number}"))
}

/// Appends records with these numbers.
fn append(store: &dyn Store, run: &str, after: u64, numbers: impl IntoIterator<Item = u64>) {
    let commit = numbers.into_iter().fold(Commit::after(run, after), |commit, number| {
        commit.record(record(number))
    });
    done(store.commit(commit));
}

fn bodies(store: &dyn Store, run: &str) -> Vec<String> {
    done(store.journal(run, 0, usize::MAX))
        .into_iter()
        .map(|record| record.body)
        .collect()
}

fn numbers(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers.into_iter().map(|number| record(number).body).collect()
}
