//! Sessions: each run continues the conversation of the previous one, in memory and in a store, with a crash at any commit.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{BoxFuture, FutureExt};
use pirn::store::{MemoryStore, Store};
use pirn::{Engine, EngineBuilder, Message, Role, RunErrorCode, RunHandle, RunReport, SessionState, ThreadStatus};
use serde_json::{Value, json};

use crate::durable::faults::failing_store::{Crash, Failing};

const SESSION: &str = "chat-7";

/// Returns a workflow that counts the session's runs and makes the offline model repeat the input. `fail` makes it fail
/// afterwards, `gate` makes it wait before.
fn chat() -> String {
    let count = json!({"variableName": "turns", "expression": "turns + 1", "scope": "session"});
    let nodes = json!([
        {"id": "start", "type": "START"},
        {"id": "gate", "type": "CODE", "config": {"function": "gate", "input": "input"}},
        {"id": "count", "type": "VARIABLE", "config": count},
        {"id": "ask", "type": "LLM", "config": {"prompt": "{{input}}"}},
        {"id": "check", "type": "CODE", "config": {"function": "check", "input": "input"}},
        {"id": "end", "type": "END", "config": {"output": "turns"}}]);
    let ids = ["start", "gate", "count", "ask", "check", "end"];
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    let variables = json!([{"name": "turns", "value": 0, "scope": "session"}]);
    json!({"id": "chat", "variables": variables, "nodes": nodes, "edges": edges}).to_string()
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .workflows(chat())
        .async_function("gate", |_| async { Ok(Value::Null) })
        .function("check", |input| match input.as_str() {
            Some("fail") => Err("on purpose".to_owned()),
            _ => Ok(Value::Null),
        })
}

/// Returns the engines with the name of the storage of their sessions.
fn engines() -> Vec<(&'static str, Engine)> {
    let stored = engine().store(MemoryStore::new());
    [("in memory", engine()), ("in a store", stored)]
        .map(|(name, builder)| (name, builder.virtual_time(None).build().expect("builds")))
        .into()
}

fn say(engine: &Engine, text: &str) -> Arc<RunReport> {
    let run = engine.run("chat").input(text).session(SESSION).start();
    run.expect("starts").outcome_blocking()
}

fn contents(report: &RunReport) -> Vec<&str> {
    let messages = report.conversation.messages.iter();
    messages.map(|message| message.content.as_str()).collect()
}

fn state(engine: &Engine) -> SessionState {
    block_on(engine.session(SESSION)).expect("is read")
}

fn turns(state: &SessionState) -> Value {
    state
        .variables
        .get("turns")
        .map_or(Value::Null, |value| (**value).clone())
}

#[test]
fn a_run_starts_with_the_state_that_the_last_run_of_its_session_saved() {
    for (name, engine) in engines() {
        for (turn, text) in (1..).zip(["one", "two", "three"]) {
            let report = say(&engine, text);
            assert_eq!(
                (report.status, &report.output),
                (ThreadStatus::Completed, &json!(turn)),
                "{name}"
            );
            assert_eq!(report.session.as_deref(), Some(SESSION));
            assert_eq!(contents(&report).len(), 2 * turn, "{name}");
        }
        let last = say(&engine, "four");
        assert_eq!(
            contents(&last),
            ["one", "one", "two", "two", "three", "three", "four", "four"],
            "{name}"
        );
        assert_eq!(state(&engine).version, 4, "{name}");
        let other = engine.run("chat").input("one").session("other").start();
        assert_eq!(
            other.expect("starts").outcome_blocking().output,
            json!(1),
            "{name}: another session"
        );
        let alone = engine.start("chat", "alone").expect("starts").outcome_blocking();
        assert_eq!(
            (&alone.output, contents(&alone).len()),
            (&json!(1), 2),
            "{name}: no session"
        );
        assert_eq!(state(&engine).version, 4, "{name}");
    }
}

#[test]
fn a_given_conversation_applies_to_a_new_session_only() {
    for (name, engine) in engines() {
        for expected in [3, 5] {
            let run = engine.run("chat").input("one").session(SESSION);
            let run = run.conversation(vec![Message::new(Role::System, "be brief")]);
            let report = run.start().expect("starts").outcome_blocking();
            assert_eq!(contents(&report).len(), expected, "{name}");
        }
    }
}

#[test]
fn a_run_that_does_not_complete_saves_its_session_only_if_configured() {
    for (name, engine) in engines() {
        say(&engine, "one");
        let failed = say(&engine, "fail");
        assert_eq!(failed.status, ThreadStatus::Failed, "{name}");
        assert_eq!(
            (state(&engine).version, turns(&state(&engine))),
            (1, json!(1)),
            "{name}"
        );
        let run = engine.run("chat").input("fail").session(SESSION).keep_on_failure();
        let kept = run.start().expect("starts").outcome_blocking();
        assert_eq!(kept.status, ThreadStatus::Failed, "{name}");
        assert_eq!(
            (state(&engine).version, turns(&state(&engine))),
            (2, json!(2)),
            "{name}"
        );
        assert_eq!(
            contents(&say(&engine, "two")),
            ["one", "one", "fail", "fail", "two", "two"],
            "{name}"
        );
    }
}

