//! Replays runs stored by earlier versions: each yields the recorded events, sequence numbers and report.
//!
//! `tests/durable/golden/N/` has the runs of version N of the run semantics: `NAME.run` as `pirn runs export` writes it, and
//! `NAME.told` with a line for each event and the report as the last line. These files never change. `PIRN_GOLDEN=write cargo
//! test --test scenarios durable::golden` adds the missing files for the current version.

use std::fs;
use std::path::{Path, PathBuf};

use futures::executor::block_on;
use pirn::store::export::{export, import};
use pirn::store::{MemoryStore, NewRun, Store};
use serde_json::{Value, json};

use super::crashes::crash_and_resume_in;
use super::faults::external_effects::{Outside, RUN};
use super::faults::failing_store::{Crash, Failing};
use super::inputs::answers::asks;
use super::{small_workflows, workflows};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("durable/golden")
}

/// Returns the version of the run semantics that this build writes.
fn version() -> u32 {
    NewRun::new("main", pirn::store::Content::new("").hash(), 0).semantics
}

/// Replays a stored run and returns its events and its report.
fn told(store: MemoryStore) -> Result<Vec<Value>, String> {
    let outside = Outside::default();
    let engine = outside.engine(r#"{"workflows": []}"#, store).build().expect("builds");
    let view = block_on(engine.view(RUN, None)).map_err(|error| error.to_string())?;
    let events = view.events.iter().map(|event| event.to_json());
    Ok(events.chain([json!(view.report)]).collect())
}

/// Returns the first step at which a run had raised at least `events` events.
fn step_of(store: MemoryStore, events: usize) -> u64 {
    let outside = Outside::default();
    let engine = outside.engine(r#"{"workflows": []}"#, store).build().expect("builds");
    let told = |step: u64| block_on(engine.view(RUN, Some(step))).map_or(usize::MAX, |view| view.events.len());
    let last = block_on(engine.view(RUN, None)).map_or(0, |view| view.step);
    (0..last).find(|step| told(*step) >= events).unwrap_or(last)
}

/// Returns true if `now` contains all of `then`: a later version may add fields.
fn has(now: &Value, then: &Value) -> bool {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => then
            .iter()
            .all(|(name, value)| now.get(name).is_some_and(|now| has(now, value))),
        (Value::Array(now), Value::Array(then)) => {
            now.len() == then.len() && now.iter().zip(then).all(|(now, then)| has(now, then))
        }
        (now, then) => now == then,
    }
}

fn write(name: &str, store: &MemoryStore) {
    let folder = folder().join(version().to_string());
    fs::create_dir_all(&folder).expect("writable");
    let run = folder.join(format!("{name}.run"));
    if run.exists() {
        return;
    }
    let mut file = Vec::new();
    block_on(export(store, RUN, &mut file)).expect("is exported");
    fs::write(run, file).expect("writable");
    let lines: Vec<String> = told(store.clone())
        .expect("replays")
        .iter()
        .map(Value::to_string)
        .collect();
    fs::write(folder.join(format!("{name}.told")), lines.join("\n") + "\n").expect("writable");
}

/// Returns the store of a run that is parked while it waits for a person.
fn parked() -> MemoryStore {
    let (store, outside) = (MemoryStore::new(), Outside::default().parking());
    let engine = outside.engine(&asks(), store.clone()).build().expect("builds");
    let run = engine.run("main").run_id(RUN).input(json!({"ticket": 7})).start();
    let run = run.expect("starts");
    engine.wait_idle();
    block_on(run.wait_durable()).expect("is kept");
    store
}

/// Returns the paths and contents of all golden files.
fn golden() -> Vec<(PathBuf, String)> {
    let versions = fs::read_dir(folder()).expect("readable");
    let files = versions.flat_map(|version| fs::read_dir(version.expect("readable").path()).expect("readable"));
    let paths = files.map(|file| file.expect("readable").path());
    paths
        .map(|path| {
            let text = fs::read_to_string(&path).expect("readable");
            (path, text)
        })
        .collect()
}

#[test]
fn golden_journals_contain_every_kind_of_record() {
    let files = golden();
    for (ending, words) in [
        ("run", vec!["TriggerCalled", "WAITING"]),
        (
            "told",
            vec![
                "BUDGET_WARNING",
                "TOKEN_BUDGET_EXCEEDED",
                "ARTIFACT_KEPT",
                "ARTIFACT_DROPPED",
                r#""tool":{"#,
                "NOTIFICATION",
            ],
        ),
    ] {
        for word in words {
            let says = |(path, text): &(PathBuf, String)| {
                path.extension().is_some_and(|found| found == ending) && text.contains(word)
            };
            assert!(files.iter().any(says), "no .{ending} with {word}");
        }
    }
}

#[test]
fn a_parked_run_of_every_version_continues_after_its_answer() {
    let mut count = 0;
    for (path, run) in golden() {
        if !path.ends_with("parked.run") {
            continue;
        }
        count += 1;
        let store = MemoryStore::new();
        block_on(import(&store, &mut run.as_bytes(), None)).expect("is imported");
        assert!(Outside::default().play(&asks(), &store), "{}", path.display());
        let ended = block_on(store.run(RUN)).expect("is read").expect("is there");
        assert_eq!(ended.status.as_str(), "COMPLETED", "{}", path.display());
    }
    assert!(count >= 1);
}

/// Writes runs of each small workflow, uninterrupted and resumed after a crash, a parked run, and every fourth bundle of
/// `workflows::all`.
fn write_all() {
    for (name, bundle) in small_workflows::all().into_iter().chain(small_workflows::later()) {
        let store = MemoryStore::new();
        assert!(Outside::default().play(&bundle, &store));
        write(name, &store);
        let whole = Failing::new(MemoryStore::new(), Crash::Never);
        let outside = Outside::default();
        assert!(outside.play(&bundle, &whole));
        let found = outside.known().clone();
        let crashed = MemoryStore::new();
        crash_and_resume_in(&crashed, &bundle, Crash::Before(whole.commits() / 2), &found);
        write(&format!("{name}-resumed"), &crashed);
    }
    write("parked", &parked());
    for (number, bundle) in workflows::all().iter().enumerate().skip(3).step_by(4) {
        let store = MemoryStore::new();
        assert!(Outside::default().play(bundle, &store));
        write(&format!("workflow-{number:02}"), &store);
    }
}

#[test]
fn golden_journals_of_every_version_replay_identically() {
    if std::env::var("PIRN_GOLDEN").is_ok_and(|word| word == "write") {
        write_all();
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for version in fs::read_dir(folder()).expect("readable") {
        for file in fs::read_dir(version.expect("readable").path()).expect("readable") {
            let path = file.expect("readable").path();
            if path.extension().is_none_or(|ending| ending != "run") {
                continue;
            }
            count += 1;
            let store = MemoryStore::new();
            let run = fs::read(&path).expect("readable");
            block_on(import(&store, &mut &run[..], None)).expect("is imported");
            let then = fs::read_to_string(path.with_extension("told")).expect("readable");
            let then: Vec<Value> = then
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect();
            let name = path.display();
            match told(store.clone()) {
                Err(error) => wrong.push(format!("{name}: {error}")),
                Ok(now) => {
                    let same = now.iter().zip(&then).take_while(|(now, then)| has(now, then)).count();
                    if same < then.len() || now.len() != then.len() {
                        let step = step_of(store, same + 1);
                        let (then, now) = (then.get(same), now.get(same));
                        wrong.push(format!("{name}: step {step}: was {then:?}, is {now:?}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 14, "only {count}");
}
