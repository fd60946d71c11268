//! Encrypted stores: no file has a user's value, other keys are refused, values cannot be moved, and keys are rotated.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::executor::block_on;
use pirn_store::conformance::{self, Step, contents_of, steps};
use pirn_store::{
    Commit, Content, MemoryStore, NewRun, Record, RunFilter, SessionWrite, SqliteStore, Store, StoreError, StoreKeys,
};
use pirn_test_disk::{Disk, Survives, Trouble, VFS};
use rusqlite::Connection;

use super::erased::{CANARY, has_canary};

/// Returns keys that each repeat one byte.
pub(crate) fn keys(bytes: &[u8]) -> StoreKeys {
    let each: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}").repeat(32)).collect();
    each.join(" ").parse().expect("are keys")
}

fn open(file: &Path, of: &[u8]) -> Result<SqliteStore, StoreError> {
    if of.is_empty() {
        SqliteStore::open(file)
    } else {
        SqliteStore::open_encrypted(file, keys(of))
    }
}

/// Writes the word as the value of everything that a user determines.
fn write_everything(store: &SqliteStore, word: &str) {
    let definition = Content::new(format!("{word} definition"));
    let part = Content::new(format!("{word} part"));
    let next = Content::new(format!("{word} next")).following(Some(part.hash()));
    let mut new = NewRun::new("flow", definition.hash(), 1);
    new.session = Some(format!("{word} session"));
    let start = Commit::start("run-1", new)
        .content(definition)
        .name(part)
        .name(next.clone());
    block_on(store.commit(start.record(Record::new(1, word)))).expect("starts");
    let write = SessionWrite {
        id: format!("{word} session"),
        follows: 0,
        body: word.to_owned(),
        contents: vec![next.hash()],
        at: 1,
    };
    let rest = Commit::after("run-1", 1).record(Record::new(2, word)).session(write);
    block_on(store.commit(rest.snapshot(2, word).timer(9, "e"))).expect("commits");
    block_on(store.set_meta(&format!("{word} name"), Some(word.to_owned()))).expect("is set");
}

fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        let file = file.expect("a file");
        let bytes = std::fs::read(file.path()).expect("is read");
        (file.file_name().to_string_lossy().into_owned(), bytes)
    };
    files.map(read).collect()
}

#[test]
fn the_store_contract_holds_in_an_encrypted_file() {
    conformance::check(|_name| {
        let disk = Arc::new(Disk::new());
        Box::new(move || {
            let store = SqliteStore::open_encrypted_on(VFS, disk.path("runs.db"), keys(b"a"));
            Box::new(store.expect("opens")) as Box<dyn Store>
        })
    });
}

#[test]
fn the_store_contract_holds_while_a_plain_store_is_encrypted_and_its_keys_are_rotated() {
    conformance::check(|_name| {
        let (disk, opened) = (Arc::new(Disk::new()), AtomicU32::new(0));
        Box::new(move || {
            let path = disk.path("runs.db");
            let encrypted = |of: &[u8]| SqliteStore::open_encrypted_on(VFS, path.clone(), keys(of)).expect("opens");
            let store = match opened.fetch_add(1, Ordering::Relaxed) {
                0 => SqliteStore::open_on(VFS, path).expect("opens"),
                1 => encrypted(b"a"),
                2 => encrypted(b"ba"),
                3 => {
                    let store = encrypted(b"ba");
                    block_on(store.rekey()).expect("is encrypted");
                    store
                }
                _ => encrypted(b"b"),
            };
            Box::new(store) as Box<dyn Store>
        })
    });
}

