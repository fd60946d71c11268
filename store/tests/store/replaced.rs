//! Replacement of a run by another one with its id.

use futures::executor::block_on;
use pirn_store::conformance::contents_of;
use pirn_store::{Base, Commit, Content, MemoryStore, NewRun, Record, RunStatus, SqliteStore, Store, StoreError};
use pirn_test_disk::{Disk, Survives, Trouble, VFS};

fn start(run: &str, base: Option<Base>, input: &Content) -> Commit {
    let definition = Content::new("{}");
    let new = NewRun {
        base,
        contents: vec![input.hash()],
        ..NewRun::new("flow", definition.hash(), 1)
    };
    let start = Commit::start(run, new).content(definition).content(input.clone());
    let records = (0..20).fold(start, |start, at| start.record(Record::new(at, format!("{run} {at}"))));
    records.status(RunStatus::Completed).snapshot(5, "state")
}

/// Creates the runs `a` and `b`, and the fork `c` of `b`. Returns the content that only `a` names.
fn fill(store: &dyn Store) -> Content {
    let input = Content::new("of a");
    block_on(store.commit(start("a", None, &input))).expect("begins");
    block_on(store.commit(start("b", None, &Content::new("of b")))).expect("begins");
    let base = Base {
        run: "b".to_owned(),
        step: 7,
    };
    block_on(store.commit(start("c", Some(base), &Content::new("of c")))).expect("is forked");
    input
}

fn replacement(run: &str) -> Commit {
    let definition = Content::new("{}");
    Commit::start(run, NewRun::new("flow", definition.hash(), 1))
        .content(definition)
        .record(Record::new(30, "report"))
        .status(RunStatus::Completed)
}

#[test]
fn a_replaced_run_has_only_its_new_data_and_a_refused_replacement_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = SqliteStore::open(folder.path().join("runs.db")).expect("opens");
    for store in [Box::new(MemoryStore::new()) as Box<dyn Store>, Box::new(file)] {
        let input = fill(&*store);
        assert_eq!(block_on(store.replace(replacement("a"))), Ok(1));
        let run = block_on(store.run("a")).expect("reads").expect("is there");
        assert_eq!((run.status, run.steps, run.updated_at), (RunStatus::Completed, 1, 30));
        assert_eq!(block_on(store.journal("a", 0, 99)), Ok(vec![Record::new(30, "report")]));
        assert_eq!(block_on(store.snapshot("a", 99)), Ok(None));
        let gone = block_on(store.contents(vec![input.hash()])).expect_err("only the former run named it");
        assert!(matches!(gone, StoreError::NoSuchContent { .. }), "{gone}");
        // Again: the definition of the new run is not removed with the former one.
        assert_eq!(block_on(store.replace(replacement("a"))), Ok(1));
        let before = contents_of(&*store);
        for (run, code) in [("b", "RUN_ID_TAKEN"), ("none", "NO_SUCH_RUN")] {
            let refused = block_on(store.replace(replacement(run))).expect_err("is refused");
            assert_eq!(refused.code(), code);
        }
        // A refusal together with accepted commits.
        let refused = store.replace(replacement("b"));
        let step = Commit::after("a", 1).record(Record::new(31, "x"));
        let accepted = store.commit(step);
        assert_eq!(block_on(refused).expect_err("is refused").code(), "RUN_ID_TAKEN");
        assert_eq!(block_on(accepted), Ok(2));
        assert_eq!(block_on(store.replace(replacement("a"))), Ok(1));
        assert_eq!(contents_of(&*store), before);
        assert_eq!(block_on(store.journal("c", 0, 99)).expect("reads").len(), 27);
    }
}

#[test]
fn a_power_cut_at_any_operation_of_a_replacement_leaves_the_former_or_the_new_run() {
    let open = |disk: &Disk| SqliteStore::open_on(VFS, disk.path("runs.db"));
    let made = Disk::new();
    let store = open(&made).expect("opens");
    fill(&store);
    let former = contents_of(&store);
    store.close().expect("closes");
    let whole = made.after_power_cut(Survives::All);
    let store = open(&whole).expect("opens");
    block_on(store.replace(replacement("a"))).expect("replaces");
    let new = contents_of(&store);
    store.close().expect("closes");
    let mut seen = [0, 0];
    for at in 0..whole.count() {
        let disk = made.after_power_cut(Survives::All);
        disk.trouble(at, Trouble::PowerAfter);
        let mut is_durable = false;
        if let Ok(store) = open(&disk) {
            is_durable = block_on(store.replace(replacement("a"))).is_ok();
        }
        for survives in [Survives::All, Survives::Nothing, Survives::Any(at)] {
            let store = open(&disk.after_power_cut(survives)).unwrap_or_else(|error| panic!("{at}: {error}"));
            let found = contents_of(&store);
            assert!(
                found == new || !is_durable && found == former,
                "after operation {at}: {found}"
            );
            seen[usize::from(found == new)] += 1;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
