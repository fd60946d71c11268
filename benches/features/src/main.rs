//! Benchmarks of optional features: durable runs, shared stores, scripts.
//!
//! - `durable`: durable runs compared with raw SQLite and a bare `fdatasync`; `durable PART ...`: only these of `steps`, `alone`,
//!   `syncs`, `rebuilt` and `ready`
//! - `parked COUNT`: size of a parked durable run in bytes, and the time until it is rebuilt
//! - `shared`: runs in PostgreSQL on 1, 2 and 4 workers, compared with absurd's functions and embedded SQLite; starts a
//!   server, and reports if none is installed; `shared restate`: runs in Restate, compared with a bare service
//! - `scripts`: microseconds of a step that evaluates an expression or a script, inline and on each script level
//! - `agents`: microseconds of an agent of a script, compared with an LLM node and with an item of a MAP
//!
//! All print rows of a Markdown table: name, measured value, limit. Durable data is written to the system's folder for temporary
//! files (`TMPDIR`), whose disk is measured.

mod agents;
mod durable;
mod parked;
#[path = "../../../engines/restate/tests/server/mod.rs"]
mod restate_server;
mod scripts;
#[path = "../../../engines/postgres/tests/server/mod.rs"]
mod server;
mod shared;

use std::io::Write;

use pirn::{Engine, EngineBuilder, ThreadStatus};
use pirn_benches::cli::{number, usage};
use pirn_benches::compare::Times;
use pirn_benches::timed;
use serde_json::Value;

#[allow(clippy::disallowed_methods)] // a benchmark has no host port
fn main() -> std::io::Result<()> {
    // The program is also the worker process of its scripts.
    if pirn::script::serve_worker().is_some() {
        return Ok(());
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut out = std::io::stdout();
    match words[..] {
        ["durable", ref parts @ ..] => {
            for part in if parts.is_empty() { &durable::PARTS } else { parts } {
                let folder = tempfile::tempdir()?;
                runtime.block_on(durable::measure(part, folder.path(), |(what, measured, most)| {
                    writeln!(out, "| {what} | {measured} | {most} |")
                }))?;
            }
            Ok(())
        }
        ["parked", count] => {
            let folder = tempfile::tempdir()?;
            let count = number(count)?;
            let (bytes, back) = runtime.block_on(parked::a_parked_run(count, folder.path()))?;
            writeln!(out, "| a parked run (of {count}) | {bytes:.0} bytes | 4,096 bytes |")?;
            let [min, median, max] = [back.min(), back.median(), back.max()].map(|us| us / 1e3);
            writeln!(
                out,
                "| a parked run (of {count}) is back | {min:.2} / {median:.2} / {max:.2} ms (min / median / max) | |"
            )
        }
        ["shared"] => runtime.block_on(shared::measure(|(what, measured, most)| {
            writeln!(out, "| {what} | {measured} | {most} |")
        })),
        ["shared", "restate"] => runtime.block_on(shared::restate::measure(|(what, measured, most)| {
            writeln!(out, "| {what} | {measured} | {most} |")
        })),
        ["restate-worker", side, url, admin, port, at_once, steps] => runtime.block_on(shared::restate::work(
            side,
            [url, admin],
            port.parse().map_err(std::io::Error::other)?,
            number(at_once)?,
            number(steps)?,
        )),
        ["shared-worker", side, url, at_once, steps] => {
            runtime.block_on(shared::work(side, url, number(at_once)?, number(steps)?))
        }
        ["scripts"] => {
            let all = runtime.block_on(scripts::measure())?;
            write_ratios(&mut out, "a step: ", &all, " bare rquickjs")
        }
        ["agents"] => {
            let all = runtime.block_on(agents::measure())?;
            all.chunks(2).try_for_each(|pair| write_ratios(&mut out, "", pair, ""))
        }
        _ => Err(usage(
            "durable [PART ...], parked COUNT, shared [restate], scripts, or agents",
        )),
    }
}

/// Times of a side, and the bound of their median compared with a reference; empty without a bound.
type Measured = (Times, &'static str);

/// Writes rows with the ratios to the first side, which is named `reference`.
fn write_ratios(out: &mut impl Write, label: &str, sides: &[Measured], reference: &str) -> std::io::Result<()> {
    for (times, most) in sides {
        let [min, median] = [times.min(), times.median()];
        writeln!(
            out,
            "| {label}{} | {min:.1} / {median:.1} us (min / median), {:.2} x{reference} | {most} |",
            times.side,
            median / sides[0].0.median()
        )?;
    }
    Ok(())
}

/// Builds an engine with a workflow or a bundle.
fn engine(builder: EngineBuilder, workflows: &Value) -> std::io::Result<Engine> {
    let engine = builder.workflows(workflows.to_string()).build();
    engine.map_err(|error| std::io::Error::other(error.to_string()))
}

/// Executes a run of the workflow, and returns its microseconds.
///
/// # Errors
/// The run does not start or does not complete.
async fn completed(engine: &Engine, workflow: &str) -> std::io::Result<f64> {
    let (us, report) = timed(async {
        let run = engine.start(workflow, Value::Null)?;
        Ok::<_, pirn::RunError>(run.outcome().await)
    })
    .await;
    let report = report.map_err(|error| std::io::Error::other(error.to_string()))?;
    if report.status != ThreadStatus::Completed {
        return Err(std::io::Error::other(format!("{:?}", report.error)));
    }
    Ok(us)
}
