//! Steps that evaluate an expression or a script: inline, on script threads and in worker processes, alternating with bare rquickjs.

use pirn::Engine;
use pirn::script::{ScriptLevel, ScriptSettings, WorkerProgram};
use rquickjs::{Context, Runtime};
use serde_json::{Value, json};

use pirn_benches::compare::Times;
use pirn_benches::sides::workflows::line;
use pirn_benches::timed;

use crate::{Measured, completed, engine};

const ROUNDS: usize = 31;
const STEPS: usize = 200;

/// Measures the microseconds of a step, by the kind of code and its script level; first those of a snippet on bare rquickjs, with
/// which the bounds are compared.
pub(crate) async fn measure() -> std::io::Result<Vec<Measured>> {
    let in_place = workflow(&json!({"type": "VARIABLE", "config": {"variableName": "n", "expression": "n + 1"}}));
    let expression =
        workflow(&json!({"type": "VARIABLE", "config": {"variableName": "n", "expression": "[n].map(n => n + 1)[0]"}}));
    let code = workflow(&json!({"type": "CODE", "config": {"code": "return n + 1"}}));
    let thread = || ScriptLevel::Thread;
    let process = ScriptLevel::Process(WorkerProgram::this_program()?);
    let sides = [
        ("an expression in place", thread(), &in_place, ""),
        ("an expression, `thread`", thread(), &expression, ""),
        ("an expression, `process`", process.clone(), &expression, ""),
        ("a CODE node, `thread`", thread(), &code, "1.25 x bare"),
        ("a CODE node, `process`", process, &code, "1.5 x bare"),
    ];
    let mut bare = Vec::new();
    let mut measured = Vec::new();
    for (side, level, workflow, most) in sides {
        let settings = ScriptSettings {
            level,
            ..ScriptSettings::default()
        };
        let engine = engine(Engine::builder().scripts(settings), workflow)?;
        measured.push((engine, side, Vec::new(), most));
    }
    // The first round of each is a warm-up.
    for round in 0..=ROUNDS {
        let (us, done) = timed(async { (0..STEPS).try_for_each(|_| run_bare()) }).await;
        done.map_err(std::io::Error::other)?;
        if round > 0 {
            bare.push(us / STEPS as f64);
        }
        for (engine, _, us_of_steps, _) in &mut measured {
            let us = completed(engine, "steps").await?;
            if round > 0 {
                us_of_steps.push(us / STEPS as f64);
            }
        }
    }
    let rows = measured
        .into_iter()
        .map(|(_, side, us, most)| (Times::of(side, us), most));
    let bare = Times::of("a snippet on bare rquickjs, with a new runtime and context", bare);
    Ok(std::iter::once((bare, "")).chain(rows).collect())
}

/// Runs the snippet of a CODE node as a program without Pirn does that isolates snippets from each other.
fn run_bare() -> rquickjs::Result<()> {
    let context = Context::full(&Runtime::new()?)?;
    context.with(|ctx| {
        ctx.eval::<f64, _>("(function () { const n = 0; return n + 1; })()")
            .map(drop)
    })
}

/// Returns a workflow that repeats a step.
fn workflow(step: &Value) -> Value {
    let mut workflow = line("steps", STEPS, step);
    workflow["variables"] = json!([{"name": "n", "value": 0}]);
    workflow
}