#[test]
fn no_file_of_an_encrypted_store_has_a_users_value() {
    for (of, is_hidden) in [(&b"a"[..], true), (b"", false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("runs.db");
        let store = open(&file, of).expect("opens");
        write_everything(&store, CANARY);
        assert!(folder.path().join("runs.db-wal").metadata().expect("is there").len() > 0);
        assert_eq!(has_canary(folder.path()).is_empty(), is_hidden, "in the log");
        block_on(store.shrink(false)).expect("moves the log");
        assert_eq!(has_canary(folder.path()).is_empty(), is_hidden, "in the file");
        block_on(store.back_up(&folder.path().join("copy.db"))).expect("is copied");
        store.close().expect("closes");
        assert_eq!(has_canary(folder.path()).is_empty(), is_hidden, "closed");
    }
}

#[test]
fn a_store_is_opened_only_with_its_keys_and_a_refusal_changes_no_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let store = open(&file, b"a").expect("opens");
    write_everything(&store, "word");
    let contents = contents_of(&store);
    store.close().expect("closes");
    let files = files_of(folder.path());
    for (of, why) in [
        (&b""[..], "no key was given"),
        (b"b", "which is not among the given keys"),
        (b"bc", "("),
    ] {
        let error = open(&file, of).map(drop).expect_err("is refused");
        assert!(matches!(error, StoreError::KeyRefused { .. }), "{error}");
        assert_eq!(error.code(), "STORE_KEY");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(files_of(folder.path()), files, "{error}");
    }
    // A new first key needs the former one until the values are encrypted with the new one.
    open(&file, b"ba").and_then(SqliteStore::close).expect("opens");
    assert_eq!(open(&file, b"b").map(drop).expect_err("is refused").code(), "STORE_KEY");
    assert_eq!(open(&file, b"a").map(drop).expect_err("is refused").code(), "STORE_KEY");
    let store = open(&file, b"ab").expect("opens");
    assert_eq!(contents_of(&store), contents);
}

#[test]
fn a_value_that_was_moved_exchanged_or_is_plain_is_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let read_all = |store: &SqliteStore| -> Result<(), StoreError> {
        for run in block_on(store.runs(RunFilter::default(), None, 10))? {
            block_on(store.journal(&run.id, 0, 10))?;
            block_on(store.snapshot(&run.id, 10))?;
            block_on(store.contents([vec![run.definition], run.contents].concat()))?;
        }
        block_on(store.sessions(None, 10)).map(drop)
    };
    let written = || {
        for end in ["", "-wal", ".lock"] {
            let _missing = std::fs::remove_file(format!("{}{end}", file.display()));
        }
        let store = open(&file, b"a").expect("opens");
        write_everything(&store, "one");
        let text = Content::new("two");
        let mut new = NewRun::new("flow", text.hash(), 1);
        new.session = Some("two".to_owned());
        let start = Commit::start("run-2", new)
            .content(text.clone())
            .record(Record::new(1, "one"));
        let write = SessionWrite {
            id: "two".to_owned(),
            follows: 0,
            body: "two".to_owned(),
            contents: vec![],
            at: 1,
        };
        block_on(store.commit(start.session(write).snapshot(1, "two"))).expect("starts");
        block_on(store.set_meta("two", Some("two".to_owned()))).expect("is set");
        read_all(&store).expect("is whole");
        store.close().expect("closes");
        Connection::open(&file).expect("opens")
    };
    let tables = [
        ("runs", "id"),
        ("journal", "id"),
        ("contents", "hash"),
        ("snapshots", "run"),
        ("sessions", "id"),
        ("meta", "name"),
    ];
    let is_damage = |case: &str| {
        let read = open(&file, b"a").and_then(|store| read_all(&store));
        assert!(matches!(read, Err(StoreError::Damaged { .. })), "{case}: {read:?}");
    };
    for (table, key) in tables {
        // The value of the first row in each other row of the table.
        let sql = written();
        let moved = format!("UPDATE {table} SET body = (SELECT body FROM {table} ORDER BY {key} LIMIT 1)");
        sql.execute_batch(&moved).expect("is moved");
        drop(sql);
        is_damage(&format!("moved within {table}"));
        // A plain value is accepted only while a store that was plain is being encrypted.
        let sql = written();
        sql.execute_batch(&format!("UPDATE {table} SET body = x'0102030405060708'"))
            .expect("is replaced");
        drop(sql);
        is_damage(&format!("plain in {table}"));
    }
    // That row of another store with this key.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let other = open(&elsewhere.path().join("runs.db"), b"a").expect("opens");
    write_everything(&other, "one");
    other.close().expect("closes");
    let sql = written();
    let attach = format!("ATTACH '{}' AS other", elsewhere.path().join("runs.db").display());
    sql.execute_batch(&format!(
        "{attach}; UPDATE runs SET body = (SELECT body FROM other.runs WHERE id = 'run-1') WHERE id = 'run-1'"
    ))
    .expect("is replaced");
    drop(sql);
    is_damage("of another store");
}

