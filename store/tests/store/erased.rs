//! Remains of removed runs in the files of a store.

use std::path::Path;

use futures::executor::block_on;
use pirn_store::{Commit, Content, NewRun, Record, RunFilter, SessionWrite, SqliteStore, Store};

/// Word that is part of all data of the removed runs.
pub(crate) const CANARY: &str = "canary-7f3a";

/// Lengths of texts: within a page, across several pages, and between.
const LENGTHS: [usize; 6] = [20, 300, 900, 2_000, 5_000, 40_000];

fn text(number: usize, word: &str) -> String {
    let length = LENGTHS[number % LENGTHS.len()];
    let line = format!("{word} {number} ");
    format!("\"{}\"", line.repeat(length.div_ceil(line.len())))
}

/// Creates a run with records, a definition and its part of the session's conversation.
fn play(store: &SqliteStore, number: usize, word: &str, last: Option<&Content>) -> Content {
    let definition = Content::new(text(number + 1, &format!("{word} definition")));
    let part = Content::new(text(number + 2, &format!("{word} part"))).following(last.map(Content::hash));
    let mut new = NewRun::new("flow", definition.hash(), number as u64);
    new.session = Some(format!("{word} session"));
    let run = format!("{word}-{number:04}");
    block_on(store.commit(Commit::start(run.as_str(), new).content(definition))).expect("starts");
    for step in 0..8 {
        let record = Record::new(step, text(number + step as usize, word));
        block_on(store.commit(Commit::after(run.as_str(), step).record(record))).expect("commits");
    }
    let write = SessionWrite {
        id: format!("{word} session"),
        follows: last.map_or(0, |_| number as u64),
        body: text(number, word),
        contents: vec![part.hash()],
        at: 1,
    };
    let left = Commit::after(run, 8).content(part.clone()).session(write);
    block_on(store.commit(left.snapshot(8, text(number, word)))).expect("commits");
    part
}

pub(crate) fn has_canary(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let found = files.filter(|file| {
        let bytes = std::fs::read(file).expect("is read");
        bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
    });
    found.map(|file| file.display().to_string()).collect()
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |file| file.len())
}

#[test]
fn no_file_contains_text_of_a_removed_run_and_its_space_is_freed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let store = SqliteStore::open(&file).expect("opens");
    // Interleaved, so that the texts share pages.
    let (mut kept, mut gone) = (None, None);
    for number in 0..120 {
        kept = Some(play(&store, number, "plain", kept.as_ref()));
        gone = Some(play(&store, number, CANARY, gone.as_ref()));
    }
    let ids: Vec<String> = (0..120).map(|number| format!("{CANARY}-{number:04}")).collect();
    block_on(store.shrink(false)).expect("moves what came last");
    let before = size(&file);
    assert!(!has_canary(folder.path()).is_empty());
    for some in ids.chunks(7) {
        block_on(store.remove(some.to_vec(), false)).expect("removes");
    }
    assert!(block_on(store.remove_session(&format!("{CANARY} session"))).expect("removes"));
    block_on(store.shrink(false)).expect("shrinks");
    assert_eq!(has_canary(folder.path()), Vec::<String>::new());
    assert_eq!(size(&folder.path().join("runs.db-wal")), 0, "the log is empty");
    let after = size(&file);
    assert!(after < before * 6 / 10, "{before} bytes before, {after} after");
    assert_eq!(
        block_on(store.runs(RunFilter::default(), None, 1_000))
            .expect("reads")
            .len(),
        120
    );
    let last = kept.expect("is there").hash();
    assert_eq!(block_on(store.chain(last, 1_000)).expect("reads").len(), 120);
}

#[test]
fn a_small_removal_is_erased_from_the_files_by_the_next_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("runs.db")).expect("opens");
    play(&store, 3, "plain", None);
    play(&store, 3, CANARY, None);
    block_on(store.remove(vec![format!("{CANARY}-0003")], false)).expect("removes");
    block_on(store.remove_session(&format!("{CANARY} session"))).expect("removes");
    block_on(store.run("plain-0003")).expect("reads");
    assert_eq!(has_canary(folder.path()), Vec::<String>::new());
}

#[test]
fn the_file_of_a_store_in_use_shrinks_automatically() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let store = SqliteStore::open(&file).expect("opens");
    let definition = Content::new("{}");
    for number in 0..40 {
        let new = NewRun::new("flow", definition.hash(), number);
        let start = Commit::start(format!("run-{number}"), new).content(definition.clone());
        let record = Record::new(1, format!("\"{}\"", "x".repeat(100_000)));
        block_on(store.commit(start.record(record))).expect("commits");
    }
    block_on(store.shrink(false)).expect("moves what came last");
    let before = size(&file);
    let ids = (0..39).map(|number| format!("run-{number}")).collect();
    block_on(store.remove(ids, false)).expect("removes");
    // The store shrinks between commits.
    for step in 1.. {
        let record = Record::new(step, "\"y\"");
        block_on(store.commit(Commit::after("run-39", step).record(record))).expect("commits");
        if size(&file) < before / 4 {
            break;
        }
        assert!(step < 5_000, "{before} bytes before, {} after", size(&file));
    }
}
