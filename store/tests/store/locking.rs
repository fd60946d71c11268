//! Lock of a store.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use pirn_store::{SqliteStore, StoreError};

const FILE: &str = "PIRN_TEST_HELD_FILE";

/// Helper process of the tests below, not a test. Locks the file until its input ends.
#[test]
#[ignore = "started by the tests below"]
fn lock_holding_process() {
    let Some(file) = env::var_os(FILE) else {
        return;
    };
    let store = SqliteStore::open(PathBuf::from(file)).expect("opens");
    println!("held");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("waits");
    store.close().expect("closes");
}

/// Starts the helper. Its output is returned too: dropping that would break its pipe.
fn other_process(file: &Path) -> (Child, BufReader<ChildStdout>) {
    let (_, module) = module_path!().split_once("::").expect("a module of the test binary");
    let helper = format!("{module}::lock_holding_process");
    let mut child = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", &helper, "--ignored", "--nocapture"])
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
fn a_second_process_is_refused_with_the_process_id_of_the_owner() {
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
fn a_killed_process_releases_its_lock() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let (mut child, _out) = other_process(&file);
    child.kill().expect("is killed");
    child.wait().expect("ends");
    SqliteStore::open(&file).and_then(SqliteStore::close).expect("free");
}

#[test]
fn opening_a_store_twice_in_one_process_is_refused_by_any_path() {
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
fn a_missing_folder_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = SqliteStore::open(folder.path().join("none").join("runs.db"))
        .map(drop)
        .expect_err("refused");
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
}

/// Returns the file names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("reads");
    let names = entries.map(|entry| entry.expect("reads").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Asserts that a file is refused as a store, with no file created or changed.
#[track_caller]
fn is_refused(file: &Path, part: &str) {
    let folder = file.parent().expect("has a folder");
    let before = names(folder);
    let error = SqliteStore::open(file).map(drop).expect_err("refused");
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
    assert!(error.to_string().contains(part), "{part:?} is not in {error}");
    assert_eq!(names(folder), before, "{error}");
}

#[test]
fn a_path_to_another_file_is_refused_before_anything_is_created() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("folder")).expect("is created");
    is_refused(&at("folder"), "is a folder");
    for (name, text) in [
        ("short", "no"),
        ("text", &*"no database ".repeat(500)),
        ("magic", "SQLite format 3\0"),
    ] {
        std::fs::write(at(name), text).expect("writes");
        is_refused(&at(name), "not an SQLite database");
        assert_eq!(std::fs::read_to_string(at(name)).expect("reads"), text);
    }
    let sql = rusqlite::Connection::open(at("other.db")).expect("opens");
    sql.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(x); INSERT INTO t VALUES(1)")
        .expect("writes");
    drop(sql);
    is_refused(&at("other.db"), "not a Pirn store");
}

#[cfg(unix)]
#[test]
fn a_device_a_fifo_and_a_socket_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let made = Command::new("mkfifo").arg(at("fifo")).status().expect("starts");
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("binds");
    // Through a link, so that no file is created in the folder of the device.
    std::os::unix::fs::symlink(at("fifo"), at("link")).expect("links");
    for name in ["fifo", "socket", "link"] {
        is_refused(&at(name), "is a device, a FIFO or a socket");
    }
}

#[cfg(unix)]
#[test]
fn a_linked_file_next_to_the_store_is_neither_read_nor_written() {
    use std::os::unix::fs::symlink;
    for (suffix, part) in [("-wal", "-wal"), ("-journal", "-journal"), (".lock", "its lock file")] {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, other) = (folder.path().join("runs.db"), folder.path().join("other"));
        let beside = folder.path().join(format!("runs.db{suffix}"));
        std::fs::write(&other, "precious").expect("writes");
        symlink(&other, &beside).expect("links");
        is_refused(&store, part);
        std::fs::remove_file(&beside).expect("is removed");
        std::fs::hard_link(&other, &beside).expect("links");
        is_refused(&store, "2 names");
        std::fs::remove_file(&beside).expect("is removed");
        let made = Command::new("mkfifo").arg(&beside).status().expect("starts");
        assert!(made.success());
        is_refused(&store, "a FIFO");
        assert_eq!(std::fs::read_to_string(&other).expect("reads"), "precious");
    }
}

#[test]
fn a_lock_file_of_another_program_is_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, lock) = (folder.path().join("Cargo"), folder.path().join("Cargo.lock"));
    for text in ["# This file is generated\n", &"1".repeat(10_000)] {
        std::fs::write(&lock, text).expect("writes");
        is_refused(&store, "would be overwritten");
        assert_eq!(std::fs::read_to_string(&lock).expect("reads"), text);
    }
    for left in ["", "4711\n", "47", "clo", "closed 3 4096", "\0\0\0\0"] {
        std::fs::write(&lock, left).expect("writes");
        let opened = SqliteStore::open(&store).and_then(SqliteStore::close);
        opened.unwrap_or_else(|error| panic!("{left:?}: {error}"));
    }
}

#[cfg(unix)]
#[test]
fn a_store_opened_through_a_link_has_one_lock() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("data")).expect("is created");
    // A link to a file that does not exist yet.
    std::os::unix::fs::symlink("data/runs.db", at("link.db")).expect("links");
    let store = SqliteStore::open(at("link.db")).expect("opens");
    assert_eq!(names(folder.path()), ["data", "link.db"]);
    assert_eq!(names(&at("data")), ["runs.db", "runs.db-wal", "runs.db.lock"]);
    let error = SqliteStore::open(at("data/runs.db")).map(drop).expect_err("refused");
    assert!(
        matches!(&error, StoreError::Held { pid, .. } if *pid == Some(std::process::id())),
        "{error}"
    );
    drop(store);
    std::fs::hard_link(at("data/runs.db"), at("second.db")).expect("links");
    is_refused(&at("second.db"), "2 names");
    std::fs::remove_file(at("second.db")).expect("is removed");
    std::os::unix::fs::symlink("ring.db", at("ring.db")).expect("links");
    is_refused(&at("ring.db"), "link");
    SqliteStore::open(at("link.db"))
        .and_then(SqliteStore::close)
        .expect("opens");
}

#[cfg(unix)]
#[test]
fn a_write_to_a_removed_or_replaced_store_is_not_acknowledged() {
    use futures::executor::block_on;
    use pirn_store::Store;
    for (name, replaces) in [("runs.db", false), ("runs.db", true), ("runs.db-wal", false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, gone) = (folder.path().join("runs.db"), folder.path().join(name));
        let store = SqliteStore::open(&file).expect("opens");
        block_on(store.set_meta("a", Some("1".into()))).expect("is set");
        std::fs::rename(&gone, folder.path().join("moved")).expect("moves");
        if replaces {
            std::fs::copy(folder.path().join("moved"), &gone).expect("copies");
        }
        let error = block_on(store.set_meta("b", Some("2".into()))).expect_err("is lost");
        assert_eq!(error.code(), "STORE_ERROR");
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        let later = block_on(store.set_meta("c", Some("3".into()))).expect_err("is lost");
        assert!(matches!(later, StoreError::Stopped { .. }), "{later}");
        store.close().expect_err("was stopped");
    }
}