#[test]
fn keep_on_failure_applies_in_any_order_of_builder_calls() {
    for (name, engine) in engines() {
        let run = engine.run("chat").keep_on_failure().input("fail").session(SESSION);
        let kept = run.start().expect("starts").outcome_blocking();
        assert_eq!(kept.status, ThreadStatus::Failed, "{name}");
        assert_eq!(state(&engine).version, 1, "{name}");
        let nowhere = engine.run("chat").input("fail").keep_on_failure().start();
        let refused = nowhere.expect_err("it has no session");
        assert_eq!(refused.code, RunErrorCode::InvalidInput, "{name}");
    }
}

/// A gate at which runs wait, with the inputs of the runs that have arrived there.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    came: Vec<String>,
    open: Vec<oneshot::Sender<()>>,
}

impl Gate {
    fn engine(&self, builder: EngineBuilder) -> Engine {
        let gate = self.clone();
        let wait = move |input: Value| -> BoxFuture<'static, Result<Value, String>> {
            let (open, opened) = oneshot::channel();
            let mut waiting = gate.0.lock().expect("no panic");
            waiting.came.push(input.as_str().unwrap_or_default().to_owned());
            waiting.open.push(open);
            opened.map(|_| Ok(Value::Null)).boxed()
        };
        builder
            .virtual_time(None)
            .async_function("gate", wait)
            .build()
            .expect("builds")
    }

    fn came(&self) -> Vec<String> {
        self.0.lock().expect("no panic").came.clone()
    }

    /// Releases all waiting runs and waits until their effects are complete.
    fn open(&self, engine: &Engine) {
        self.0.lock().expect("no panic").open.clear();
        // The first call makes the virtual clock check for work, the second call waits for that check.
        engine.wait_idle();
        engine.wait_idle();
    }
}

fn start(engine: &Engine, text: &str) -> RunHandle {
    let run = engine.run("chat").run_id(format!("run-{text}")).input(text);
    run.session(SESSION).start().expect("starts")
}

