//! Malicious scripts, at each level that scripts run at: every script ends within its limit, none sees another script's data, and
//! concurrent requests are served. After them, hostile peers, and engines with stuck scripts.
//!
//! `cargo test --release -p pirn-tests --test hostile -- --scripts 20000 --strict` is the long form. `--level thread` or
//! `process` runs one level, `--seed N` generates other scripts, and `--only WORD` runs the tests with that word in their name and
//! no scripts. Without `--strict` the time bounds are generous, for busy machines.

mod cancel_races;
mod engine;
mod grammar;
mod known_scripts;
mod live_scripts;
mod many_calls;
mod peers;
mod scripts;
mod trigger_cascade;

use std::process::{Command, ExitCode};

use pirn::script::{ScriptLevel, WorkerProgram};
use scripts::{Bounds, Report};

struct Options {
    scripts: u64,
    seed: u64,
    level: Option<String>,
    is_strict: bool,
    only: Option<String>,
    /// Number of the first script of the part that this process executes.
    part: Option<u64>,
}

fn main() -> ExitCode {
    // The script worker of the process level is this program.
    if let Some(code) = pirn::script::serve_worker() {
        return code;
    }
    if let Some(kind) = std::env::args().skip_while(|argument| argument != "--mcp").nth(1) {
        // Fails if the engine has closed the pipe.
        peers::serve_mcp(&kind).unwrap_or(());
        return ExitCode::SUCCESS;
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
        if options.only.is_some() || options.level.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let bounds = if options.is_strict {
            Bounds::STRICT
        } else {
            Bounds::BUSY
        };
        if let Some(from) = options.part {
            let report = scripts::play(&level, options.seed, (from, options.scripts), &bounds);
            println!("{}", serde_json::to_string(&report).expect("a report is JSON"));
            return ExitCode::SUCCESS;
        }
        let report = in_parts(name, &options);
        println!("{name}: {report}");
        failures.extend(report.failures.iter().map(|failure| format!("{name}: {failure}")));
    }
    failures.extend(run("peers", &peers::tests(), options.only.as_deref()));
    failures.extend(run("cancel races", cancel_races::TESTS, options.only.as_deref()));
    failures.extend(run("live scripts", live_scripts::TESTS, options.only.as_deref()));
    failures.extend(run("many calls", many_calls::TESTS, options.only.as_deref()));
    failures.extend(run("trigger cascade", trigger_cascade::TESTS, options.only.as_deref()));
    // Last, because stuck scripts run until this process ends and take CPU time from every other test.
    failures.extend(run("engine", engine::TESTS, options.only.as_deref()));
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

/// Runs tests one after another; returns the names of those that failed.
fn run(of: &str, tests: &[(&str, fn())], only: Option<&str>) -> Vec<String> {
    let mut failed = Vec::new();
    for (name, test) in tests {
        if only.is_some_and(|word| !name.contains(word)) {
            continue;
        }
        println!("{of}: {name}");
        if std::panic::catch_unwind(test).is_err() {
            failed.push(format!("{of}: {name}"));
        }
    }
    failed
}

/// Tests a level in consecutive processes, each until its engine refuses scripts. Stuck scripts end with their process, so that
/// every script is executed.
fn in_parts(name: &str, options: &Options) -> Report {
    let program = std::env::current_exe().expect("a program knows its path");
    let mut report = Report::of_none();
    while let Some(from) = report.next {
        let mut part = Command::new(&program);
        part.args(["--level", name, "--part", &from.to_string()]);
        part.args([
            "--seed",
            &options.seed.to_string(),
            "--scripts",
            &options.scripts.to_string(),
        ]);
        part.args(options.is_strict.then_some("--strict"));
        let output = part.output().expect("a part runs");
        let told = serde_json::from_slice::<Report>(&output.stdout);
        match told {
            Ok(told) if told.next.is_none_or(|next| next > from) => report.and(told),
            Ok(_) | Err(_) => {
                let said = String::from_utf8_lossy(&output.stderr);
                report.failures.push(format!(
                    "from script {from} on, the process ended {}: {said}",
                    output.status
                ));
                report.next = None;
            }
        }
    }
    report
}

fn levels() -> [(&'static str, ScriptLevel); 2] {
    let program = WorkerProgram::this_program().expect("a program knows its path");
    [
        ("process", ScriptLevel::Process(program)),
        ("thread", ScriptLevel::Thread),
    ]
}

/// The options, without those of the test runner (`--nocapture` and the like).
fn options() -> Result<Options, String> {
    let mut options = Options {
        scripts: 150,
        seed: 1,
        level: None,
        is_strict: false,
        only: None,
        part: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match argument.as_str() {
            "--scripts" => options.scripts = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--only" => options.only = Some(value()?),
            "--level" => options.level = Some(value()?),
            "--part" => options.part = Some(number(value()?)?),
            "--strict" => options.is_strict = true,
            _ => {}
        }
    }
    Ok(options)
}
