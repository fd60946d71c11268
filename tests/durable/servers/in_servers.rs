//! Runs in a server's store: uninterrupted runs behave as in an SQLite file, and killed runs end as uninterrupted ones do.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{BoxFuture, ready, select};
use pirn::store::{MemoryStore, Record, Run, RunFilter, SqliteStore, Store};
use pirn::{
    CommandOutcome, Engine, EngineBuilder, Model, ModelCall, ModelReply, PinSection, RunCommand, RunError, ThreadStatus,
};
use pirn_test_disk::{Disk, VFS};
use pirn_tests::world::{Ran, line, node, plays};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::durable::crashes::crash_and_resume_by;
use crate::durable::faults::blocking_store::AtOnce;
use crate::durable::faults::external_effects::Outside;
use crate::durable::faults::failing_store::{Crash, Failing};
use crate::durable::workflows;
use crate::lifecycle::rebuilding::examples;
use crate::lifecycle::rebuilding::generated::generated;

const GENERATED: usize = 200;

fn runs(store: &dyn Store) -> Vec<Run> {
    block_on(store.runs(RunFilter::default(), None, 1_000)).expect("are read")
}

/// Removes all runs from a store, because the next case reuses their ids.
fn empty(store: &dyn Store) {
    let ids: Vec<String> = runs(store).into_iter().map(|run| run.id).collect();
    let count = ids.len();
    let removed = block_on(store.remove(ids, false)).expect("are removed");
    assert_eq!(removed.runs, count as u64, "every run has ended");
}

/// Result of a run, and all runs with their journals that are in its store afterwards.
#[derive(Debug, PartialEq)]
struct Played {
    ran: Ran,
    kept: Vec<(Run, Vec<Record>)>,
}

type Stored = Box<dyn FnOnce(EngineBuilder) -> EngineBuilder>;

fn played<S: Store>(store: &Failing<S>, play: &impl Fn(Stored) -> Ran) -> Played {
    let of_run = AtOnce(store.clone());
    let ran = play(Box::new(move |builder| builder.store(of_run)));
    let journal = |run: Run| {
        let journal = block_on(store.journal(&run.id, 0, 10_000)).expect("is read");
        (run, journal)
    };
    let kept = runs(store).into_iter().map(journal).collect();
    Played { ran, kept }
}

/// Executes a run in an embedded and in a shared store, and empties the shared one afterwards.
fn in_both<S: Store>(shared: &Failing<S>, play: impl Fn(Stored) -> Ran) -> [Played; 2] {
    let disk = Disk::new();
    let embedded = SqliteStore::open_on(VFS, disk.path("runs.db")).expect("opens");
    let both = [
        played(&Failing::new(embedded, Crash::Never), &play),
        played(shared, &play),
    ];
    empty(shared);
    both
}

/// Asserts that both runs have equal events, reports and journals.
fn compare(name: &str, [embedded, shared]: &[Played; 2]) {
    let mut events = embedded.ran.events.iter().zip(&shared.ran.events);
    assert_eq!(events.find(|(one, other)| one != other), None, "{name}: the events");
    assert!(!shared.kept.is_empty(), "{name}: nothing is kept");
    assert_eq!(shared, embedded, "{name}");
}

pub(crate) fn generated_workflows_behave_equally_in_a_server_and_in_a_file(store: impl Store) {
    let store = Failing::new(store, Crash::Never);
    let mut runner = TestRunner::deterministic();
    let generated = generated();
    for number in 0..GENERATED {
        let workflow = generated.new_tree(&mut runner).expect("is generated").current();
        let bundle = workflow.bundle();
        let ran = in_both(&store, |stored| {
            let builder = stored(Engine::builder().virtual_time(Some(number as u64)));
            plays(builder.workflows(bundle.to_string()), |engine| engine.run("forked"))
        });
        compare(&format!("{number}: {bundle}"), &ran);
    }
}

pub(crate) fn every_example_behaves_equally_in_a_server_and_in_a_file(store: impl Store) {
    let store = Failing::new(store, Crash::Never);
    for number in 0..examples::all().len() {
        let name = examples::all()[number].name;
        let ran = in_both(&store, |stored| {
            let example = examples::all().swap_remove(number);
            plays(stored(example.builder), example.run)
        });
        compare(name, &ran);
    }
    let [embedded, shared] = in_both(&store, |stored| {
        let desk = examples::support_desk();
        plays(stored(desk.builder), desk.run)
    });
    // The example's tools are child processes, and the system decides which of them answers first. So the order is not compared.
    assert_eq!(shared.ran.report.status, embedded.ran.report.status);
    assert_eq!(shared.ran.report.output, embedded.ran.report.output);
    assert_eq!(shared.ran.events.len(), embedded.ran.events.len());
}

