//! Recovery of scripts: a killed process, and a changed script.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{MemoryStore, Store};
use pirn::{Engine, Migration, RunReport, SourceFile};
use pirn_tests::world::{line, node, run_in};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Echo, engine, script};
use crate::durable::faults::failing_store::{Crash, Failing};

/// 30 agents, 5 at once.
const THIRTY_AGENTS: &str = "
    phase('Find')
    const found = await parallel(Array.from({ length: 12 }, (_, i) => () => agent(`find ${i}`)))
    const checked = await pipeline(found, (text, _, i) => agent(`check ${i}: ${text}`), text => text.length)
    const one = await any([() => agent('one'), () => sleep(60000), () => event('never')])
    log('now', Date.now() > 0, Math.random() < 1)
    const child = await workflow('child', { n: 1 })
    await sleep(1000)
    const rest = await parallel([1, 2, 3, 4, 5].map(i => () => agent(`last ${i}`)))
    return { found, checked, one, child, rest, random: Math.random() }";

fn thirty(store: impl Store, echo: &Echo) -> Engine {
    let config = json!({ "variableName": "x", "expression": "input.n + 1" });
    let child = line("child", &[node("v", "VARIABLE", config)]);
    let main = script(THIRTY_AGENTS, json!({ "limits": { "concurrency": 5 } }));
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store)
        .model("default", Arc::new(echo.clone()))
        .workflows(json!({ "workflows": [main, child] }).to_string());
    engine.build().expect("builds")
}

/// Starts the run, or resumes it from the store. Returns its report.
fn played(engine: &Engine, store: &MemoryStore) -> Option<RunReport> {
    outcome_of(engine, "main", &Value::Null, store)
}

/// Starts a run of the workflow, or resumes it from the store. Returns its report, or `None` if the store failed.
pub(super) fn outcome_of(engine: &Engine, workflow: &str, input: &Value, store: &MemoryStore) -> Option<RunReport> {
    let run = match block_on(store.run("r")).expect("is read") {
        None => engine
            .run(workflow)
            .run_id("r")
            .input(input.clone())
            .start()
            .expect("starts"),
        Some(there) if there.status.is_final() => {
            return Some(block_on(engine.view("r", None)).expect("is read").report);
        }
        Some(_) => block_on(engine.resume("r").start()).expect("goes on"),
    };
    let report = (*run.outcome_blocking()).clone();
    engine.shutdown_blocking(Duration::from_secs(5));
    let failed = report
        .error
        .as_ref()
        .is_some_and(|error| error.code.as_str() == "STORE_ERROR");
    (!failed).then_some(report)
}

#[test]
fn a_script_of_thirty_agents_killed_at_any_commit_repeats_no_finished_agent() {
    let (store, echo) = (MemoryStore::new(), Echo::default());
    let counting = Failing::new(store.clone(), Crash::Never);
    let whole = played(&thirty(counting.clone(), &echo), &store).expect("ends");
    assert_eq!(whole.error, None);
    assert_eq!(whole.output["rest"].as_array().map(Vec::len), Some(5));
    assert_eq!(echo.prompts().len(), 30);
    let commits = counting.commits();
    // About a hundred places, spread over the run.
    let stride = usize::try_from((commits / 50).max(1)).unwrap_or(1);
    for at in (0..commits).step_by(stride) {
        for crash in [Crash::Before(at), Crash::After(at)] {
            let (store, first, second) = (MemoryStore::new(), Echo::default(), Echo::default());
            let before = played(&thirty(Failing::new(store.clone(), crash), &first), &store);
            let engine = thirty(store.clone(), &second);
            let finished: BTreeSet<String> = if block_on(store.run("r")).expect("is read").is_none() {
                BTreeSet::new()
            } else {
                let view = block_on(engine.view("r", None)).expect("is read");
                let events = view.events.iter().map(|event| event.to_json());
                let ends = events.filter(|event| event["type"] == "THREAD_COMPLETED");
                let outputs = ends.filter_map(|event| event["output"].as_str().map(str::to_owned));
                outputs
                    .filter_map(|text| text.strip_prefix("re: ").map(str::to_owned))
                    .collect()
            };
            let report = played(&engine, &store).or(before).expect("ends in the end");
            let case = format!("{crash:?}");
            assert_eq!((report.status, &report.output), (whole.status, &whole.output), "{case}");
            assert_eq!(
                report.tokens.spent, whole.tokens.spent,
                "{case}: tokens are counted once"
            );
            let again: Vec<String> = second.prompts();
            let repeated = again.iter().find(|prompt| finished.contains(*prompt));
            assert_eq!(repeated, None, "{case}: a finished agent ran again");
            let twice = again.iter().filter(|prompt| first.prompts().contains(prompt)).count();
            assert!(twice <= 5, "{case}: {twice} calls were in progress, of at most 5");
        }
    }
}

