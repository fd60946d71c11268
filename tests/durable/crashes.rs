//! Kills the process at every commit of every workflow, on the shipped actors, and resumes the run.

use pirn::store::{MemoryStore, Store};
use serde_json::{Value, json};

use super::faults::external_effects::{Known, Outside};
use super::faults::failing_store::{Crash, Failing};
use super::workflows;

/// Returns the events except `EFFECT_IN_DOUBT`, without their sequence numbers, and asserts that the numbers have no gap.
fn unnumbered_events(known: &Known) -> Vec<String> {
    for (place, sequence) in (1..).zip(known.events.keys()) {
        assert_eq!(*sequence, place, "a number is missing");
    }
    let events = known.events.values().filter(|event| event["type"] != "EFFECT_IN_DOUBT");
    let unnumbered = events.map(|event| {
        let mut event = event.clone();
        unnumber(&mut event);
        event.to_string()
    });
    let mut events: Vec<String> = unnumbered.collect();
    // A repeated effect in one branch may be reported after events of another branch, so the order is not compared.
    events.sort();
    events
}

/// Removes sequence numbers, times and timestamps at every depth: `EFFECT_IN_DOUBT` events shift the numbers of later events.
fn unnumber(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("sequence");
            // The time at which a person answered or a trigger fired.
            fields.remove("at");
            fields.remove("timestamp");
            fields.values_mut().for_each(unnumber);
        }
        Value::Array(items) => items.iter_mut().for_each(unnumber),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Executes a run without a crash. Returns its results and the number of its commits.
pub(crate) fn uninterrupted(bundle: &str) -> (Known, u64) {
    let outside = Outside::default();
    let store = Failing::new(MemoryStore::new(), Crash::Never);
    assert!(outside.play(bundle, &store));
    let whole = outside.known().clone();
    (whole, store.commits())
}

/// Executes a run, kills it at `crash`, resumes it and compares the result with the uninterrupted run.
pub(crate) fn crash_and_resume(bundle: &str, crash: Crash, whole: &Known) -> Known {
    crash_and_resume_in(&MemoryStore::new(), bundle, crash, whole)
}

pub(crate) fn crash_and_resume_in(kept: &MemoryStore, bundle: &str, crash: Crash, whole: &Known) -> Known {
    crash_and_resume_by(|| kept.clone(), bundle, crash, whole)
}

/// Like `crash_and_resume`, with a store that each process opens separately.
pub(crate) fn crash_and_resume_by<S: Store>(open: impl Fn() -> S, bundle: &str, crash: Crash, whole: &Known) -> Known {
    // For even commit numbers, the runs also park whenever they wait.
    let parks = |outside: Outside| match crash {
        Crash::Before(at) | Crash::After(at) if at.is_multiple_of(2) => outside.parking(),
        Crash::Never | Crash::Before(_) | Crash::After(_) => outside,
    };
    let outside = parks(Outside::default());
    outside.play(bundle, &Failing::new(open(), crash));
    let before = outside.known().clone();
    let again = parks(Outside::of(before.clone()));
    let store = Failing::new(open(), Crash::Never);
    assert!(again.play(bundle, &store), "{crash:?}: ends in the end");
    let found = again.known().clone();
    compare(bundle, &before, &found, whole, &format!("{crash:?}"));
    found
}

/// Kills a run that completes before and after each commit, and checks that a resumed one has the results of the uninterrupted one.
pub(crate) fn crash_at_each_commit(bundle: &str, (whole, commits): (&Known, u64)) {
    let report = &whole.reports[0];
    assert_eq!(report["status"], "COMPLETED", "{report}");
    for at in 0..commits {
        for crash in [Crash::Before(at), Crash::After(at)] {
            crash_and_resume(bundle, crash, whole);
        }
    }
}

/// Checks that a run resumed after a crash has the outcome and events of the uninterrupted one, and that only effects in flight
/// at the crash were performed a second time.
pub(crate) fn compare(bundle: &str, before: &Known, found: &Known, whole: &Known, case: &str) {
    let events = unnumbered_events(found);
    // These bundles have races: a join that two of four paths win, a triggered sub-workflow that runs concurrently with its
    // thread. A repeated effect may finish later than it did before the crash. Answers may also arrive in another order, because
    // questions that are pending on resume are answered together.
    let has = |words: &[&str]| words.iter().any(|word| bundle.contains(word));
    let is_race = has(&[
        "SUCCESS_COUNT_THRESHOLD",
        r#""waitForCompletion":false"#,
        "speculativeAt",
    ]) || (bundle.contains("USER_INTERACTION") && has(&["ANY_COMPLETED", "ANY_FAILED", "ALL_FAILED"]));
    if !is_race {
        let outcome = found.reports.last().or(before.reports.last());
        assert_eq!(outcome, whole.reports.last(), "{case}: the outcome");
        let events_of_whole = unnumbered_events(whole);
        let other = events.iter().zip(&events_of_whole).find(|(one, other)| one != other);
        assert_eq!(other, None, "{case}: the events");
        assert_eq!(events.len(), events_of_whole.len(), "{case}: the events {events:#?}");
        let keys = |known: &Known| known.asked.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(found), keys(whole), "{case}: what was asked for");
    }
    for (key, times) in &found.asked {
        let before = before.asked.get(key).copied().unwrap_or_default();
        // All attempts of a node use one idempotency key.
        let attempts = whole.asked.get(key).copied().unwrap_or(1);
        assert!(
            *times <= attempts || (*times == attempts + 1 && before >= 1),
            "{case}: {key} was asked for {times} times in place of {attempts}"
        );
    }
}

#[test]
fn a_run_killed_at_any_commit_resumes_with_an_unchanged_result() {
    let (mut points, mut repeats) = (0_u32, 0_u32);
    for (number, bundle) in workflows::all().into_iter().enumerate() {
        let (whole, commits) = uninterrupted(&bundle);
        assert_eq!(whole.reports.len(), 1, "workflow {number}");
        for at in 0..commits {
            for crash in [Crash::Before(at), Crash::After(at)] {
                let found = crash_and_resume(&bundle, crash, &whole);
                points += 1;
                repeats += u32::from(found.asked.values().any(|times| *times > 1));
            }
        }
    }
    println!("{points} crash points, {repeats} with a repeat");
    assert!(points > 250, "only {points}");
    assert!(repeats > 50, "only {repeats}");
}

#[test]
fn a_run_with_a_panicked_thread_resumes_past_the_panic_after_a_crash() {
    let call = |id: &str, function: &str| json!({"id": id, "type": "CODE", "config": {"function": function}});
    let mut work = call("work", "work");
    work["onError"] = json!({"targetNodeId": "end"});
    let bundle = json!({"id": "main", "nodes": [
            {"id": "start", "type": "START"},
            {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["wait", "bad"]}},
            {"id": "wait", "type": "WAIT", "config": {"seconds": 60}}, call("bad", "breaks"),
            {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ANY_FAILED"}},
            {"id": "pause", "type": "WAIT", "config": {"seconds": 1}}, work, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "wait"}, {"from": "fork", "to": "bad"},
            {"from": "wait", "to": "join"}, {"from": "bad", "to": "join"}, {"from": "join", "to": "pause"},
            {"from": "pause", "to": "work"}, {"from": "work", "to": "end"}]})
    .to_string();
    let (whole, commits) = uninterrupted(&bundle);
    let mut events = whole.events.values();
    assert!(events.any(|event| event.to_string().contains("ACTOR_PANICKED")));
    assert!(commits >= 3, "{commits}");
    crash_at_each_commit(&bundle, (&whole, commits));
}
