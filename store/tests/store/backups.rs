//! Backups of a store that is in use.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use futures::executor::block_on;
use pirn_store::{Commit, Content, NewRun, Record, RunFilter, SqliteStore, Store};

fn begin(store: &SqliteStore, run: &str) {
    let definition = Content::new("{}");
    let start = Commit::start(run, NewRun::new("flow", definition.hash(), 1)).content(definition);
    block_on(store.commit(start)).expect("begins");
}

fn record(run: &str, step: u64) -> Record {
    Record::new(step, format!("{run} {step} {}", "x".repeat(700)))
}

fn step(store: &SqliteStore, run: &str, after: u64) {
    block_on(store.commit(Commit::after(run, after).record(record(run, after)))).expect("is stored");
}

/// Checks every journal of a store and returns the number of steps by run.
fn checked(store: &SqliteStore) -> Vec<(String, u64)> {
    let runs = block_on(store.runs(RunFilter::default(), None, 1_000)).expect("reads");
    let steps = runs.into_iter().map(|run| {
        let journal = block_on(store.journal(&run.id, 0, usize::MAX)).expect("reads");
        assert_eq!(journal.len() as u64, run.steps, "{}", run.id);
        for (at, found) in journal.iter().enumerate() {
            assert_eq!(*found, record(&run.id, at as u64), "{}", run.id);
        }
        (run.id, run.steps)
    });
    steps.collect()
}

#[test]
fn fifty_backups_under_load_hold_every_commit_that_preceded_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("runs.db")).expect("opens");
    let runs = ["a", "b", "c", "d"];
    let stored = runs.map(|_| AtomicU64::new(500));
    for run in runs {
        begin(&store, run);
        // A store of many steps of a backup.
        for after in 0..500 {
            step(&store, run, after);
        }
    }
    std::thread::scope(|scope| {
        let writers = runs.iter().zip(&stored).map(|(run, stored)| {
            let (allow, allowed) = channel::<()>();
            let store = &store;
            scope.spawn(move || {
                for after in 500.. {
                    if allowed.recv().is_err() {
                        break;
                    }
                    step(store, run, after);
                    stored.store(after + 1, Ordering::SeqCst);
                }
            });
            allow
        });
        let writers: Vec<Sender<()>> = writers.collect();
        let mut has_grown = 0;
        for number in 0..50 {
            let before: Vec<u64> = stored.iter().map(|stored| stored.load(Ordering::SeqCst)).collect();
            // Bounded for each backup: without, the store grows faster than the backups can be checked.
            for allow in writers.iter().flat_map(|allow| [allow; 20]) {
                allow.send(()).expect("it writes");
            }
            let file = folder.path().join(format!("backup-{number}.db"));
            block_on(store.back_up(&file)).expect("is written");
            let after: Vec<u64> = stored.iter().map(|stored| stored.load(Ordering::SeqCst)).collect();
            has_grown += usize::from(after != before);
            let restored = SqliteStore::open(&file).expect("opens");
            let steps = checked(&restored);
            assert_eq!(steps.len(), runs.len());
            for (((run, steps), before), after) in steps.iter().zip(before).zip(after) {
                // A commit may be stored before the thread that sent it has counted it.
                assert!(
                    (before..=after + 1).contains(steps),
                    "{run}: {steps} of {before} to {after}"
                );
                // The restored store accepts the next step.
                step(&restored, run, *steps);
            }
            drop(restored);
            for suffix in ["", "-wal", ".lock"] {
                let mut name = file.clone().into_os_string();
                name.push(suffix);
                // Not every store has each of them.
                let _missing = std::fs::remove_file(name);
            }
        }
        drop(writers);
        assert!(has_grown > 25, "commits must not wait for a backup: {has_grown}");
    });
}

#[test]
fn a_backup_never_replaces_a_file_and_leaves_nothing_when_it_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("runs.db")).expect("opens");
    begin(&store, "a");
    let file = folder.path().join("backup.db");
    std::fs::write(&file, "something else").expect("is written");
    let error = block_on(store.back_up(&file)).expect_err("is refused");
    assert!(error.to_string().contains("the file exists"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).expect("reads"), "something else");
    let error = block_on(store.back_up(&folder.path().join("none/backup.db"))).expect_err("is refused");
    assert!(error.to_string().contains("cannot write the backup"), "{error}");
    step(&store, "a", 0);
    std::fs::remove_file(&file).expect("is there");
    block_on(store.back_up(&file)).expect("is written");
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .expect("reads")
        .map(|entry| entry.expect("reads").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!names.iter().any(|name| name.ends_with(".partial")), "{names:?}");
}

/// Name of the environment variable that makes the test below write backups until it is killed.
const FOLDER: &str = "PIRN_TEST_BACKUP_FOLDER";

fn write_backups(folder: &Path) {
    let store = SqliteStore::open(folder.join("runs.db")).expect("opens");
    for number in 0.. {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let run = format!("run-{number}-{}", std::process::id());
                begin(&store, &run);
                (0..20).for_each(|after| step(&store, &run, after));
                println!("{run}");
            });
            let file = folder.join(format!("backup-{}-{number}.db", std::process::id()));
            block_on(store.back_up(&file)).expect("is written");
        });
    }
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "the other process is killed at moments of real time"
)]
fn a_killed_backup_leaves_the_store_and_every_named_backup_complete() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write_backups(Path::new(&folder));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut expected = Vec::new();
    for round in 0..20_u64 {
        let mut process = Command::new(std::env::current_exe().expect("is known"))
            .args(["a_killed_backup_leaves_the_store", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(process.stdout.take().expect("is piped")));
        let mut begun = 0;
        while begun <= round % 4 {
            let line = lines.next().expect("goes on").expect("reads");
            if let Some(at) = line.find("run-") {
                expected.push(line[at..].to_owned());
                begun += 1;
            }
        }
        // Any moment of the next backup.
        std::thread::sleep(std::time::Duration::from_micros(round * 700));
        process.kill().expect("is killed");
        process.wait().expect("ends");
        expected.extend(lines.map_while(Result::ok).filter(|line| line.starts_with("run-")));
        let store = SqliteStore::open(folder.path().join("runs.db")).expect("opens");
        let found = checked(&store);
        for run in &expected {
            assert!(found.contains(&(run.clone(), 20)), "{run} is lost");
        }
    }
    let mut backups = 0;
    for entry in std::fs::read_dir(folder.path()).expect("reads") {
        let name = entry.expect("reads").file_name().to_string_lossy().into_owned();
        if name.starts_with("backup-") && name.strip_suffix(".db").is_some() {
            checked(&SqliteStore::open(folder.path().join(&name)).unwrap_or_else(|error| panic!("{name}: {error}")));
            backups += 1;
        }
    }
    assert!(backups > 10, "{backups}");
}
