//! Removal of runs and of the data that only they use.

use crate::commit::{Commit, SessionWrite};
use crate::conformance::{Open, Property, append, bodies, definition, done, fork, numbers, refused, start};
use crate::content::Content;
use crate::error::StoreError;
use crate::run::RunFilter;
use crate::store::Store;

pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "a_removed_run_is_deleted_with_its_private_data",
        check: removed,
    },
    Property {
        name: "the_shared_history_of_a_removed_run_remains_for_its_forks",
        check: bases,
    },
    Property {
        name: "a_removal_of_a_fork_and_another_run_deletes_both",
        check: fork_of_a_kept_run,
    },
    Property {
        name: "a_content_remains_while_a_later_content_of_its_chain_remains",
        check: chains,
    },
    Property {
        name: "a_content_remains_while_a_run_or_a_session_refers_to_it",
        check: shared,
    },
];

fn ids(store: &dyn Store) -> Vec<String> {
    done(store.runs(RunFilter::default(), None, 100))
        .into_iter()
        .map(|run| run.id)
        .collect()
}

fn removed(open: &Open) {
    let store = open();
    for run in ["a", "b"] {
        done(store.commit(start(run).timer(5, "t")));
        append(&*store, run, 0, 1..=20);
        done(store.commit(Commit::after(run, 20).snapshot(20, "snapshot")));
    }
    let named = vec!["a".to_owned(), "none".to_owned(), "a".to_owned()];
    let would = done(store.remove(named.clone(), true));
    assert_eq!(ids(&*store), ["a", "b"], "a dry run removes nothing");
    assert_eq!(done(store.timers(9, 9)).len(), 2, "nor a timer");
    let was = done(store.remove(named.clone(), false));
    assert_eq!((was, was.runs), (would, 1));
    assert!(was.bytes >= 20 * 13, "{} bytes", was.bytes);
    assert_eq!(done(store.remove(named, false)).runs, 0);
    drop(store);
    let store = open();
    assert_eq!(ids(&*store), ["b"]);
    assert_eq!(done(store.run("a")), None);
    assert_eq!(done(store.timers(9, 9)).len(), 1);
    assert_eq!(
        refused(store.journal("a", 0, 1)),
        StoreError::NoSuchRun { run: "a".into() }
    );
    assert_eq!(bodies(&*store, "b"), numbers(1..=20));
    // The id can be used again, without data of the removed run.
    done(store.commit(start("a")));
    assert_eq!(bodies(&*store, "a"), numbers([]));
    assert_eq!(done(store.snapshot("a", 9)), None);
}

fn bases(open: &Open) {
    let store = open();
    done(store.commit(start("a")));
    append(&*store, "a", 0, 1..=4);
    done(store.commit(fork("b", "a", 2)));
    append(&*store, "b", 2, [13]);
    done(store.commit(fork("c", "b", 3)));
    assert_eq!(done(store.remove(vec!["a".into(), "b".into()], false)).runs, 2);
    assert_eq!(ids(&*store), ["c"]);
    assert_eq!(bodies(&*store, "c"), numbers([1, 2, 13]));
    for run in ["a", "b"] {
        let run = run.to_owned();
        assert_eq!(
            refused(store.journal(&run, 0, 9)),
            StoreError::NoSuchRun { run: run.clone() }
        );
        assert_eq!(
            refused(store.commit(Commit::after(&*run, 4))),
            StoreError::NoSuchRun { run: run.clone() }
        );
        assert_eq!(
            refused(store.commit(fork("d", &run, 1))),
            StoreError::NoSuchRun { run: run.clone() }
        );
        assert_eq!(refused(store.commit(start(&run))), StoreError::RunExists { run });
    }
    drop(store);
    let store = open();
    assert_eq!(bodies(&*store, "c"), numbers([1, 2, 13]));
    let last = done(store.remove(vec!["c".into()], false));
    assert_eq!(last.runs, 1);
    assert!(last.bytes >= 5 * 13, "with their journals: {} bytes", last.bytes);
    done(store.commit(start("a")));
    assert_eq!(bodies(&*store, "a"), numbers([]));
}

