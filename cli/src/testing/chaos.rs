//! `pirn chaos FILE...`: runs a workflow under random faults, and compares the outcomes with those without faults.

use std::process::ExitCode;

use pirn::chaos::{Chaos, DEFAULT_SEEDS, FaultKind, Progress, chaos};
use pirn::simulate::SimulateError;
use pirn::tools::ToolRegistry;
use pirn::{Engine, RunErrorCode};
use serde_json::json;

use crate::output::failure::Failure;
use crate::output::terminal::{FAILED, INTERRUPTED, Output, answer, bar, given_arguments, json_text, repeating};
use crate::process::interrupt;
use crate::process::scripts::Level;
use crate::run::inputs::{self, Given, PreparedRun};
use crate::run::seeds::range_of;
use crate::run::{WrittenAnswer, answers_to, named_answer, refused_answer};

/// Arguments of `pirn chaos`.
#[derive(clap::Args)]
#[command(after_help = KINDS)]
pub(crate) struct Args {
    #[command(flatten)]
    given: Given,
    /// Answer to the questions of a node: JSON or a string (repeatable; default: the first possible answer)
    #[arg(long, value_name = "NODE=ANSWER", value_parser = named_answer)]
    answer: Vec<(String, WrittenAnswer)>,
    /// Number of seeds to run [default: 50, or 1 with --seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed; alone, it repeats one run
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Inject faults of this kind only (repeatable)
    #[arg(long, value_name = "KIND", value_parser = kind)]
    only: Vec<FaultKind>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
    /// No progress on stderr
    #[arg(long, short)]
    quiet: bool,
}

const KINDS: &str = "\
A seed determines the faults of a run, of these kinds:
  model-error      a model call fails, after the retries of its profile
  late-reply       a reply arrives up to a minute late
  truncated-reply  a reply ends in its middle
  tool-error       a tool call fails
  hanging-tool     a tool call has no result for an hour, and then fails
  kill             the process is killed at a commit, and another one resumes the run
  clock-jump       up to a day passes while a killed process is down

Time is virtual. A run differs if its status, output or error code is not that of the run without faults; the report names the kinds
of faults that are needed for that. Models come from the profiles; those of a provider are replaced by `echo`, and tools that are
programs or HTTP requests are not called.

A killed run whose outcome also occurs without a kill, in another order of concurrent steps, is a race and not a difference.

JSON: {firstSeed, seeds, played, faults{KIND: count}, different, races, runs[{seed, causes[], race, faults[{kind, text}], expected,
got, differences[]}], interrupted}.

Examples:
  pirn chaos workflow.json --only kill --only late-reply
  pirn chaos workflow.json --input @input.json --seed 7 --only kill --output json

Exit codes: 0 no run differs, 1 one does, 2 wrong usage or an unreadable file, 130 interrupted.";

fn kind(text: &str) -> Result<FaultKind, String> {
    let found = FaultKind::ALL.into_iter().find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let known: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("expected one of {}", known.join(", "))
    })
}

/// Runs the seeds; returns 1 if a run differs.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let PreparedRun {
        checked,
        workflow,
        inputs,
    } = inputs::open(&args.given)?;
    let answers = answers_to(&args.answer, checked.graphs())?;
    let (first, count) = match (args.seed, args.seeds) {
        (first, Some(count)) => (first.unwrap_or_default(), count),
        (Some(seed), None) => (seed, 1),
        (None, None) => (0, DEFAULT_SEEDS),
    };
    let seeds = range_of(first, count)?;
    let only = if args.only.is_empty() {
        FaultKind::ALL.to_vec()
    } else {
        args.only.clone()
    };
    let shown = bar(args.quiet, count, "{bar:30} {pos} of {len} seeds, {msg}");
    let interrupt = interrupt::listen();
    interrupt.expects_a_run();
    let (profiles, tools, sources) = (inputs.config.profiles, inputs.config.tools, inputs.sources);
    // Threads of scripts are shared by the engines of all seeds.
    let scripts = Level::default().port();
    let build = move || {
        let mut registry = ToolRegistry::new();
        registry.configure(tools.clone());
        Engine::builder()
            .profiles(profiles.clone())
            .tools(registry)
            .scripts(scripts.clone())
            .files(sources.iter().cloned())
    };
    let tried = answers
        .into_iter()
        .fold(chaos(build), |trial, (node, answer)| trial.answer(node, answer))
        .workflow(workflow)
        .input(inputs.input)
        .conversation(inputs.conversation)
        .pinned(inputs.pinned)
        .seeds(seeds)
        .only(only)
        .on_progress({
            let shown = shown.clone();
            move |Progress { played, different }| {
                shown.set_position(played);
                shown.set_message(format!("{different} differ"));
            }
        })
        .stop_when({
            let interrupt = interrupt.clone();
            move || interrupt.was_heard()
        })
        .run();
    shown.finish_and_clear();
    let tried = tried.map_err(|error| match &error {
        SimulateError::Refused(refused) if refused.code == RunErrorCode::InvalidInput && refused.node_id.is_some() => {
            refused_answer(refused.node_id.as_deref().unwrap_or_default(), &refused.message)
        }
        error => Failure::failed("CHAOS_FAILED", error.to_string()),
    })?;
    Ok(print(args, &tried))
}

fn print(args: &Args, tried: &Chaos) -> ExitCode {
    let code = match (tried.interrupted, tried.different) {
        (true, _) => INTERRUPTED,
        (false, 0) => 0,
        (false, _) => FAILED,
    };
    let text = match args.output {
        Output::Json => json_text(json!(tried)),
        Output::Text => {
            let first = tried.runs.iter().find(|run| !run.race).or(tried.runs.first());
            let again = first.map(|run| {
                let seed = format!("--seed {}", run.seed);
                let command = repeating(&given_arguments(), &["--seeds", "--seed"], &[], &seed);
                format!("again: {command}\n")
            });
            format!("{tried}{}", again.unwrap_or_default())
        }
    };
    answer(&text, code)
}
