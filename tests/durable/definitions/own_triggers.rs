//! A run has the triggers of the workflows of its start, whatever its process has registered.

use std::time::Duration;

use futures::executor::block_on;
use pirn::check::SourceFile;
use pirn::store::MemoryStore;
use pirn::{Engine, EngineBuilder, RunHandle};
use serde_json::{Value, json};

/// A workflow that waits for an event. With a value, a trigger assigns it then.
fn file(value: Option<u64>) -> SourceFile {
    let action =
        json!({"type": "SET_VARIABLE", "parameters": {"variableName": "n", "value": value, "scope": "global"}});
    let condition = json!({"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'go'"});
    let triggers = value.map(|_| json!({"id": "set", "condition": condition, "action": action}));
    let main = json!({"id": "main", "variables": [{"name": "n", "value": 0, "scope": "global"}],
        "triggers": triggers.into_iter().collect::<Vec<Value>>(),
        "nodes": [{"id": "start", "type": "START"}, {"id": "go", "type": "WAIT", "config": {"event": "go"}},
            {"id": "nap", "type": "WAIT", "config": {"seconds": 1}}, {"id": "end", "type": "END", "config": {"output": "n"}}],
        "edges": [{"from": "start", "to": "go"}, {"from": "go", "to": "nap"}, {"from": "nap", "to": "end"}]});
    SourceFile::new("main.json", main.to_string())
}

fn engine(builder: EngineBuilder, value: Option<u64>) -> Engine {
    let builder = builder.virtual_time(None).workflows(&*file(value).text);
    builder.build().expect("builds")
}

fn output(run: &RunHandle) -> Value {
    run.emit("go", []);
    run.outcome_blocking().output.clone()
}

#[test]
fn a_resumed_run_has_the_triggers_of_its_start() {
    for own in [Some(7), None] {
        for other in [None, Some(8)] {
            let store = MemoryStore::new();
            let first = engine(Engine::builder().store(store.clone()), own);
            let run = first.run("main").run_id("run").start().expect("starts");
            first.wait_idle();
            drop(run);
            first.shutdown_blocking(Duration::ZERO);
            let second = engine(Engine::builder().store(store), other);
            let run = block_on(second.resume("run").start()).expect("goes on");
            assert_eq!(output(&run), json!(own.unwrap_or(0)), "{own:?} beside {other:?}");
            let later = second.start("main", Value::Null).expect("starts");
            assert_eq!(output(&later), json!(other.unwrap_or(0)), "{other:?} after {own:?}");
        }
    }
}

#[test]
fn a_run_keeps_its_triggers_when_its_file_is_reloaded() {
    for builder in [Engine::builder, || Engine::builder().store(MemoryStore::new())] {
        for (own, other) in [(Some(7), Some(8)), (Some(7), None), (None, Some(8))] {
            let engine = engine(builder(), own);
            let run = engine.start("main", Value::Null).expect("starts");
            engine.wait_idle();
            engine.load_files(&[file(other)]).expect("is good");
            engine.wait_idle();
            assert_eq!(output(&run), json!(own.unwrap_or(0)), "{own:?} then {other:?}");
            let later = engine.start("main", Value::Null).expect("starts");
            assert_eq!(output(&later), json!(other.unwrap_or(0)), "{other:?} after {own:?}");
        }
    }
}