#[test]
fn the_values_of_a_plain_store_are_encrypted_by_rekey_and_new_ones_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let store = open(&file, b"").expect("opens");
    write_everything(&store, CANARY);
    let contents = contents_of(&store);
    store.close().expect("closes");

    let store = open(&file, b"a").expect("opens");
    assert_eq!(contents_of(&store), contents);
    let new = "a text of the time after that";
    let commit = Commit::after("run-1", 2)
        .record(Record::new(3, new))
        .name(Content::new(new));
    block_on(store.commit(commit)).expect("commits");
    // This content again, which is still stored without encryption.
    let again = Commit::after("run-1", 3).name(Content::new(format!("{CANARY} part")));
    block_on(store.commit(again)).expect("commits");
    let session = format!("{CANARY} session");
    let found = block_on(store.session(&session)).expect("reads").expect("is there");
    assert_eq!((found.body.as_str(), found.version), (CANARY, 1));
    let of_session = RunFilter {
        session: Some(session.clone()),
        ..RunFilter::default()
    };
    assert_eq!(
        block_on(store.runs(of_session.clone(), None, 9)).expect("reads").len(),
        1
    );
    block_on(store.shrink(false)).expect("moves the log");
    let contains = |word: &str| {
        let files = files_of(folder.path());
        files
            .values()
            .any(|bytes| bytes.windows(word.len()).any(|window| window == word.as_bytes()))
    };
    assert!(contains(CANARY) && !contains(new));
    assert!(block_on(store.rekey()).expect("is encrypted") > 6);
    assert!(!contains(CANARY) && !contains(new));
    assert_eq!(block_on(store.rekey()).expect("is encrypted"), 0, "nothing is left");
    assert_eq!(block_on(store.runs(of_session, None, 9)).expect("reads").len(), 1);
    assert_eq!(block_on(store.sessions(None, 9)).expect("reads"), [found]);
    assert_eq!(
        block_on(store.meta(&format!("{CANARY} name")))
            .expect("reads")
            .as_deref(),
        Some(CANARY)
    );
    // Removal finds the contents by their new names.
    block_on(store.remove(vec!["run-1".to_owned()], false)).expect("removes");
    assert!(block_on(store.remove_session(&session)).expect("removes"));
    store.close().expect("closes");
    let left: i64 = Connection::open(&file)
        .and_then(|sql| sql.query_row("SELECT count(*) FROM contents", [], |row| row.get(0)))
        .expect("counts");
    assert_eq!(left, 0);
}

/// Creates a store that had no key, then `a`, and now has `b`: some values have none, some `a`, some `b`.
fn with_three_kinds(disk: &Disk) -> String {
    let script = steps(1, 60);
    let play = |store: &SqliteStore, from: usize, to: usize| {
        script[from..to].iter().for_each(|step: &Step| {
            step.apply(store);
        });
    };
    let path = || disk.path("runs.db");
    let store = SqliteStore::open_on(VFS, path()).expect("opens");
    play(&store, 0, 20);
    store.close().expect("closes");
    for (of, from) in [(&b"a"[..], 20), (b"ba", 40)] {
        let store = SqliteStore::open_encrypted_on(VFS, path(), keys(of)).expect("opens");
        play(&store, from, from + 20);
        store.close().expect("closes");
    }
    let oracle = MemoryStore::new();
    for step in &script {
        step.apply(&oracle);
    }
    contents_of(&oracle)
}

