//! Engines with stuck scripts: nodes without scripts continue, and ending a run does not block.

use std::time::Duration;

use pirn::script::{CodeLimits, ExpressionLimits, ScriptLevel, ScriptSettings, WorkerProgram};
use pirn::{Engine, ThreadStatus};
use serde_json::{Value, json};

use crate::known_scripts::DEAF;
use crate::scripts::now;

/// Long before a script's limit, which is an hour here.
const SOON: Duration = Duration::from_secs(20);

pub(crate) const TESTS: &[(&str, fn())] = &[
    (
        "an engine with only stuck script threads executes nodes without scripts",
        all_stuck,
    ),
    ("a time limit ends a run with a stuck script", time_limit),
    ("a cancel ends a run with a stuck script", cancel),
    ("a shutdown does not wait for a stuck script", shutdown),
    ("a SCRIPT node runs in worker processes", script_in_processes),
    ("a stuck script of a trigger delays no other run for long", trigger),
];

fn workflow(id: &str, expression: Option<&str>, config: &Value) -> String {
    let node = match expression {
        Some(expression) => {
            json!({"id": "n", "type": "VARIABLE", "config": {"variableName": "v", "expression": expression}})
        }
        None => json!({"id": "n", "type": "VARIABLE", "config": {"variableName": "v", "expression": "1 + 1"}}),
    };
    json!({
        "id": id,
        "nodes": [{"id": "s", "type": "START"}, node, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "n"}, {"from": "n", "to": "e"}],
        "config": config,
    })
    .to_string()
}

fn engine(time: Duration, max_stuck: usize, config: &Value) -> Engine {
    let settings = ScriptSettings {
        threads: 2,
        max_stuck,
        expressions: ExpressionLimits {
            time,
            ..ExpressionLimits::default()
        },
        code: CodeLimits {
            time,
            ..CodeLimits::default()
        },
        ..ScriptSettings::default()
    };
    let built = Engine::builder()
        .workflows(workflow("deaf", Some(DEAF), config))
        .workflows(workflow("plain", None, &json!({})))
        .scripts(settings)
        .arbiters(1)
        .build();
    built.unwrap_or_else(|error| panic!("{error}"))
}

fn script_in_processes() {
    let program = WorkerProgram::this_program().expect("a program knows its path");
    let settings = ScriptSettings {
        level: ScriptLevel::Process(program),
        ..ScriptSettings::default()
    };
    let code = "const two = await parallel([1, 2].map(n => () => workflow('plain', n)))\nlog(two)
        return [two.length, typeof Date.now(), Math.random() < 1]";
    let plan = json!({
        "id": "plan",
        "nodes": [
            {"id": "s", "type": "START"}, {"id": "p", "type": "SCRIPT", "config": {"code": code}}, {"id": "e", "type": "END"},
        ],
        "edges": [{"from": "s", "to": "p"}, {"from": "p", "to": "e"}],
    });
    let built = Engine::builder()
        .workflows(workflow("plain", None, &json!({})))
        .workflows(plan.to_string())
        .scripts(settings)
        .build();
    let engine = built.unwrap_or_else(|error| panic!("{error}"));
    let report = engine.run("plan").start().expect("it starts").outcome_blocking();
    assert_eq!(report.output, json!([2, "number", true]), "{:?}", report.error);
}

fn hour() -> Duration {
    Duration::from_hours(1)
}

fn all_stuck() {
    let engine = engine(Duration::from_millis(50), 0, &json!({}));
    let stuck: Vec<_> = (0..3).map(|_| engine.run("deaf").start().expect("it starts")).collect();
    for run in stuck {
        let report = run.outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Failed, "{:?}", report.error);
    }
    let report = engine.run("plain").start().expect("it starts").outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed);
}

fn time_limit() {
    let engine = engine(hour(), 2, &json!({"timeoutMs": 300}));
    let begin = now();
    let report = engine.run("deaf").start().expect("it starts").outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Timeout);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

fn cancel() {
    let engine = engine(hour(), 2, &json!({}));
    let begin = now();
    let run = engine.run("deaf").start().expect("it starts");
    while engine.script_stats().running == 0 {
        std::thread::yield_now();
    }
    run.cancel("enough");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

fn shutdown() {
    let engine = engine(hour(), 2, &json!({}));
    let begin = now();
    let run = engine.run("deaf").start().expect("it starts");
    while engine.script_stats().running == 0 {
        std::thread::yield_now();
    }
    let report = engine.shutdown_blocking(Duration::from_millis(100));
    assert_eq!(report.runs_left, 0);
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
    drop(engine);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

fn trigger() {
    let trigger = json!({"triggers": [{
        "id": "t", "name": "t", "type": "EVENT",
        "condition": {"eventType": "NODE_STARTED", "expression": DEAF},
        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "never"}},
    }]});
    let settings = ScriptSettings {
        expressions: ExpressionLimits {
            time: Duration::from_millis(50),
            ..ExpressionLimits::default()
        },
        ..ScriptSettings::default()
    };
    let engine = Engine::builder()
        .workflows(workflow("plain", None, &json!({})))
        .workflows(trigger.to_string())
        .scripts(settings)
        .arbiters(1)
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let begin = now();
    for _ in 0..3 {
        let report = engine.run("plain").start().expect("it starts").outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Completed);
    }
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}
