//! The scenes: each is a race and the invariants that hold for every winner.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pirn::scene::{Stage, start};
use pirn::{Compression, Engine, EngineBuilder, RunReport, ThreadStatus};
use pirn_actors::engine::{EngineShared, RunRequest, StartedRun};
use pirn_actors::host::Schedule;
use pirn_definition::error::RunErrorCode;
use serde_json::{Value, json};

use super::heard::Heard;
use super::merges;
use crate::world::{forked, line, node, say, wait, workflow};

/// Function that executes a scene with a seed in an order. Fails with the violated invariant.
pub type Play = fn(&Stage, u64, Box<dyn Schedule>) -> Result<(), String>;

/// A scene.
pub struct SceneKind {
    /// Name of the scene in a failure.
    pub name: &'static str,
    /// Returns the engines for the scene; the seed selects one.
    pub engines: fn() -> Vec<EngineBuilder>,
    /// Executes the scene.
    pub play: Play,
}

pub(super) const SCENES: &[SceneKind] = &[
    SceneKind {
        name: "forks",
        engines: forks,
        play: fork,
    },
    SceneKind {
        name: "cancel against completion",
        engines: cancelled,
        play: cancel,
    },
    SceneKind {
        name: "shutdown against admission",
        engines: talks,
        play: shutdown,
    },
    SceneKind {
        name: "trigger against append",
        engines: triggered,
        play: append,
    },
    SceneKind {
        name: "compression against append",
        engines: compressed,
        play: append,
    },
    SceneKind {
        name: "stop against merge",
        engines: merges::shared,
        play: merges::stop,
    },
    SceneKind {
        name: "subscriber against publish",
        engines: talks,
        play: subscribe,
    },
];

fn request() -> RunRequest {
    RunRequest {
        workflow_id: "main".to_owned(),
        ..RunRequest::default()
    }
}

fn named(mut workflow: Value) -> Value {
    workflow["id"] = json!("main");
    workflow
}

pub(super) fn ask(id: &str) -> Value {
    node(id, "LLM", json!({ "prompt": format!("question {id} of some length") }))
}

/// A CODE node that calls a host function with a duration different from the others, like a script. A real script needs
/// a JavaScript realm, which costs far more than the rest of the schedule.
fn work(id: &str, function: &str) -> Value {
    node(id, "CODE", json!({ "function": function }))
}

pub(super) fn engine(bundle: &Value) -> EngineBuilder {
    Engine::builder()
        .async_function("one", |_| Box::pin(async { Ok(json!(1)) }))
        .async_function("no", |_| Box::pin(async { Err("no".to_owned()) }))
        .workflows(bundle.to_string())
}

