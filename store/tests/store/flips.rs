//! Silent bit flips.

use std::fs;
use std::path::Path;

use futures::executor::block_on;
use pirn_store::conformance::{contents_of, steps};
use pirn_store::{Commit, Content, MemoryStore, NewRun, Record, RunFilter, SqliteStore, Store, StoreError};
use pirn_test_disk::{Disk, Survives};

use super::scripts::{FILE, open};

/// Reads everything, or returns the error.
fn read_all(store: &SqliteStore) -> Result<String, StoreError> {
    for run in block_on(store.runs(RunFilter::default(), None, usize::MAX))? {
        block_on(store.journal(&run.id, 0, usize::MAX))?;
        block_on(store.snapshot(&run.id, u64::MAX))?;
        let named = std::iter::once(run.definition).chain(run.contents).collect();
        block_on(store.contents(named))?;
    }
    for id in ["s", "t"] {
        if let Some(session) = block_on(store.session(id))? {
            block_on(store.contents(session.contents))?;
        }
    }
    Ok(contents_of(store))
}

#[test]
fn a_flipped_bit_in_any_page_is_reported_or_has_no_effect() {
    let disk = Disk::new();
    let store = open(&disk).expect("opens");
    let oracle = MemoryStore::new();
    for step in steps(11, 160) {
        assert_eq!(step.apply(&store), step.apply(&oracle));
    }
    store.close().expect("closes");
    let expected = contents_of(&oracle);
    let bits = disk.read(FILE).len() * 8;
    let (mut told, mut harmless) = (0, 0);
    // A prime step reaches every offset in a page and every bit of a byte.
    for bit in (0..bits).step_by(1_009) {
        let damaged = disk.after_power_cut(Survives::All);
        damaged.flip(FILE, bit);
        match open(&damaged).and_then(|store| read_all(&store)) {
            Ok(found) => {
                assert!(
                    named(&found) == named(&expected),
                    "bit {bit} of page {} makes something up:\n{found}",
                    bit / 8 / 4096 + 1
                );
                harmless += 1;
            }
            Err(error) => {
                assert!(
                    ["STORE_ERROR", "STORE_CONFLICT"].contains(&error.code()),
                    "bit {bit}: {error}"
                );
                told += 1;
            }
        }
    }
    // Most of a used page is covered by a checksum; the rest is free space.
    assert!(told > harmless / 4, "{told} told, {harmless} harmless");
}

/// Removes the line of existing contents: an unnamed content may be missing.
fn named(contents: &str) -> Vec<&str> {
    contents
        .lines()
        .filter(|line| !line.starts_with("[true") && !line.starts_with("[false"))
        .collect()
}

/// Copies the files of a store as they are after a kill, with the last changes only in the log.
fn killed(folder: &Path) -> Vec<String> {
    let oracle = MemoryStore::new();
    let store = SqliteStore::open(folder.join("live.db")).expect("opens");
    let mut contents = vec![contents_of(&oracle)];
    for step in steps(12, 25) {
        assert_eq!(step.apply(&store), step.apply(&oracle));
        contents.push(contents_of(&oracle));
    }
    // The last script step may change nothing; this commit does.
    let last = Commit::start("last", NewRun::new("flow", Content::new("x").hash(), 1)).content(Content::new("x"));
    for store in [&store as &dyn Store, &oracle] {
        block_on(store.commit(last.clone().record(Record::new(1, "1")))).expect("commits");
    }
    contents.push(contents_of(&oracle));
    for end in ["", "-wal"] {
        fs::copy(
            folder.join(format!("live.db{end}")),
            folder.join(format!("dead.db{end}")),
        )
        .expect("copies");
    }
    contents
}

#[test]
fn a_flipped_bit_in_the_log_is_reported_or_in_its_last_transaction() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = killed(folder.path());
    let (file, log) = (folder.path().join("dead.db"), folder.path().join("dead.db-wal"));
    let (whole_file, whole_log) = (fs::read(&file).expect("reads"), fs::read(&log).expect("reads"));
    let last_two = &contents[contents.len() - 2..];
    let (mut told, mut lost) = (0, 0);
    for bit in (0..whole_log.len() * 8).step_by(5_003).chain(0..256) {
        let mut damaged = whole_log.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file, &whole_file).expect("writes");
        fs::write(&log, damaged).expect("writes");
        match SqliteStore::open(&file) {
            Ok(store) => {
                let found = contents_of(&store);
                assert!(
                    last_two.contains(&found),
                    "bit {bit} of the log takes an acknowledged commit away"
                );
                lost += u32::from(found == last_two[0]);
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged { .. }), "bit {bit}: {error}");
                told += 1;
            }
        }
    }
    assert!(told > 10 * lost, "{told} told, {lost} in the last transaction");
}