fn process(store: &MemoryStore, code: &str, echo: &Echo) -> Engine {
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .model("default", Arc::new(echo.clone()))
        .workflows(script(code, json!({})).to_string());
    engine.build().expect("builds")
}

/// Runs a script until it waits for the event `go`, and ends its process. Returns an engine of the next process, and the result of a
/// migration of the run to the other script.
fn migrated(before: &str, after: &str, (first, second): (&Echo, &Echo)) -> (Engine, Migration) {
    let store = MemoryStore::new();
    let engine = process(&store, before, first);
    let run = engine.run("main").run_id("r").start().expect("starts");
    engine.wait_idle();
    run.release();
    engine.shutdown_blocking(Duration::from_secs(5));
    let engine = process(&store, before, first);
    let file = [SourceFile::new("new.json", script(after, json!({})).to_string())];
    let checked = block_on(engine.resume("r").check_migration(&file)).expect("is checked");
    let moved = block_on(engine.resume("r").migrate(&file)).expect("is checked");
    assert_eq!(checked, moved);
    engine.shutdown_blocking(Duration::from_secs(5));
    (process(&store, after, second), moved)
}

/// Resumes the run and raises the event `go`. Returns the report as JSON.
fn resumed(engine: &Engine) -> Value {
    let run = block_on(engine.resume("r").start()).expect("goes on");
    run.emit("go", [("n", json!(1))]);
    let report = json!(*run.outcome_blocking());
    engine.shutdown_blocking(Duration::from_secs(5));
    report
}

/// Runs a script until it waits for the event `go`, then migrates the run to the other script and raises the event. Returns the report
/// as JSON, and the prompts of both processes.
fn changed(before: &str, after: &str) -> (Value, Vec<String>, Vec<String>) {
    let (first, second) = (Echo::default(), Echo::default());
    let (engine, moved) = migrated(before, after, (&first, &second));
    assert!(moved.fits, "{moved:?}");
    (resumed(&engine), first.prompts(), second.prompts())
}

const BEFORE: &str = "const [a, b] = await parallel([() => agent('a'), () => agent('b')]); const e = await event('go'); return [a, b, e.type]";

#[test]
fn a_changed_script_resumes_its_unchanged_prefix_without_calling_it_again() {
    let after = "const two = [() => agent('a'), () => agent('b')]; const [a, b] = await parallel(two)
        log(a); await event('go'); return [a, await agent('new')]";
    let (report, first, second) = changed(BEFORE, after);
    assert_eq!(report["output"], json!(["re: a", "re: new"]), "{report}");
    assert_eq!(
        (first, second),
        (vec!["a".to_owned(), "b".to_owned()], vec!["new".to_owned()])
    );
}

#[test]
fn a_migration_to_a_script_that_makes_other_calls_than_the_recorded_ones_is_refused_with_the_first_difference() {
    let cases = [
        (
            "const a = await agent('a'); const b = await agent('other'); await event('go'); return 1",
            1,
            "event",
            Some("agent"),
        ),
        (
            "const b = await agent('z'); await event('go'); return b",
            0,
            "agent",
            Some("agent"),
        ),
        ("await event('go'); return 1", 0, "agent", Some("event")),
        (
            "await parallel([() => agent('a'), () => agent('b')]); await sleep(5)",
            2,
            "event",
            Some("sleep"),
        ),
        (
            "await parallel([() => agent('a'), () => agent('b')]); await new Promise(() => {})",
            2,
            "event",
            None,
        ),
        ("return [await agent('a')]", 1, "agent", None),
        ("await agent('a'); throw new Error('no')", 1, "agent", None),
    ];
    for (after, call, recorded, now) in cases {
        let (first, second) = (Echo::default(), Echo::default());
        let (engine, moved) = migrated(BEFORE, after, (&first, &second));
        assert!(!moved.fits, "{after}");
        let difference = moved.first_difference.expect("is named");
        assert_eq!(difference.node_id.as_deref(), Some("plan"), "{after}");
        let recorded = if call == 1 { "agent" } else { recorded };
        assert_eq!(difference.before, json!({ "call": call, "kind": recorded }), "{after}");
        let error = &difference.after["error"];
        assert_eq!(error["code"], "RUN_DIVERGED", "{after}: {error}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("keep the calls that the script has made"),
            "{after}: {message}"
        );
        assert_eq!(
            (&difference.after["call"], &difference.after["kind"]),
            (&json!(call), &json!(now)),
            "{after}"
        );
        assert_eq!(
            resumed(&engine)["output"],
            json!(["re: a", "re: b", "CUSTOM"]),
            "{after}"
        );
        assert_eq!(second.prompts(), Vec::<String>::new(), "{after}");
    }
}

