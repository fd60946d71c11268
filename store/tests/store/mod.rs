//! Tests of the stores through the public API: conformance of every store, and fault tests of the SQLite store.

mod backups;
mod crashes;
pub(crate) mod encrypted;
mod erased;
mod exports;
mod faults;
mod flips;
mod grouping;
mod locking;
mod recent;
mod replaced;
mod scripts;

use std::sync::Arc;

use pirn_store::conformance::{self, Open};
use pirn_store::{MemoryStore, SqliteStore, Store};
use pirn_test_disk::{Disk, VFS};

fn in_memory(_name: &str) -> Open {
    let store = MemoryStore::new();
    Box::new(move || Box::new(store.clone()) as Box<dyn Store>)
}

fn on_a_disk(_name: &str) -> Open {
    let disk = Arc::new(Disk::new());
    Box::new(move || Box::new(SqliteStore::open_on(VFS, disk.path("runs.db")).expect("opens")) as Box<dyn Store>)
}

#[test]
fn the_store_contract_holds_in_memory() {
    conformance::check(in_memory);
}

#[test]
fn the_store_contract_holds_in_a_file() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    conformance::check(|name| {
        let (folder, name) = (folder.clone(), format!("{name}.db"));
        Box::new(move || Box::new(SqliteStore::open(folder.path().join(&name)).expect("opens")) as Box<dyn Store>)
    });
}

#[test]
fn the_store_contract_holds_on_a_simulated_disk() {
    conformance::check(on_a_disk);
}