#[test]
fn a_restarted_log_is_checked_up_to_its_new_frames() {
    let folder = tempfile::tempdir().expect("a folder");
    let live = folder.path().join("live.db");
    let store = SqliteStore::open(&live).expect("opens");
    let definition = Content::new("{}");
    let start = Commit::start("long", NewRun::new("flow", definition.hash(), 1)).content(definition);
    block_on(store.commit(start)).expect("begins");
    // More than 4 MiB, which causes a checkpoint, and a few steps after it.
    let bodies = (0..68)
        .map(|_| "x".repeat(64 << 10))
        .chain((0..5).map(|_| "y".to_owned()));
    for (step, body) in (0..).zip(bodies) {
        block_on(store.commit(Commit::after("long", step).record(Record::new(1, body)))).expect("commits");
    }
    let (whole_file, whole_log) = (
        fs::read(&live).expect("reads"),
        fs::read(folder.path().join("live.db-wal")).expect("reads"),
    );
    assert!(whole_log.len() > 4 << 20, "it keeps its length");
    let (file, log) = (folder.path().join("dead.db"), folder.path().join("dead.db-wal"));
    let (new, old): (usize, usize) = (32 + 24 + 100, whole_log.len() - 100);
    for (flipped, is_told) in [(None, false), (Some(new), true), (Some(old), false)] {
        let mut damaged = whole_log.clone();
        if let Some(at) = flipped {
            damaged[at] ^= 1;
        }
        fs::write(&file, &whole_file).expect("writes");
        fs::write(&log, damaged).expect("writes");
        match SqliteStore::open(&file) {
            Ok(store) if !is_told => {
                let steps = block_on(store.journal("long", 0, 1_000)).expect("is read").len();
                assert_eq!(steps, 73, "{flipped:?}");
            }
            Err(StoreError::Damaged { .. }) if is_told => {}
            found => panic!("{flipped:?}: {:?}", found.map(drop)),
        }
    }
}

#[test]
fn a_truncated_log_opens_with_its_complete_transactions() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = killed(folder.path());
    let (file, log) = (folder.path().join("dead.db"), folder.path().join("dead.db-wal"));
    let (whole_file, whole_log) = (fs::read(&file).expect("reads"), fs::read(&log).expect("reads"));
    for len in (0..whole_log.len()).step_by(2_503) {
        fs::write(&file, &whole_file).expect("writes");
        fs::write(&log, &whole_log[..len]).expect("writes");
        let store = SqliteStore::open(&file).unwrap_or_else(|error| panic!("cut at {len}: {error}"));
        assert!(contents.contains(&contents_of(&store)), "cut at {len}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("text.db");
    fs::write(&text, "no database ".repeat(500)).expect("writes");
    let error = SqliteStore::open(&text).map(drop).expect_err("refused");
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
    assert_eq!(fs::read_to_string(&text).expect("reads"), "no database ".repeat(500));
    let other = folder.path().join("other.db");
    let sql = rusqlite::Connection::open(&other).expect("opens");
    sql.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES(1)")
        .expect("writes");
    drop(sql);
    let before = fs::read(&other).expect("reads");
    let error = SqliteStore::open(&other).map(drop).expect_err("refused");
    assert!(error.to_string().contains("not a Pirn store"), "{error}");
    assert_eq!(fs::read(&other).expect("reads"), before);
    let later = folder.path().join("later.db");
    SqliteStore::open(&later).and_then(SqliteStore::close).expect("closes");
    let sql = rusqlite::Connection::open(&later).expect("opens");
    sql.pragma_update(None, "user_version", 99).expect("writes");
    drop(sql);
    let error = SqliteStore::open(&later).map(drop).expect_err("refused");
    assert!(error.to_string().contains("layout is 99"), "{error}");
}