fn fork_of_a_kept_run(open: &Open) {
    let store = open();
    for run in ["a", "b"] {
        done(store.commit(start(run)));
        append(&*store, run, 0, 1..=4);
    }
    done(store.commit(fork("z", "b", 2)));
    append(&*store, "z", 2, [13]);
    let removed = done(store.remove(vec!["a".into(), "z".into()], false));
    assert_eq!(removed.runs, 2);
    assert_eq!(ids(&*store), ["b"]);
    assert_eq!(bodies(&*store, "b"), numbers(1..=4));
    // The ids can be used again, without data of the removed runs.
    for run in ["a", "z"] {
        done(store.commit(start(run)));
        assert_eq!(bodies(&*store, run), numbers([]));
    }
}

fn shared(open: &Open) {
    let store = open();
    let chunk = Content::new("a chunk of a conversation");
    let kept = |store: &dyn Store, content: &Content| {
        futures::executor::block_on(store.contents(vec![content.hash()])).is_ok()
    };
    let naming = |run: &str| {
        let mut commit = start(run).content(chunk.clone());
        if let crate::Precondition::Start(new) = &mut commit.follows {
            new.contents = vec![chunk.hash()];
        }
        commit
    };
    done(store.commit(naming("a")));
    done(store.commit(naming("b")));
    let write = SessionWrite {
        id: "s".into(),
        follows: 0,
        body: "{}".into(),
        contents: vec![chunk.hash()],
        at: 1,
    };
    done(store.commit(Commit::after("b", 0).session(write)));
    done(store.remove(vec!["a".into()], false));
    assert!(kept(&*store, &chunk) && kept(&*store, &definition()));
    done(store.remove(vec!["b".into()], false));
    assert!(kept(&*store, &chunk), "the session names it");
    assert!(!kept(&*store, &definition()), "no session or run names it");
    assert!(done(store.remove_session("s")));
    assert!(!done(store.remove_session("s")));
    assert!(!kept(&*store, &chunk), "no session or run names it");
    assert_eq!(done(store.session("s")), None);
}

/// Waits until a content is gone. A store may remove a chain asynchronously.
fn is_gone(store: &dyn Store, content: &Content) -> bool {
    (0..3_000).any(|_| futures::executor::block_on(store.contents(vec![content.hash()])).is_err())
}

fn chains(open: &Open) {
    let store = open();
    let mut parts: Vec<Content> = Vec::new();
    for number in 0..6 {
        let before = parts.last().map(Content::hash);
        parts.push(Content::new(format!("part {number}")).following(before));
    }
    let hash = |part: usize| parts[part].hash();
    let unknown = Content::new("never kept").hash();
    let lost = Content::new("follows nothing").following(Some(unknown));
    assert_eq!(
        refused(store.commit(start("lost").name(lost))),
        StoreError::NoSuchContent { hash: unknown }
    );
    // Each run starts with the parts so far, and writes one more to the session.
    for (number, part) in parts.iter().enumerate() {
        let mut commit = start(&format!("run-{number}"));
        commit.names.extend(number.checked_sub(1).map(hash));
        let write = SessionWrite {
            id: "s".into(),
            follows: number as u64,
            body: "{}".into(),
            contents: vec![part.hash()],
            at: 1,
        };
        done(store.commit(commit.content(part.clone()).session(write)));
    }
    let all: Vec<_> = (0..6).rev().map(hash).collect();
    assert_eq!(done(store.chain(hash(5), 100)), all);
    assert_eq!(done(store.chain(hash(3), 2)), all[2..4]);
    assert_eq!(
        refused(store.chain(unknown, 2)),
        StoreError::NoSuchContent { hash: unknown }
    );
    let ids = |runs: &[usize]| runs.iter().map(|run| format!("run-{run}")).collect::<Vec<_>>();
    done(store.remove(ids(&[0, 1, 2, 5]), false));
    assert_eq!(done(store.chain(hash(5), 100)), all, "the session needs them all");
    assert!(done(store.remove_session("s")));
    drop(store);
    let store = open();
    for part in [5, 4] {
        assert!(is_gone(&*store, &parts[part]), "part {part}");
    }
    assert_eq!(done(store.chain(hash(3), 100)), all[2..], "run-4 began with them");
    done(store.remove(ids(&[4]), false));
    assert!(is_gone(&*store, &parts[3]));
    assert_eq!(done(store.chain(hash(2), 100)), all[3..], "run-3 began with them");
    done(store.remove(ids(&[3]), false));
    for (number, part) in parts.iter().enumerate() {
        assert!(is_gone(&*store, part), "part {number}");
    }
}
