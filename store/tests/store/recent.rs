//! Recent records: written together, read together with the journal, and checked when a store is opened.

use std::path::{Path, PathBuf};

use futures::executor::block_on;
use futures::future::join_all;
use pirn_store::{Base, Commit, Content, MemoryStore, NewRun, Record, RunStatus, SqliteStore, Store, StoreError};
use pirn_test_disk::Disk;
use rusqlite::Connection;

use super::scripts::open;

fn begin(run: &str, base: Option<Base>) -> Commit {
    let definition = Content::new("{}");
    let mut new = NewRun::new("flow", definition.hash(), 1);
    new.base = base;
    Commit::start(run, new).content(definition)
}

fn step(run: &str, follows: u64, body: &str) -> Commit {
    Commit::after(run, follows).record(Record::new(follows + 2, body))
}

#[test]
fn a_commit_of_many_runs_writes_few_pages() {
    const RUNS: usize = 200;
    let disk = Disk::new();
    let store = open(&disk).expect("opens");
    let id = |run: usize| format!("run-{run:03}");
    for run in 0..RUNS {
        block_on(store.commit(begin(&id(run), None))).expect("begins");
    }
    let log = || disk.read("runs.db-wal").len();
    disk.block_syncs();
    let first = store.commit(step(&id(0), 0, "1"));
    disk.wait_for_blocked_sync();
    let before = log();
    let others: Vec<_> = (1..RUNS)
        .map(|run| store.commit(step(&id(run), 0, &"x".repeat(60))))
        .collect();
    disk.release_syncs();
    block_on(first).expect("commits");
    assert!(block_on(join_all(others)).into_iter().all(|answer| answer == Ok(1)));
    // About a hundred bytes for each record: five full pages and a partial one.
    let pages = (log() - before) / 4_120;
    assert!((5..=8).contains(&pages), "{pages} pages");
}

#[test]
fn every_part_of_a_journal_is_read_from_recent_and_moved_steps() {
    let (disk, oracle) = (Disk::new(), MemoryStore::new());
    let mut store = open(&disk).expect("opens");
    let both = |store: &SqliteStore, commit: &Commit| {
        assert_eq!(
            block_on(store.commit(commit.clone())),
            block_on(oracle.commit(commit.clone()))
        );
    };
    both(&store, &begin("a", None));
    both(&store, &begin("b", None));
    for at in 0..24 {
        both(&store, &step("a", at, &format!("a {at}")));
        if at % 2 == 0 {
            both(&store, &step("b", at / 2, &format!("b {at}")));
        }
        if at == 10 {
            both(
                &store,
                &begin(
                    "fork",
                    Some(Base {
                        run: "a".into(),
                        step: 7,
                    }),
                ),
            );
            both(&store, &step("fork", 7, "its own"));
        }
        if at == 5 {
            // Status changes write the row, which then is newer than the moved steps.
            both(&store, &Commit::after("a", at + 1).status(RunStatus::TimedOut));
            both(&store, &Commit::after("a", at + 1).status(RunStatus::Unfinished));
        }
        match at % 12 {
            4 => drop(block_on(store.shrink(true)).expect("is compacted")),
            9 => {
                store.close().expect("closes");
                store = open(&disk).expect("opens");
            }
            _ => {}
        }
        for run in ["a", "b", "fork"] {
            let Ok(Some(kept)) = block_on(oracle.run(run)) else {
                continue;
            };
            assert_eq!(block_on(store.run(run)), Ok(Some(kept.clone())), "{run}, step {at}");
            for after in 0..=kept.steps {
                for limit in [1, 3, 100] {
                    let (found, wanted) = (store.journal(run, after, limit), oracle.journal(run, after, limit));
                    assert_eq!(block_on(found), block_on(wanted), "{run}, after {after}, at {at}");
                }
            }
        }
    }
}

/// Copies the files of a store as they are after a kill.
fn killed(folder: &Path) -> PathBuf {
    let store = SqliteStore::open(folder.join("live.db")).expect("opens");
    for run in ["a", "b"] {
        block_on(store.commit(begin(run, None))).expect("begins");
    }
    for at in 0..3 {
        for run in ["a", "b"] {
            block_on(store.commit(step(run, at, "1"))).expect("commits");
        }
    }
    for end in ["", "-wal"] {
        std::fs::copy(
            folder.join(format!("live.db{end}")),
            folder.join(format!("dead.db{end}")),
        )
        .expect("copies");
    }
    folder.join("dead.db")
}

#[test]
fn damage_to_the_recent_steps_is_reported_on_open() {
    for (damage, told) in [
        ("SELECT 1", None),
        ("DELETE FROM recent WHERE id = 3", Some("one is missing")),
        ("DELETE FROM recent WHERE id = 1", Some("one is missing")),
        ("UPDATE recent SET run_step = run_step + 1 WHERE id = 4", Some("step 3")),
        (
            "UPDATE recent SET run_step = run_step + (9 << 32) WHERE id = 2",
            Some("belongs to no run"),
        ),
        ("UPDATE recent SET body = x'00' WHERE id = 6", Some("cut short")),
        ("UPDATE recent SET id = id + 1 WHERE id = 6", Some("one is missing")),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = killed(folder.path());
        let sql = Connection::open(&file).expect("opens");
        sql.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
            .expect("is emptied");
        sql.execute_batch(damage).expect("damages");
        drop(sql);
        match (SqliteStore::open(&file), told) {
            (Ok(store), None) => {
                for run in ["a", "b"] {
                    assert_eq!(block_on(store.journal(run, 0, 10)).expect("is read").len(), 3);
                }
            }
            (Err(StoreError::Damaged { why, .. }), Some(told)) => assert!(why.contains(told), "{damage}: {why}"),
            (found, told) => panic!("{damage}: {:?} in place of {told:?}", found.map(drop)),
        }
    }
}