/// Checks that a parked run keeps its claim. `open` connects to the server with the given duration of claims.
#[allow(clippy::disallowed_methods, reason = "a claim runs out by the real clock")]
pub(crate) fn a_parked_run_renews_its_claim_and_resumes_in_its_process<S: Store>(open: impl Fn(Duration) -> S) {
    let claim = Duration::from_secs(1);
    let connect = || Failing::new(open(claim), Crash::Never);
    let (store, other) = (connect(), connect());
    let workflow = r#"{"id": "main", "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}], "nodes": [
        {"id": "start", "type": "START"}, {"id": "end", "type": "END"},
        {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}}]}"#;
    let engine = Engine::builder().store(store.clone()).workflows(workflow);
    let engine = engine.park_after(Duration::from_millis(1)).build().expect("builds");
    let run = engine.run("main").run_id("run-1").start().expect("starts");
    let asked = loop {
        match block_on(run.interactions()).pop() {
            Some(asked) => break asked.id,
            None => std::thread::yield_now(),
        }
    };
    block_on(run.wait_durable()).expect("is kept");
    // Sleeps for longer than a claim is valid: the heartbeat has to renew the claim of a parked run.
    std::thread::sleep(claim * 3);
    let claims = other.claims().expect("several share it");
    let held = block_on(claims.claim("run-1")).expect_err("it is carried");
    assert_eq!(held.code(), "RUN_HELD");
    let before = store.reads("run-1");
    block_on(run.answer(&asked, "yes")).expect("is taken");
    assert_eq!(store.reads("run-1"), before + 1, "it was read again");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
}

/// Model that replies with all texts of the request.
struct Repeats;

impl Model for Repeats {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let texts: Vec<&str> = call
            .request
            .messages
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        let content = texts.join("\n");
        ready(Ok(ModelReply {
            content,
            ..ModelReply::default()
        }))
        .boxed()
    }
}

/// Checks that a run is paused, continued and given pinned context through an engine that does not execute it.
pub(crate) fn a_run_is_paused_and_pinned_through_another_process<S: Store>(open: impl Fn() -> S) {
    let workflow = line(
        "main",
        &[
            node("go", "WAIT", json!({"event": "go"})),
            node("reply", "LLM", json!({"profileId": "repeats", "prompt": "Hello"})),
        ],
    );
    let engine = || {
        let engine = Engine::builder().store(open()).workflows(workflow.to_string());
        engine.model("repeats", Arc::new(Repeats)).build().expect("builds")
    };
    let (owner, other) = (engine(), engine());
    // Receives the commands of other processes.
    let (stop, stopped) = oneshot::channel::<()>();
    let works = std::thread::spawn({
        let owner = owner.clone();
        move || drop(block_on(select(pin!(owner.work(10)), stopped)))
    });
    let run = owner.run("main").run_id("run-1").start().expect("starts");
    block_on(run.wait_durable()).expect("is stored");
    let send = |command: RunCommand| block_on(other.send_command("run-1", &command)).map_err(|error| error.code());
    assert_eq!(send(RunCommand::Pause), Ok(CommandOutcome::UnderWay));
    let pin = RunCommand::Pin {
        section: PinSection::Role,
        value: json!("You are a weaver."),
    };
    assert_eq!(send(pin), Ok(CommandOutcome::UnderWay));
    let go = RunCommand::Emit {
        name: "go".to_owned(),
        data: serde_json::Map::new(),
    };
    assert_eq!(send(go), Ok(CommandOutcome::UnderWay));
    while block_on(run.status()).expect("has not ended").status != ThreadStatus::Paused {
        std::thread::yield_now();
    }
    assert_eq!(send(RunCommand::Unpause), Ok(CommandOutcome::UnderWay));
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed);
    let last = report.conversation.messages.last().expect("a reply");
    assert!(last.content.as_str().contains("You are a weaver."), "{last:?}");
    run.wait_all_ended_blocking();
    assert_eq!(send(RunCommand::Pause), Err("RUN_HAS_ENDED"));

    drop(stop);
    works.join().expect("ends");
    block_on(other.run("main").run_id("run-2").enqueue()).expect("is stored");
    let refused = block_on(other.send_command("run-2", &RunCommand::Pause)).map_err(|error| error.code());
    assert_eq!(refused, Err("NOT_CARRIED"));
}

/// Returns the distance between the tested crash points: 1 if the environment variable `PIRN_ENGINE_CRASHES` is `all`, otherwise
/// 9.
fn stride() -> usize {
    let all = std::env::var("PIRN_ENGINE_CRASHES").is_ok_and(|word| word == "all");
    if all { 1 } else { 9 }
}

pub(crate) fn a_run_killed_at_a_commit_resumes_with_an_unchanged_result<S: Store>(open: impl Fn() -> S) {
    let store = open();
    let mut cases = Vec::new();
    for bundle in workflows::all() {
        let outside = Outside::default();
        let kept = Failing::new(MemoryStore::new(), Crash::Never);
        assert!(outside.play(&bundle, &kept));
        let whole = outside.known().clone();
        for at in 0..kept.commits() {
            let crashes = [Crash::Before(at), Crash::After(at)];
            cases.extend(crashes.map(|crash| (bundle.clone(), crash, whole.clone())));
        }
    }
    let (mut points, mut repeats) = (0_u32, 0_u32);
    for (bundle, crash, whole) in cases.iter().step_by(stride()) {
        let found = crash_and_resume_by(|| AtOnce(open()), bundle, *crash, whole);
        points += 1;
        repeats += u32::from(found.asked.values().any(|times| *times > 1));
        empty(&store);
    }
    println!("{points} crash points of {}, {repeats} with a repeat", cases.len());
    assert!(points > 30, "only {points}");
    assert!(repeats > 5, "only {repeats}");
}
