//! Export and import of runs.

use futures::executor::block_on;
use pirn_store::conformance::{Step, steps};
use pirn_store::export::{ExportError, export, import};
use pirn_store::{ContentHash, MemoryStore, RunFilter, Store};
use sha2::{Digest, Sha256};

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

/// Returns the id of the run with the most steps, and its export.
fn longest_run() -> (String, Vec<u8>) {
    let from = filled();
    let runs = block_on(from.runs(RunFilter::default(), None, usize::MAX)).expect("runs");
    let longest = runs.into_iter().max_by_key(|run| run.steps).expect("a run");
    let text = text_of(&from, &longest.id);
    (longest.id, text)
}

/// Returns the id of a run, its export, and the number of the line with the first step.
fn exported_with_a_step() -> (String, String, usize) {
    let (id, text) = longest_run();
    let text = String::from_utf8(text).expect("UTF-8");
    let step = text.lines().position(|line| line.starts_with("{\"step\":1,"));
    (id, text, step.expect("a step") + 1)
}

#[test]
fn a_changed_or_truncated_file_imports_nothing() {
    let (_, text) = longest_run();
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

#[test]
fn a_number_of_lines_beyond_the_file_is_refused() {
    let from = filled();
    let runs = block_on(from.runs(RunFilter::default(), None, 1)).expect("runs");
    let text = String::from_utf8(text_of(&from, &runs[0].id)).expect("text");
    let count = text.lines().count() - 1;
    let largest = text.replace(
        &format!("{{\"lines\":{count},"),
        &format!("{{\"lines\":{},", usize::MAX),
    );
    assert_ne!(largest, text);
    let imported = block_on(import(&MemoryStore::new(), &mut largest.as_bytes(), None));
    assert!(
        matches!(&imported, Err(ExportError::Malformed { why, .. }) if why.contains("checksum")),
        "{imported:?}"
    );
}

/// Imports an exported run with one line replaced, and the checksum of the changed file.
fn imported_with(text: &str, (line, changed): (usize, &str)) -> Result<String, ExportError> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines[line - 1] = changed;
    let count = lines.len() - 1;
    let before = lines[..count].join("\n") + "\n";
    let sum = ContentHash::from_bytes(Sha256::digest(&before).into());
    let file = format!("{before}{{\"lines\":{count},\"sha256\":\"{sum}\"}}\n");
    block_on(import(&MemoryStore::new(), &mut file.as_bytes(), None))
}

#[test]
fn a_line_that_is_not_strict_json_is_refused_with_its_column() {
    let (id, text, step) = exported_with_a_step();
    let deep = |levels: usize| {
        let body = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"step":1,"at":1,"body":{body}}}"#)
    };
    for accepted in [
        r#"{"step":1,"at":1,"body":{"a":{"b":1},"b":[{"a":1},{"a":1}]}}"#,
        &deep(127),
    ] {
        assert_eq!(
            imported_with(&text, (step, accepted)).expect("is imported"),
            id,
            "{accepted}"
        );
    }
    for (changed, column, why) in [
        (
            r#"{"step":1,"at":1,"body":{"a":[0,{"b":1,"b":2}]}}"#,
            40,
            "/a/1/b: the key `b` is given twice",
        ),
        (
            r#"{"step":1,"at":1,"body":{"é":1,"a/b":1,"a/b":2}}"#,
            40,
            "/a~1b: the key `a/b` is given twice",
        ),
        (
            r#"{"step":1,"step":1,"at":1,"body":1}"#,
            11,
            "/step: the key `step` is given twice",
        ),
        (
            r#"{"step":1,"at":1,"bodyText":"{\"a\":1,\"a\":2}"}"#,
            0,
            "/bodyText: /a: the key `a` is given twice",
        ),
        (r#"{"step":1,"at":1,"more":1,"body":1}"#, 23, "unknown field `more`"),
        (
            r#"{"step":1,"at":1,"body":1} x"#,
            28,
            "not a line of an exported run: it does not end with `}`",
        ),
        (r#"{"step":1,"at":1,"body":{}"#, 25, "EOF while parsing an object"),
        (r#"{"step":1,"at":1,"body":1"#, 25, "does not end with `}`"),
        (r#"{"step":1,"at":1,"body":1}{}"#, 26, "trailing characters"),
        (r#"{"step":1,"at":1,"body":01}"#, 26, "invalid number"),
        (&deep(128), 24 + 128, "nested more than 127 levels deep"),
        (&deep(100_000), 24 + 128, "nested more than 127 levels deep"),
    ] {
        match imported_with(&text, (step, changed)) {
            Err(ExportError::Malformed {
                line,
                column: at,
                why: found,
            }) => {
                assert_eq!((line, at.unwrap_or(0)), (step, column), "{changed:.80}: {found}");
                assert!(found.contains(why), "{changed:.80}: {found}");
            }
            other => panic!("{changed:.80}: {other:?}"),
        }
    }
}

#[test]
fn a_key_that_serde_json_would_read_as_another_value_is_preserved_or_refused() {
    let (_, text, step) = exported_with_a_step();
    let body = r#"{"$serde_json::private::RawValue":"[1]"}"#;
    // Depends on the cargo feature `raw_value`, which any crate of a build can enable.
    let is_preserved = serde_json::from_str::<serde_json::Value>(body).is_ok_and(|value| value.is_object());
    let imported = imported_with(&text, (step, &format!(r#"{{"step":1,"at":1,"body":{body}}}"#)));
    match imported {
        Ok(_) => assert!(is_preserved),
        Err(error) => {
            assert!(!is_preserved, "{error}");
            let expected = format!("line {step}, column 26: /$serde_json::private::RawValue: the key");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}
