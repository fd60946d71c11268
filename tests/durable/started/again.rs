//! A run is released and resumed in one engine while its trigger matcher evaluates the condition of an event: each trigger acts once.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use pirn::script::{CodeLimits, ExpressionLimits, HostFunctions, ScriptPort, ScriptSettings};
use pirn::store::MemoryStore;
use pirn::{Engine, EventType, RunHandle, ThreadStatus};
use serde_json::{Value, json};

use super::{RUN, answer, asks, engine_of};
use crate::durable::triggers::asking;

/// A condition that needs a script thread.
const SCRIPT: &str = "['FIRST'].map(name => name.toLowerCase()).includes(event.nodeId)";

/// Occupies the only script thread of an engine while it is closed.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn scripts(&self) -> ScriptPort {
        let gate = Arc::clone(&self.0);
        let hold = HostFunctions::default().with("hold", move |_| {
            let is_open = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(gate.1.wait_while(is_open, |is_open| !*is_open));
            Ok(Value::Null)
        });
        let patience = Duration::from_mins(5);
        let settings = ScriptSettings {
            threads: 1,
            code: CodeLimits {
                time: patience,
                ..CodeLimits::default()
            },
            expressions: ExpressionLimits {
                time: patience,
                ..ExpressionLimits::default()
            },
            ..ScriptSettings::default()
        };
        ScriptPort::new(settings).with_functions(hold)
    }

    fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

/// Starts a run with this trigger, and releases and resumes it before the trigger has acted. Returns the run, which waits for an answer.
fn resumed_before_its_trigger_acts(action: &Value, arbiters: usize, gate: &Gate) -> (Engine, RunHandle) {
    let blocks = json!({"id": "blocks",
        "nodes": [{"id": "start", "type": "START"},
            {"id": "hold", "type": "CODE", "config": {"code": "return (typeof hold === 'function' && hold)()"}},
            {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "hold"}, {"from": "hold", "to": "end"}]});
    let mut main = asks("main", &[]);
    main["variables"] = json!([{"name": "seen", "value": 0}]);
    main["triggers"] = json!([{"id": "t", "type": "EVENT", "action": action,
        "condition": {"eventType": "NODE_COMPLETED", "expression": SCRIPT}}]);
    let engine = engine_of(&[blocks, main, asks("mine", &[])])
        .arbiters(arbiters)
        .scripts(gate.scripts())
        .store(MemoryStore::new())
        .build()
        .expect("builds");
    engine.run("blocks").run_id("blocks").start().expect("starts");
    until("the script thread is occupied", || engine.script_stats().running == 1);
    let run = engine.run("main").run_id(RUN).start().expect("starts");
    until("the condition waits for it", || engine.script_stats().waiting == 1);
    drop(asking(&engine, RUN));
    block_on(run.wait_durable()).expect("is durable");
    run.release();
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Failed);
    let run = block_on(engine.resume(RUN).start()).expect("resumes");
    gate.open();
    (engine, run)
}

#[test]
fn a_run_that_is_resumed_before_its_trigger_has_acted_starts_one_run() {
    let action = json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "mine"}});
    for arbiters in [1, 2, 2] {
        let gate = Gate::default();
        let (engine, run) = resumed_before_its_trigger_acts(&action, arbiters, &gate);
        assert!(answer(&asking(&engine, "run-1-f1"), "child"));
        assert!(answer(&asking(&engine, RUN), "parent"));
        let report = run.outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Completed, "{report:?}");
        run.wait_all_ended_blocking();
        let view = block_on(engine.view(RUN, None)).expect("is read");
        assert_eq!(
            view.report.firings.len(),
            1,
            "{arbiters} arbiters: {:?}",
            view.report.firings
        );
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}

#[test]
fn a_run_that_is_resumed_before_its_trigger_has_acted_assigns_once() {
    let action = json!({"type": "SET_VARIABLE", "parameters": {"variableName": "seen", "value": 1}});
    for arbiters in [1, 2, 2] {
        let gate = Gate::default();
        let (engine, _) = resumed_before_its_trigger_acts(&action, arbiters, &gate);
        let count = |event: EventType| {
            let view = block_on(engine.view(RUN, None)).expect("is read");
            view.events.iter().filter(|of| of.raised.event_type == event).count()
        };
        let run = asking(&engine, RUN);
        // A thread receives the assignment with its next step. The matchers fire for the first run, which is gone, and for the second.
        until("the trigger fires", || {
            block_on(engine.triggers(Some("main")))[0].fired == 2
        });
        assert!(answer(&run, "parent"));
        let report = run.outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Completed, "{report:?}");
        run.wait_all_ended_blocking();
        let counts = [EventType::VariableChanged, EventType::TriggerFailed].map(count);
        assert_eq!(counts, [1, 0], "{arbiters} arbiters");
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}