#[test]
fn a_rotation_that_is_cut_at_any_operation_loses_nothing_and_is_completed_later() {
    let mut points = 0;
    let made = Disk::new();
    let contents = with_three_kinds(&made);
    let open = |disk: &Disk, of: &[u8]| SqliteStore::open_encrypted_on(VFS, disk.path("runs.db"), keys(of));
    let whole = made.after_power_cut(Survives::All);
    let store = open(&whole, b"ba").expect("opens");
    let rows = block_on(store.rekey()).expect("is encrypted");
    assert!(rows > 10, "{rows}");
    store.close().expect("closes");
    for at in 0..whole.count() {
        let disk = made.after_power_cut(Survives::All);
        disk.trouble(at, Trouble::PowerAfter);
        if let Ok(store) = open(&disk, b"ba") {
            // Fails, unless the cut comes after it.
            let _cut = block_on(store.rekey());
        }
        for survives in [Survives::All, Survives::Nothing, Survives::Any(at)] {
            let case = || format!("power off after operation {at}, {survives:?} survives");
            let disk = disk.after_power_cut(survives);
            let store = open(&disk, b"ba").unwrap_or_else(|error| panic!("{}: {error}", case()));
            assert_eq!(contents_of(&store), contents, "{}", case());
            points += 1;
            if at % 7 == 0 {
                block_on(store.rekey()).unwrap_or_else(|error| panic!("{}: {error}", case()));
                store.close().expect("closes");
                let store = open(&disk, b"b").unwrap_or_else(|error| panic!("{}: {error}", case()));
                assert_eq!(contents_of(&store), contents, "{}", case());
            }
        }
    }
    assert!(points > 100, "{points}");
}

#[test]
fn a_rotation_of_many_rows_is_done_in_batches_between_other_commits() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let store = open(&file, b"a").expect("opens");
    let definition = Content::new("{}");
    for run in 0..3 {
        let new = NewRun::new("flow", definition.hash(), run);
        let start = Commit::start(format!("run-{run}"), new).content(definition.clone());
        let all = (0..400).fold(start, |all, step| {
            all.record(Record::new(step, format!("{run}: {step}")))
        });
        block_on(store.commit(all)).expect("starts");
    }
    store.close().expect("closes");
    let store = open(&file, b"ba").expect("opens");
    // Polled by hand: a commit is made after each batch.
    let mut commits = 0;
    let rows = block_on(async {
        let mut rekey = std::pin::pin!(store.rekey());
        loop {
            let after = 400 + commits;
            let commit = Commit::after("run-1", after).record(Record::new(1, format!("1: {after}")));
            let committed = store.commit(commit);
            match futures::future::select(rekey.as_mut(), committed).await {
                futures::future::Either::Left((rows, committed)) => {
                    committed.await.expect("commits");
                    commits += 1;
                    break rows.expect("is encrypted");
                }
                futures::future::Either::Right((committed, _)) => {
                    committed.expect("commits");
                    commits += 1;
                }
            }
        }
    });
    assert!(rows >= 1_200 && commits >= 2, "{rows} rows, {commits} commits");
    store.close().expect("closes");
    let store = open(&file, b"b").expect("needs one key only");
    for run in 0..3 {
        let journal = block_on(store.journal(&format!("run-{run}"), 0, 10_000)).expect("reads");
        let expected = 400 + if run == 1 { commits as usize } else { 0 };
        assert_eq!(journal.len(), expected);
        assert!(
            (0..)
                .zip(&journal)
                .all(|(step, record): (usize, _)| record.body == format!("{run}: {step}"))
        );
    }
}
