//! Data other than journals: contents, sessions, timers, snapshots, metadata.

use crate::commit::{Commit, SessionWrite};
use crate::conformance::{Open, Property, append, done, record, refused, start};
use crate::content::Content;
use crate::error::StoreError;
use crate::run::{Session, Snapshot, Timer};

pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "contents_are_found_by_their_hash",
        check: contents,
    },
    Property {
        name: "a_run_can_add_references_to_contents",
        check: named,
    },
    Property {
        name: "a_session_advances_version_by_version",
        check: sessions,
    },
    Property {
        name: "timers_are_listed_by_due_time_until_cleared",
        check: timers,
    },
    Property {
        name: "the_last_snapshot_is_retained",
        check: snapshots,
    },
    Property {
        name: "a_metadata_value_is_the_last_one_set",
        check: meta,
    },
    Property {
        name: "a_store_that_counts_writes_counts_every_acknowledged_write",
        check: counted,
    },
];

fn counted(open: &Open) {
    let store = open();
    let Some(before) = store.figures() else { return };
    done(store.commit(start("run-1")));
    append(&*store, "run-1", 0, [1, 2]);
    refused(store.commit(Commit::after("run-1", 9).record(record(3))));
    append(&*store, "run-1", 2, [3]);
    let after = store.figures().expect("it counts");
    assert_eq!(after.writes - before.writes, 3);
    // The commits were sequential: each was a batch of one.
    assert_eq!(after.batches[0] - before.batches[0], 3);
    assert_eq!(after.batches[1..], before.batches[1..]);
}

fn contents(open: &Open) {
    let store = open();
    let texts = ["one", "", "\u{7dda} three"].map(Content::new);
    let commit = texts
        .iter()
        .fold(start("run-1"), |commit, text| commit.content(text.clone()));
    done(store.commit(commit.content(texts[0].clone())));
    done(store.commit(Commit::after("run-1", 0).content(texts[0].clone())));
    let wanted = [2, 0, 1, 0].map(|at| texts[at].hash()).to_vec();
    drop(store);
    let read = done(open().contents(wanted));
    assert_eq!(read, [2, 0, 1, 0].map(|at| texts[at].text().clone()));
    let hash = Content::new("never kept").hash();
    assert_eq!(
        refused(open().contents(vec![texts[0].hash(), hash])),
        StoreError::NoSuchContent { hash }
    );
}

fn named(open: &Open) {
    let store = open();
    let (first, later) = (Content::new("from the start"), Content::new("came later"));
    done(store.commit(start("run-1").name(first.clone())));
    done(store.commit(Commit::after("run-1", 0).record(record(1)).name(later.clone())));
    let unknown = Content::new("never kept").hash();
    let mut naming = Commit::after("run-1", 1);
    naming.names = vec![unknown];
    assert_eq!(
        refused(store.commit(naming)),
        StoreError::NoSuchContent { hash: unknown }
    );
    drop(store);
    let store = open();
    let run = done(store.run("run-1")).expect("is there");
    assert_eq!(run.contents, [first.hash(), later.hash()]);
    done(store.contents(run.contents));
    done(store.remove(vec!["run-1".into()], false));
    assert_eq!(
        refused(store.contents(vec![later.hash()])),
        StoreError::NoSuchContent { hash: later.hash() },
        "it goes with the run"
    );
}