#[test]
fn a_script_that_throws_after_its_recorded_calls_is_accepted_and_its_run_fails_there() {
    let after = "await parallel([() => agent('a'), () => agent('b')]); await event('go'); throw new Error('new')";
    let (report, ..) = changed(BEFORE, after);
    assert_eq!(report["error"]["message"], "new", "{report}");
}

/// A script of groups of concurrent calls: agents by number, and the event `go` as `None`.
type Groups = Vec<Vec<Option<u8>>>;

/// Returns groups of agents, one group with the event, and further ones.
fn groups() -> impl Strategy<Value = Groups> {
    let agents = || prop::collection::vec(prop::collection::vec((0..3_u8).prop_map(Some), 1..3), 0..3);
    (agents(), prop::collection::vec(0..3_u8, 0..2), agents()).prop_map(|(mut groups, beside, after)| {
        groups.push(std::iter::once(None).chain(beside.into_iter().map(Some)).collect());
        groups.extend(after);
        groups
    })
}

fn code_of(groups: &Groups) -> String {
    let call = |call: &Option<u8>| match call {
        Some(number) => format!("() => agent('a{number}')"),
        None => "() => event('go')".to_owned(),
    };
    let parallel = |group: &Vec<Option<u8>>| {
        let calls: Vec<String> = group.iter().map(call).collect();
        format!("await parallel([{}]);", calls.join(", "))
    };
    let lines: Vec<String> = groups.iter().map(parallel).collect();
    format!("{} return 1", lines.join("\n"))
}

/// Returns the calls until the script waits for the event.
fn calls_before_go(groups: &Groups) -> Vec<Option<u8>> {
    let waits = groups.iter().position(|group| group.contains(&None));
    let until = waits.map_or(groups.len(), |at| at + 1);
    groups[..until].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_migration_accepts_exactly_the_scripts_that_make_the_recorded_calls(
        before in groups(), other in groups(), common in 0..4_usize,
    ) {
        // A common beginning, because two random scripts rarely have one.
        let common = common.min(before.len());
        let mut after: Groups = before[..common].iter().chain(&other).cloned().collect();
        // The event is raised once.
        let waits = after.iter().position(|group| group.contains(&None)).unwrap_or_default();
        after[waits + 1..].iter_mut().for_each(|group| group.retain(Option::is_some));
        let (recorded, made) = (calls_before_go(&before), calls_before_go(&after));
        let echoes = (Echo::default(), Echo::default());
        let (engine, moved) = migrated(&code_of(&before), &code_of(&after), (&echoes.0, &echoes.1));
        prop_assert_eq!(moved.fits, made.starts_with(&recorded), "{:?} {:?}: {:?}", before, after, moved);
        let report = resumed(&engine);
        prop_assert_eq!(&report["status"], &json!("COMPLETED"), "{:?} {:?}: {}", before, after, report);
    }
}

#[test]
fn a_resumed_script_sees_its_recorded_time_and_random_numbers() {
    let code = "const before = [Math.random(), Date.now()]; await event('go'); return [...before, Date.now()]";
    let (report, ..) = changed(code, code);
    assert_eq!(report["status"], "COMPLETED", "{report}");
    assert_eq!(report["output"][1], report["output"][2]);
}

#[test]
fn the_number_of_steps_of_a_script_is_linear_in_its_agents() {
    let steps = |agents: u32| {
        let code =
            format!("await parallel(Array.from({{ length: {agents} }}, (_, i) => () => agent(`${{i}}`))); return 1");
        let bundle = script(&code, json!({ "limits": { "agents": 1000 } }));
        let ran = run_in(engine(&Echo::default()), &bundle, Value::Null, Vec::new());
        assert_eq!(ran.report.error, None);
        ran.events.len()
    };
    let (few, many) = (steps(50), steps(500));
    assert!(many <= few * 10 + 100, "{few} events of 50 agents, {many} of 500");
}
