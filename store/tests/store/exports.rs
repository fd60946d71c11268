//! Export and import of runs.

use futures::executor::block_on;
use pirn_store::conformance::{Step, steps};
use pirn_store::export::{ExportError, export, import};
use pirn_store::{MemoryStore, RunFilter, Store};

use super::scripts::open;

fn filled() -> MemoryStore {
    let store = MemoryStore::new();
    // Without removals, so that many runs exist.
    steps(21, 300)
        .iter()
        .filter(|step| matches!(step, Step::Commit(_)))
        .for_each(|step| drop(step.apply(&store)));
    store
}

fn text_of(store: &dyn Store, id: &str) -> Vec<u8> {
    let mut text = Vec::new();
    block_on(export(store, id, &mut text)).unwrap_or_else(|error| panic!("{id}: {error}"));
    text
}

#[test]
fn an_imported_run_equals_the_exported_run() {
    let (from, disk) = (filled(), pirn_test_disk::Disk::new());
    let to = open(&disk).expect("opens");
    let runs = block_on(from.runs(RunFilter::default(), None, usize::MAX)).expect("runs");
    assert!(runs.iter().any(|run| run.base.is_some()) && runs.iter().any(|run| run.steps > 20));
    for run in runs {
        let text = text_of(&from, &run.id);
        assert_eq!(block_on(import(&to, &mut &*text, None)).expect("is imported"), run.id);
        let imported = block_on(to.run(&run.id)).expect("is there").expect("is there");
        assert_eq!(
            (imported.steps, imported.status, imported.started_at),
            (run.steps, run.status, run.started_at)
        );
        assert_eq!(
            (imported.definition, imported.contents.clone(), imported.base),
            (run.definition, run.contents, None)
        );
        let journal = |store: &dyn Store| block_on(store.journal(&run.id, 0, usize::MAX)).expect("its journal");
        assert_eq!(journal(&to), journal(&from));
        let timers = |store: &dyn Store| -> Vec<_> {
            let all = block_on(store.timers(u64::MAX, usize::MAX)).expect("timers");
            all.into_iter().filter(|timer| timer.run == run.id).collect()
        };
        assert_eq!(timers(&to), timers(&from));
        // A second import is refused; under another id it succeeds.
        assert!(matches!(
            block_on(import(&to, &mut &*text, None)),
            Err(ExportError::Store(_))
        ));
        assert_eq!(
            block_on(import(&to, &mut &*text, Some(&format!("copy-of-{}", run.id)))).expect("is imported"),
            format!("copy-of-{}", run.id)
        );
    }
}

#[test]
fn a_changed_or_truncated_file_imports_nothing() {
    let from = filled();
    let runs = block_on(from.runs(RunFilter::default(), None, usize::MAX)).expect("runs");
    let longest = runs.iter().max_by_key(|run| run.steps).expect("a run");
    let text = text_of(&from, &longest.id);
    let to = MemoryStore::new();
    for at in (0..text.len()).step_by(31) {
        let cut = block_on(import(&to, &mut &text[..at], None));
        assert!(
            matches!(cut, Err(ExportError::Malformed { .. })),
            "cut at {at}: {cut:?}"
        );
        let mut changed = text.clone();
        changed[at] ^= 1;
        let changed = block_on(import(&to, &mut &*changed, None));
        assert!(changed.is_err(), "changed at {at}: {changed:?}");
    }
    assert_eq!(block_on(to.runs(RunFilter::default(), None, 9)), Ok(Vec::new()));
}

#[test]
fn a_file_of_two_exported_runs_imports_neither() {
    let from = filled();
    let runs = block_on(from.runs(RunFilter::default(), None, 2)).expect("runs");
    let both = [text_of(&from, &runs[0].id), text_of(&from, &runs[1].id)].concat();
    let to = MemoryStore::new();
    let imported = block_on(import(&to, &mut &both[..], None));
    assert!(
        matches!(&imported, Err(ExportError::Malformed { why, .. }) if why.contains("the file continues")),
        "{imported:?}"
    );
    assert_eq!(block_on(to.runs(RunFilter::default(), None, 9)), Ok(Vec::new()));
}