#[test]
fn runs_of_a_session_execute_one_at_a_time_in_start_order() {
    for stored in [false, true] {
        let gate = Gate::default();
        let builder = engine().max_waiting(3);
        let engine = gate.engine(if stored {
            builder.store(MemoryStore::new())
        } else {
            builder
        });
        let runs: Vec<RunHandle> = ["a", "b", "c", "d"].map(|text| start(&engine, text)).into();
        let refused = engine.run("chat").session(SESSION).start().expect_err("too many wait");
        assert_eq!(refused.code.as_str(), "SESSION_BUSY");
        let elsewhere = engine.run("chat").input("x").session("other").start().expect("starts");
        engine.wait_idle();
        assert_eq!(
            gate.came(),
            ["a", "x"],
            "those behind wait for the first; another session does not"
        );
        // A queued run can be cancelled, and the others keep their order.
        runs[1].cancel("not needed");
        assert_eq!(runs[1].outcome_blocking().status, ThreadStatus::Cancelled);
        for expected in [&["a", "x", "c"][..], &["a", "x", "c", "d"]] {
            gate.open(&engine);
            assert_eq!(gate.came(), expected, "stored: {stored}");
        }
        gate.open(&engine);
        assert_eq!(runs[3].outcome_blocking().output, json!(3));
        assert_eq!(contents(&runs[3].outcome_blocking()), ["a", "a", "c", "c", "d", "d"]);
        assert_eq!(elsewhere.outcome_blocking().status, ThreadStatus::Completed);
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}

#[test]
fn a_run_paused_while_queued_starts_with_the_state_of_its_session() {
    let gate = Gate::default();
    let engine = gate.engine(engine());
    let first = start(&engine, "a");
    let second = start(&engine, "b");
    engine.wait_idle();
    second.pause();
    engine.wait_idle();
    gate.open(&engine);
    first.outcome_blocking();
    assert_eq!(gate.came(), ["a"], "it is paused");
    second.resume();
    engine.wait_idle();
    gate.open(&engine);
    assert_eq!(contents(&second.outcome_blocking()), ["a", "a", "b", "b"]);
}

/// Starts those of three runs that are not in the store, resumes the others and waits for all of them.
fn play(store: &(impl Store + Clone)) -> Vec<Arc<RunReport>> {
    let engine = engine()
        .virtual_time(None)
        .store(store.clone())
        .build()
        .expect("builds");
    let Ok(resumed) = block_on(engine.recover()) else {
        return Vec::new();
    };
    let mut runs: Vec<RunHandle> = resumed
        .into_iter()
        .map(|(id, run)| run.unwrap_or_else(|error| panic!("{id}: {error}")))
        .collect();
    for text in ["one", "two", "three"] {
        let there = block_on(store.run(&format!("run-{text}"))).expect("is read");
        if there.is_none() {
            runs.push(start(&engine, text));
        }
    }
    engine.wait_idle();
    // If a store fails, later runs of the session stay queued.
    engine.shutdown_blocking(Duration::ZERO);
    runs.iter().filter_map(RunHandle::try_outcome).collect()
}

#[test]
fn after_a_crash_at_any_commit_a_session_has_the_old_or_the_new_state() {
    let whole = Failing::new(MemoryStore::new(), Crash::Never);
    assert_eq!(play(&whole).len(), 3);
    let mut points = 0;
    for at in 0..whole.commits() {
        for crash in [Crash::Before(at), Crash::After(at)] {
            let kept = MemoryStore::new();
            play(&Failing::new(kept.clone(), crash));
            let between = block_on(kept.session(SESSION)).expect("is read");
            let ended = ["one", "two", "three"].map(|text| {
                let run = block_on(kept.run(&format!("run-{text}"))).expect("is read");
                run.is_some_and(|run| run.status.is_final())
            });
            let version = between.map_or(0, |session| session.version);
            assert_eq!(
                version,
                ended.iter().filter(|ended| **ended).count() as u64,
                "{crash:?}: with the run's end"
            );
            play(&kept);
            let engine = engine().store(kept.clone()).build().expect("builds");
            let state = state(&engine);
            assert_eq!((state.version, turns(&state)), (3, json!(3)), "{crash:?}");
            let texts = state.conversation.complete().messages();
            let texts: Vec<&str> = texts.iter().map(|message| message.content.as_str()).collect();
            assert_eq!(texts, ["one", "one", "two", "two", "three", "three"], "{crash:?}");
            points += 1;
        }
    }
    assert!(points > 20, "only {points}");
}

#[test]
fn a_new_run_does_not_overtake_a_stored_run_without_an_owner() {
    let kept = MemoryStore::new();
    let gate = Gate::default();
    let first = gate.engine(engine().store(kept.clone()));
    let runs = [start(&first, "a"), start(&first, "b")];
    first.wait_idle();
    first.shutdown_blocking(Duration::ZERO);
    drop(runs);
    let second = engine().virtual_time(None).store(kept).build().expect("builds");
    let refused = say(&second, "new");
    let error = refused.error.as_ref().expect("failed");
    assert_eq!(error.code.as_str(), "SESSION_BUSY");
    assert!(error.message.contains("run-a"), "{error}");
    let waits = block_on(second.resume("run-b").start()).expect_err("a comes first");
    assert_eq!(waits.code(), "SESSION_BUSY", "{waits}");
    let recovered = block_on(second.recover()).expect("is read");
    let ids: Vec<&str> = recovered.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["run-a", "run-b"]);
    let last = say(&second, "c");
    assert_eq!(contents(&last), ["a", "a", "b", "b", "c", "c"], "{:?}", last.error);
}

#[test]
fn no_record_of_a_run_contains_earlier_messages_of_its_session() {
    let kept = MemoryStore::new();
    let engine = engine().virtual_time(None).store(kept.clone()).build().expect("builds");
    for text in ["quite unmistakable", "two"] {
        say(&engine, text);
    }
    let run = engine.run("chat").run_id("last").input("three").session(SESSION);
    let report = run.start().expect("starts").outcome_blocking();
    assert_eq!(contents(&report)[0], "quite unmistakable");
    let journal = block_on(kept.journal("last", 0, 1_000)).expect("is read");
    assert!(journal.iter().all(|record| !record.body.contains("unmistakable")));
    let view = block_on(engine.view("last", None)).expect("is read");
    assert_eq!(
        contents(&view.report),
        contents(&report),
        "and it is shown all the same"
    );
    assert_eq!(view.run.session.as_deref(), Some(SESSION));
}

#[test]
fn a_fork_starts_with_the_session_state_of_its_run_and_does_not_change_the_session() {
    let kept = MemoryStore::new();
    let engine = engine().virtual_time(None).store(kept).build().expect("builds");
    say(&engine, "one");
    let run = engine.run("chat").run_id("two").input("two").session(SESSION);
    run.start().expect("starts").outcome_blocking();
    say(&engine, "three");
    let steps = block_on(engine.view("two", None)).expect("is read").step;
    for step in 0..=steps {
        let forked = block_on(
            engine
                .fork("two", step)
                .input("other".into())
                .make(format!("fork-{step}")),
        );
        let run = block_on(forked.expect("is made").start()).expect("goes on");
        let report = run.outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
        assert_eq!(
            (&contents(&report)[..2], &report.output),
            (&["one", "one"][..], &json!(2)),
            "at {step}"
        );
        assert_eq!(report.session, None);
    }
    assert_eq!(state(&engine).version, 3);
}
