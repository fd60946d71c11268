//! `--seeds N`: runs the workflow with one seed after another until a run fails, and prints the command that repeats the failure.

use std::ops::Range;
use std::process::ExitCode;

use pirn::EngineBuilder;
use pirn::simulate::{Progress, SimulateError, Simulation, simulate};
use serde_json::{Value, json};

use super::inputs::Inputs;
use super::{Args, Output};
use crate::output::failure::Failure;
use crate::output::terminal::{self, FAILED, INTERRUPTED, answer, bar, counted, json_text, say};
use crate::process::interrupt::Interrupt;

/// Returns `count` seeds from `first` on.
pub(crate) fn range_of(first: u64, count: u64) -> Result<Range<u64>, Failure> {
    let end = first.checked_add(count).ok_or_else(|| {
        let last = u64::MAX;
        let message = format!("there are no {count} seeds from {first} on: the last one is {last}");
        Failure::usage("USAGE", message)
    })?;
    Ok(first..end)
}

/// Runs `count` seeds from `first` on; returns 0 if every run completed.
pub(super) fn play(
    args: &Args,
    (first, count): (u64, u64),
    workflow: &str,
    inputs: &Inputs,
    build: impl FnMut() -> EngineBuilder + 'static,
    interrupt: &Interrupt,
) -> Result<ExitCode, Failure> {
    let seeds = range_of(first, count)?;
    let bar = bar(args.quiet, count, "{bar:30} {pos} of {len} seeds, {msg}");
    // Set this before the first output, so that an interrupt after it stops the run and not the process.
    interrupt.expects_a_run();
    if !args.quiet {
        say(&format!("{} from {first} on", counted(count, "seed")));
    }
    let simulated = simulate(build)
        .workflow(workflow)
        .input(inputs.input.clone())
        .conversation(inputs.conversation.clone())
        .pinned(inputs.pinned.clone())
        .metadata(args.metadata.iter().cloned())
        .seeds(seeds)
        .on_start({
            let interrupt = interrupt.clone();
            move |run| interrupt.stops(run)
        })
        .on_progress({
            let bar = bar.clone();
            move |Progress { played, failed }| {
                bar.set_position(played);
                bar.set_message(format!("{failed} failed"));
            }
        })
        .stop_when({
            let interrupt = interrupt.clone();
            move || interrupt.was_heard()
        })
        .run();
    bar.finish_and_clear();
    match simulated {
        Ok(simulated) => Ok(report(args, &simulated)),
        Err(SimulateError::Build(error)) => Err(super::unbuilt(&error)),
        Err(SimulateError::Refused(error)) => Err(Failure::failed(error.code.as_str(), error.to_string())),
        Err(error) => Err(Failure::failed("NOT_SIMULATED", error.to_string())),
    }
}

fn report(args: &Args, simulated: &Simulation) -> ExitCode {
    let code = match (&simulated.failure, simulated.interrupted) {
        (Some(_), _) => FAILED,
        (None, true) => INTERRUPTED,
        (None, false) => 0,
    };
    let given = terminal::given_arguments();
    let again = simulated
        .failure
        .as_ref()
        .map(|failure| repeating(&given, failure.seed));
    match args.output {
        Output::Text => {
            let again = again.map(|command| format!("again: {command}\n")).unwrap_or_default();
            answer(&format!("{simulated}{again}"), code)
        }
        Output::Json => {
            let mut report = json!(simulated);
            if let (Some(command), Some(Value::Object(failure))) = (again, report.get_mut("failure")) {
                failure.insert("command".to_owned(), json!(command));
            }
            answer(&json_text(report), code)
        }
    }
}

/// Returns the given command, changed to repeat this seed only.
fn repeating(given: &[String], seed: u64) -> String {
    terminal::repeating(given, &["--seeds", "--seed"], &[], &format!("--seed {seed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repeat_command_is_the_given_command_with_one_seed() {
        let given = [
            "run",
            "my flow.json",
            "--seeds",
            "100",
            "--virtual-time",
            "--seed=5",
            "--input",
            r#"{"who": "it's me"}"#,
        ];
        let given = given.map(str::to_owned);
        assert_eq!(
            repeating(&given, 17),
            r#"pirn run 'my flow.json' --virtual-time --input '{"who": "it'\''s me"}' --seed 17"#
        );
    }
}