/// Every strategy over branches that complete, fail, reply, wait and write, and a losing branch that forks again.
fn forks() -> Vec<EngineBuilder> {
    let strategies = [
        json!({ "joinStrategy": "ALL_COMPLETED" }),
        json!({ "joinStrategy": "ANY_COMPLETED" }),
        json!({ "joinStrategy": "ALL_FAILED", "timeout": 2 }),
        json!({ "joinStrategy": "ANY_FAILED", "onDecided": "detach" }),
        json!({ "joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2 }),
    ];
    let branches = [
        vec![work("a", "one"), wait("a2", 5)],
        vec![ask("b"), work("b2", "no")],
        vec![wait("c", 5), ask("c2")],
        vec![node("d", "VARIABLE", json!({ "variableName": "x", "expression": "1" }))],
    ];
    let first = [
        vec![work("a", "one")],
        vec![node("b", "SUBGRAPH", json!({ "subgraphId": "tree" }))],
    ];
    let any = named(forked(&first, false, &json!({ "joinStrategy": "ANY_COMPLETED" })));
    strategies
        .iter()
        .map(|join| engine(&named(forked(&branches, false, join))))
        .chain([engine(&json!({ "workflows": [any, tree("tree")] }))])
        .collect()
}

/// Branches that wait without end, one of them behind a question: only a cancel ends them.
fn tree(id: &str) -> Value {
    let never = |id: &str| node(id, "WAIT", json!({ "event": "never" }));
    let branches = [vec![never("p")], vec![ask("q"), never("q2")]];
    let mut tree = forked(&branches, false, &json!({ "joinStrategy": "ALL_COMPLETED" }));
    tree["id"] = json!(id);
    tree
}

/// The engines of [`talks`], and a run that only a cancel ends.
fn cancelled() -> Vec<EngineBuilder> {
    let calls = line("main", &[node("call", "SUBGRAPH", json!({ "subgraphId": "tree" }))]);
    let mut engines = talks();
    engines.push(engine(&json!({ "workflows": [calls, tree("tree")] })));
    engines
}

/// A run that adds messages, computes and forks.
fn talks() -> Vec<EngineBuilder> {
    let branches = [
        vec![work("a", "one")],
        vec![ask("b")],
        vec![wait("c", 3), say("c2", "hi")],
    ];
    vec![
        engine(&named(line("main", &[ask("x"), work("y", "one"), ask("z")]))),
        engine(&named(forked(
            &branches,
            false,
            &json!({ "joinStrategy": "ALL_COMPLETED" }),
        ))),
    ]
}

fn triggered() -> Vec<EngineBuilder> {
    let sub = workflow(
        "sub",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            say("note", "noted"),
            node(
                "c",
                "CONTINUE_FROM_TRIGGER",
                json!({ "conversationHistoryCallback": { "lastN": 1 } }),
            ),
        ],
        &["s>note>c"],
    );
    let main = |waits: bool| {
        let mut main = line("main", &[ask("x"), ask("y"), work("k", "one"), ask("z")]);
        main["triggers"] = json!([{ "id": "t", "type": "EVENT",
            "condition": { "eventType": "NODE_COMPLETED", "expression": "event.nodeType === 'LLM'" },
            "action": { "type": "EXECUTE_TRIGGERED_SUBGRAPH",
                "parameters": { "triggeredWorkflowId": "sub", "waitForCompletion": waits } } }]);
        engine(&json!({ "workflows": [main, sub] }))
    };
    vec![main(true), main(false)]
}

fn compressed() -> Vec<EngineBuilder> {
    let mut main = line("main", &[ask("x"), ask("y"), ask("z"), work("k", "one"), ask("w")]);
    main["config"] = json!({ "tokenLimit": 60 });
    vec![
        engine(&main).compression(&Compression::keep_system_recent(2)),
        engine(&main).compression(&Compression::summarize()),
    ]
}

pub(super) fn played<T>(
    stage: &Stage,
    seed: u64,
    order: Box<dyn Schedule>,
    set: impl FnOnce(&pirn::scene::Scene) -> Result<T, pirn::RunError>,
) -> Result<T, String> {
    stage.play(seed, order, set).map_err(|error| error.to_string())
}

/// Starts a run with a subscriber that receives its first event.
pub(super) fn start_with_subscriber(engine: &Arc<EngineShared>) -> Result<(StartedRun, Heard), pirn::RunError> {
    let heard = Heard::default();
    let subscriptions = vec![heard.subscription()];
    let (run, admitted) = engine.admit_run(engine.next_run_id(), request(), subscriptions)?;
    admitted.go()?;
    Ok((run, heard))
}

/// Returns the outcome after a check that nothing of the run is left.
pub(super) fn ended(engine: &Arc<EngineShared>, run: &StartedRun) -> Result<Arc<RunReport>, String> {
    let outcome = run.outcome.peek().ok_or("the run has no outcome")?;
    let report = outcome.map_err(|_| "the run never ended: nothing is left that could happen")?;
    match run.settled.peek() {
        Some(Ok(())) => {}
        Some(Err(_)) => return Err("the run's settling was lost".to_owned()),
        None => return Err("the run has not settled".to_owned()),
    }
    if engine.live_runs() > 0 {
        return Err(format!("{} runs are left", engine.live_runs()));
    }
    if report.status.is_final() {
        Ok(report)
    } else {
        Err(format!("it ended {}", report.status.as_str()))
    }
}

/// Executes a scene with one subscribed run until it ends, and checks the events and threads of the run.
fn ended_whole(stage: &Stage, seed: u64, order: Box<dyn Schedule>) -> Result<Arc<RunReport>, String> {
    let (engine, run, heard) = played(stage, seed, order, |scene| {
        let (run, heard) = start_with_subscriber(scene.engine())?;
        Ok((Arc::clone(scene.engine()), run, heard))
    })?;
    let report = ended(&engine, &run)?;
    heard.check_account()?;
    heard.check_threads()?;
    Ok(report)
}

fn fork(stage: &Stage, seed: u64, order: Box<dyn Schedule>) -> Result<(), String> {
    let report = ended_whole(stage, seed, order)?;
    let output = &report.output;
    if report.status != ThreadStatus::Completed {
        let code = report.error.as_ref().map(|error| error.code);
        let is_known = matches!(
            code,
            Some(RunErrorCode::JoinConditionNotMet | RunErrorCode::JoinTimeout)
        );
        return if is_known {
            Ok(())
        } else {
            Err(format!("it failed with {code:?}"))
        };
    }
    let count = |list: &str| output[list].as_array().map_or(0, Vec::len);
    let (completed, failed) = (count("completed"), count("failed"));
    let holds = match output["strategy"].as_str() {
        Some("ALL_COMPLETED") => completed == 4,
        Some("ANY_COMPLETED") => completed >= 1,
        Some("ALL_FAILED") => failed == 4,
        Some("ANY_FAILED") => failed >= 1,
        Some("SUCCESS_COUNT_THRESHOLD") => completed >= 2,
        _ => false,
    };
    if holds {
        Ok(())
    } else {
        Err(format!("the strategy does not hold: {output}"))
    }
}

fn cancel(stage: &Stage, seed: u64, order: Box<dyn Schedule>) -> Result<(), String> {
    let (engine, run, heard) = played(stage, seed, order, |scene| {
        let (run, heard) = start_with_subscriber(scene.engine())?;
        let cancelled = run.clone();
        scene.soon(move |_| cancelled.cancel("enough"));
        Ok((Arc::clone(scene.engine()), run, heard))
    })?;
    let report = ended(&engine, &run)?;
    heard.check_account()?;
    heard.check_threads()?;
    match report.status {
        ThreadStatus::Completed | ThreadStatus::Cancelled => Ok(()),
        other => Err(format!("a cancelled run ended {}", other.as_str())),
    }
}

fn shutdown(stage: &Stage, seed: u64, order: Box<dyn Schedule>) -> Result<(), String> {
    let later: Rc<RefCell<Option<Result<StartedRun, pirn::RunError>>>> = Rc::default();
    let started = Rc::clone(&later);
    let (engine, first) = played(stage, seed, order, |scene| {
        let first = scene.start(request())?;
        scene.soon(|engine| {
            engine.close();
            engine.cancel_all();
        });
        scene.soon(move |engine| {
            started.replace(Some(start(engine, request())));
        });
        Ok((Arc::clone(scene.engine()), first))
    })?;
    ended(&engine, &first)?;
    match later.take() {
        Some(Ok(second)) => ended(&engine, &second).map(|_| ()),
        Some(Err(error)) if error.code == RunErrorCode::Cancelled => Ok(()),
        Some(Err(error)) => Err(format!("it was refused with {error}")),
        None => Err("the second run was never asked for".to_owned()),
    }
}

/// Checks that the thread's messages are complete and in order, whatever a trigger inserts or hides.
fn append(stage: &Stage, seed: u64, order: Box<dyn Schedule>) -> Result<(), String> {
    let report = ended_whole(stage, seed, order)?;
    if report.status != ThreadStatus::Completed {
        return Err(format!("it ended {}: {:?}", report.status.as_str(), report.error));
    }
    let entered = report.nodes.iter().map(|node| &*node.node_id);
    let questions: Vec<String> = entered
        .filter(|id| ["x", "y", "z", "w"].contains(id))
        .map(|id| format!("question {id} of some length"))
        .collect();
    let mut left = questions.iter();
    let mut next = left.next();
    for message in &report.conversation.messages {
        if next.is_some_and(|question| *question == message.content) {
            next = left.next();
        }
    }
    match next {
        Some(question) => Err(format!("{question:?} is not in the history, or not in its place")),
        None => Ok(()),
    }
}

fn subscribe(stage: &Stage, seed: u64, order: Box<dyn Schedule>) -> Result<(), String> {
    let late: Rc<RefCell<Vec<Heard>>> = Rc::default();
    let listening = Rc::clone(&late);
    let (engine, run, heard) = played(stage, seed, order, |scene| {
        let (run, heard) = start_with_subscriber(scene.engine())?;
        let id = run.run_id.to_string();
        for room in [None, Some(3)] {
            let (listening, id) = (Rc::clone(&listening), id.clone());
            scene.soon(move |engine| listening.borrow_mut().push(Heard::listen(engine, &id, room)));
        }
        Ok((Arc::clone(scene.engine()), run, heard))
    })?;
    ended(&engine, &run)?;
    heard.check_account()?;
    heard.check_threads()?;
    let whole: Vec<u64> = heard.events().iter().map(|event| event.sequence).collect();
    if whole.first() != Some(&1) {
        return Err(format!("the first that was heard is {:?}", whole.first()));
    }
    for ear in late.borrow().iter() {
        ear.check_account()?;
    }
    Ok(())
}