fn sessions(open: &Open) {
    let store = open();
    let text = Content::new("a chunk");
    let write = |follows: u64, contents| SessionWrite {
        id: "s".into(),
        follows,
        body: format!("{{\"after\": {follows}}}"),
        contents,
        at: 7 + follows,
    };
    done(store.commit(start("run-1").content(text.clone())));
    assert_eq!(done(store.session("s")), None);
    done(store.commit(Commit::after("run-1", 0).session(write(0, vec![text.hash()]))));
    let error = refused(store.commit(Commit::after("run-1", 0).session(write(0, Vec::new()))));
    assert!(
        matches!(
            error,
            StoreError::SessionMoved {
                expected: 0,
                found: 1,
                ..
            }
        ),
        "{error}"
    );
    let unknown = Content::new("never kept").hash();
    let error = refused(store.commit(Commit::after("run-1", 0).session(write(1, vec![unknown]))));
    assert_eq!(error, StoreError::NoSuchContent { hash: unknown });
    done(
        store.commit(
            Commit::after("run-1", 0)
                .record(record(1))
                .session(write(1, vec![text.hash()])),
        ),
    );
    drop(store);
    let session = Session {
        id: "s".into(),
        version: 2,
        body: "{\"after\": 1}".into(),
        contents: vec![text.hash()],
        run: "run-1".into(),
        updated_at: 8,
    };
    assert_eq!(done(open().session("s")), Some(session));
}

fn timers(open: &Open) {
    let store = open();
    let timer = |due, run: &str, effect: &str| Timer {
        due,
        run: run.into(),
        effect: effect.into(),
    };
    done(store.commit(start("a").timer(30, "x").timer(10, "y")));
    done(store.commit(start("b").timer(20, "x").timer(10, "x").timer(10, "x")));
    let all = [
        timer(10, "a", "y"),
        timer(10, "b", "x"),
        timer(20, "b", "x"),
        timer(30, "a", "x"),
    ];
    assert_eq!(done(store.timers(u64::MAX, 9)), all);
    assert_eq!(done(store.timers(20, 9)), all[..3]);
    assert_eq!(done(store.timers(20, 2)), all[..2]);
    assert_eq!(done(store.timers(9, 2)), []);
    done(
        store.commit(
            Commit::after("b", 0)
                .clear_timer(10, "x")
                .clear_timer(11, "x")
                .clear_timer(10, "y"),
        ),
    );
    done(store.commit(Commit::after("a", 0).clear_timer(30, "x").timer(40, "x")));
    drop(store);
    let left = [timer(10, "a", "y"), timer(20, "b", "x"), timer(40, "a", "x")];
    assert_eq!(done(open().timers(u64::MAX, 9)), left);
    assert_eq!(
        refused(open().commit(Commit::after("a", 0).timer(u64::MAX, "x"))).code(),
        "STORE_LIMIT"
    );
}

fn snapshots(open: &Open) {
    let store = open();
    done(store.commit(start("run-1")));
    append(&*store, "run-1", 0, 1..=10);
    assert_eq!(done(store.snapshot("run-1", 10)), None);
    done(store.commit(Commit::after("run-1", 10).snapshot(4, "four")));
    done(store.commit(Commit::after("run-1", 10).record(record(11)).snapshot(11, "eleven")));
    append(&*store, "run-1", 11, [12]);
    drop(store);
    let store = open();
    let last = Snapshot {
        step: 11,
        body: "eleven".into(),
    };
    assert_eq!(done(store.snapshot("run-1", 12)), Some(last.clone()));
    assert_eq!(done(store.snapshot("run-1", 11)), Some(last));
    assert_eq!(done(store.snapshot("run-1", 10)), None);
    let error = refused(store.commit(Commit::after("run-1", 12).snapshot(13, "never was")));
    assert!(
        matches!(
            error,
            StoreError::Moved {
                expected: 13,
                found: 12,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        refused(store.snapshot("none", 1)),
        StoreError::NoSuchRun { run: "none".into() }
    );
}

fn meta(open: &Open) {
    let store = open();
    assert_eq!(done(store.meta("a")), None);
    done(store.set_meta("a", Some("1".into())));
    done(store.set_meta("b", Some(String::new())));
    done(store.set_meta("a", Some("2".into())));
    done(store.set_meta("none", None));
    drop(store);
    let store = open();
    assert_eq!(done(store.meta("a")), Some("2".into()));
    assert_eq!(done(store.meta("b")), Some(String::new()));
    done(store.set_meta("a", None));
    assert_eq!(done(store.meta("a")), None);
}
