//! One process has a store.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use pirn_store::{SqliteStore, StoreError};

const FILE: &str = "PIRN_TEST_HELD_FILE";

/// Not a test by itself: the other process of the tests below. Holds the file until its input ends.
#[test]
#[ignore = "started by the tests below"]
fn the_other_process() {
    let Some(file) = env::var_os(FILE) else {
        return;
    };
    let store = SqliteStore::open(PathBuf::from(file)).expect("opens");
    println!("held");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("waits");
    store.close().expect("closes");
}

/// It, and its output, which it would miss.
fn other_process(file: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "holding::the_other_process", "--ignored", "--nocapture"])
        .env(FILE, file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    assert!(
        out.by_ref()
            .lines()
            .any(|line| line.is_ok_and(|line| line.contains("held")))
    );
    (child, out)
}

#[test]
fn a_second_process_is_refused_and_told_who_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let (mut child, _out) = other_process(&file);
    let error = SqliteStore::open(&file).map(drop).expect_err("refused");
    assert_eq!(error.code(), "STORE_HELD");
    assert!(
        matches!(&error, StoreError::Held { pid, .. } if *pid == Some(child.id())),
        "{error}"
    );
    drop(child.stdin.take());
    assert!(child.wait().expect("ends").success());
    SqliteStore::open(&file).and_then(SqliteStore::close).expect("free");
}

#[test]
fn a_killed_process_holds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let (mut child, _out) = other_process(&file);
    child.kill().expect("is killed");
    child.wait().expect("ends");
    SqliteStore::open(&file).and_then(SqliteStore::close).expect("free");
}

#[test]
fn a_second_opening_in_one_process_is_refused_too_by_whatever_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let store = SqliteStore::open(&file).expect("opens");
    let other_way = folder.path().join(".").join("runs.db");
    let error = SqliteStore::open(&other_way).map(drop).expect_err("refused");
    assert!(
        matches!(&error, StoreError::Held { pid, .. } if *pid == Some(std::process::id())),
        "{error}"
    );
    drop(store);
    SqliteStore::open(&other_way)
        .and_then(SqliteStore::close)
        .expect("free");
}

#[test]
fn a_folder_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = SqliteStore::open(folder.path().join("none").join("runs.db"))
        .map(drop)
        .expect_err("refused");
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
}

#[test]
fn a_copy_made_of_an_open_store_opens() {
    use futures::executor::block_on;
    use pirn_store::Store;
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("runs.db")).expect("opens");
    block_on(store.set_meta("a", Some("1".into()))).expect("is set");
    let copy = folder.path().join("copy.db");
    block_on(store.back_up(&copy)).expect("is copied");
    let copy = SqliteStore::open(copy).expect("opens");
    assert_eq!(block_on(copy.meta("a")), Ok(Some("1".into())));
}
