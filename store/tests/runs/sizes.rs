//! Disk space of a durable step beyond the size of its record.

use futures::executor::block_on;
use pirn_store::{Base, Commit, Content, NewRun, Record, SqliteStore, Store};
use pirn_test_disk::{Disk, VFS};

const BODY: usize = 200;

fn store_with(steps: u64) -> (Disk, SqliteStore) {
    let disk = Disk::new();
    let store = SqliteStore::open_on(VFS, disk.path("runs.db")).expect("opens");
    let definition = Content::new("{}");
    let start = Commit::start("run-1", NewRun::new("flow", definition.hash(), 1)).content(definition);
    block_on(store.commit(start)).expect("begins");
    let body = "x".repeat(BODY);
    let mut last = None;
    for step in 0..steps {
        // Sent without waiting: the size does not depend on it, and group commits are faster.
        let record = Record::new(1_800_000_000_000 + step, body.as_str()).effect(format!("run-1.0.{step}"));
        last = Some(store.commit(Commit::after("run-1", step).record(record)));
    }
    if let Some(last) = last {
        assert_eq!(block_on(last), Ok(steps));
    }
    (disk, store)
}

fn size(disk: &Disk) -> u64 {
    disk.read("runs.db").len() as u64
}

#[test]
fn a_step_adds_at_most_300_bytes_to_its_content_for_any_number_of_steps() {
    let (disk, store) = store_with(0);
    store.close().expect("closes");
    let empty = size(&disk);
    for steps in [100, 1_000, 10_000] {
        let (disk, store) = store_with(steps);
        store.close().expect("closes");
        let beyond = (size(&disk) - empty) / steps - BODY as u64;
        println!("{steps} steps: {beyond} bytes a step beyond its content");
        assert!(beyond <= 300, "{steps} steps: {beyond} bytes a step");
    }
}

#[test]
fn a_forked_run_takes_at_most_200_bytes_for_any_shared_history() {
    let (disk, store) = store_with(1_000);
    store.close().expect("closes");
    let before = size(&disk);
    let store = SqliteStore::open_on(VFS, disk.path("runs.db")).expect("opens");
    let definition = Content::new("{}");
    let fork = |number: u64| {
        let mut new = NewRun::new("flow", definition.hash(), 1_800_000_000_000);
        new.base = Some(Base {
            run: "run-1".into(),
            step: 500 + number % 500,
        });
        store.commit(Commit::start(format!("run-0123abcd-{number:05}"), new))
    };
    let forks: Vec<_> = (1..=2_000).map(fork).collect();
    assert!(forks.into_iter().all(|fork| block_on(fork).is_ok()));
    store.close().expect("closes");
    let bytes = (size(&disk) - before) / 2_000;
    println!("{bytes} bytes a fork");
    assert!(bytes <= 200, "{bytes} bytes a fork");
}
