//! Scripts that are cancelled at the moment of their completion.

use std::sync::Arc;
use std::time::Duration;

use pirn::script::{ScriptLevel, ScriptPort, ScriptSettings, WorkerProgram};
use pirn_actors::ports::Scripts;
use pirn_definition::script::ScopeValues;
use serde_json::json;

use crate::scripts::{job, now, value};

pub(crate) const TESTS: &[(&str, fn())] = &[(
    "a script cancelled at its completion does not delay the next one",
    cancelled,
)];

fn cancelled() {
    let program = WorkerProgram::this_program().expect("a program knows its path");
    let port = ScriptPort::new(ScriptSettings {
        level: ScriptLevel::Process(program),
        threads: 1,
        ..ScriptSettings::default()
    });
    let run_id = Arc::<str>::from("crossing");
    // The answer is long, so that reading it takes a while.
    let long = || job(&run_id, "Array(4000).fill('an answer')", ScopeValues::default());
    let short = || job(&run_id, "[1].map(x => x + 1)[0]", ScopeValues::default());
    let mut whole = Duration::ZERO;
    for _ in 0..3 {
        let begin = now();
        port.evaluate_here(long());
        whole = begin.elapsed();
    }
    for round in 0..150 {
        let handle = port.evaluate(long(), Box::new(|_| {}));
        // The cancellation is between shortly before and shortly after the completion.
        std::thread::park_timeout(whole * (60 + round % 50) / 100);
        drop(handle);
        assert_eq!(
            value(port.evaluate_here(short())).as_deref(),
            Ok(&json!(2)),
            "round {round}"
        );
    }
}
