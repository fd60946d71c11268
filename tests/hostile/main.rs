//! Scripts that are made to do harm, on each level that scripts run on: every one is answered within its limit, none sees
//! what another was given, and who asks beside them is served.
//!
//! `cargo test --release -p pirn-tests --test hostile -- --scripts 20000 --strict` is the long form. `--level thread` or
//! `process` takes one level, `--seed N` other scripts. Without `--strict` a busy machine is given time.

mod engine;
mod grammar;
mod known;
mod scripts;

use std::process::ExitCode;

use pirn::script::{ScriptLevel, WorkerProgram};
use scripts::Bounds;

struct Options {
    scripts: u64,
    seed: u64,
    level: Option<String>,
    is_strict: bool,
}

fn main() -> ExitCode {
    // This program is its own worker.
    if let Some(code) = pirn::script::serve_worker() {
        return code;
    }
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let mut failures = Vec::new();
    for (name, level) in levels() {
        if options.level.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let bounds = if options.is_strict {
            Bounds::STRICT
        } else {
            Bounds::BUSY
        };
        let report = scripts::play(&level, options.seed, options.scripts, &bounds);
        println!("{name}: {report}");
        failures.extend(report.failures.iter().map(|failure| format!("{name}: {failure}")));
    }
    // Last, because what is stuck stays so as long as this process lives, and takes its time from all others.
    for (name, test) in engine::TESTS {
        println!("engine: {name}");
        if std::panic::catch_unwind(test).is_err() {
            failures.push(format!("engine: {name}"));
        }
    }
    if failures.is_empty() {
        println!("hostile: all held");
        return ExitCode::SUCCESS;
    }
    println!("hostile: {} failed", failures.len());
    for failure in failures {
        println!("  {failure}");
    }
    ExitCode::FAILURE
}

fn levels() -> [(&'static str, ScriptLevel); 2] {
    let program = WorkerProgram::this_program().expect("a program knows its path");
    [
        ("process", ScriptLevel::Process(program)),
        ("thread", ScriptLevel::Thread),
    ]
}

/// What the test runner adds (`--nocapture` and its like) is passed over.
fn options() -> Result<Options, String> {
    let mut options = Options {
        scripts: 150,
        seed: 1,
        level: None,
        is_strict: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match argument.as_str() {
            "--scripts" => options.scripts = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--level" => options.level = Some(value()?),
            "--strict" => options.is_strict = true,
            _ => {}
        }
    }
    Ok(options)
}
