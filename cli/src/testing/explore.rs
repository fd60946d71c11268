//! `pirn explore FILE...`: runs a workflow in every order in which branches can end.

use std::process::ExitCode;

use indicatif::ProgressBar;
use pirn::explore::{
    Choices, DEFAULT_SAMPLES, DEFAULT_SCHEDULES, Exploration, ExploreError, Explorer, InvalidChoices, Outcome,
    Progress, explore,
};
use pirn::tools::ToolRegistry;
use pirn::{Engine, ThreadStatus};
use serde_json::json;

use crate::output::failure::Failure;
use crate::output::terminal::{FAILED, INTERRUPTED, Output, answer, bar, given_arguments, json_text, repeating, say};
use crate::process::interrupt;
use crate::process::scripts::Level;
use crate::run::inputs::{self, Given, PreparedRun};
use crate::run::{WrittenAnswer, answers_to, named_answer, refused_answer, show_replay};

/// Arguments of `pirn explore`.
#[derive(clap::Args)]
#[command(after_help = WHAT_IS_A_CHOICE)]
pub(crate) struct Args {
    #[command(flatten)]
    given: Given,
    /// A possible answer to the questions of a node: JSON or a string (repeatable)
    #[arg(long, value_name = "NODE=ANSWER", value_parser = named_answer)]
    answer: Vec<(String, WrittenAnswer)>,
    /// Format of the outcomes
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
    /// Exit with 1 if there is more than one outcome, or not every order was tried
    #[arg(long)]
    expect_one: bool,
    /// Maximum number of orders to run systematically
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SCHEDULES, value_parser = clap::value_parser!(u64).range(1..))]
    max_schedules: u64,
    /// Number of random orders to run beyond this maximum
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SAMPLES)]
    samples: u64,
    /// Seed of the random orders, and of Math.random in CODE
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Let time limits expire while another event is still possible
    #[arg(long)]
    timeouts: bool,
    /// Let WAITs end only in the order of their lengths
    #[arg(long)]
    keep_time: bool,
    /// Distinguish outcomes also by error message, variables and conversation
    #[arg(long)]
    strict: bool,
    /// Run only the order of this outcome, with the choices that an exploration with equal options printed, and show its nodes
    #[arg(long, value_name = "CHOICES", value_parser = choices, conflicts_with = "expect_one")]
    replay: Option<Choices>,
    /// Run every order to its end, even if it reaches a known state
    #[arg(long)]
    no_reduction: bool,
    /// No progress on stderr
    #[arg(long, short)]
    quiet: bool,
}

const WHAT_IS_A_CHOICE: &str = "\
A choice is which pending operation ends next. A model's answer, a tool's result, a script \
(CODE), a person's answer, an async function, a WAIT and the pause before a retry take an arbitrary time; a branch that \
does not wait takes its first step at any time. A time limit (JOIN timeout, timeoutMs) expires when nothing else can \
happen, unless --timeouts. Orders that lead to one state are run once. Between two choices, a run behaves as in \
the production engine.

Models come from the profiles, as in `pirn run`; those of a provider are replaced by `echo`. An outcome is \
a status, an output and an error's code.

Ctrl-C ends the exploration with the outcomes found so far, and exit code 130.

After the outcomes, a command for each one runs its order again and shows the nodes on stderr. Its choices are \
STEP:OPTION, separated by commas; other steps take their first option.

JSON: {outcomes: [{order, replay, status, output, error?}], schedules, complete}; an outcome with --replay.

Examples:
  pirn explore workflow.json --input @input.json
  pirn explore workflow.json --expect-one --output json
  pirn explore workflow.json --input @input.json --replay 1:1

Exit codes: 0, 1 with --expect-one and another outcome, or if the run of --replay does not complete, 2 wrong usage, 130 interrupted.";

fn choices(text: &str) -> Result<Choices, String> {
    text.parse().map_err(|error: InvalidChoices| error.to_string())
}

/// Explores the orders; returns 1 if one outcome was expected and another one is possible.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let PreparedRun {
        checked,
        workflow,
        inputs,
    } = inputs::open(&args.given)?;
    let answers = answers_to(&args.answer, checked.graphs())?;
    let missing_input = inputs.missing_input;
    let mut tools = ToolRegistry::new();
    tools.configure(inputs.config.tools);
    let builder = Engine::builder()
        .profiles(inputs.config.profiles)
        .tools(tools)
        .scripts(Level::default().port())
        .checked(checked);
    let shown = bar(
        args.quiet,
        args.max_schedules,
        "{bar:30} at most {len} schedules: {pos} run, {msg}",
    );
    let interrupt = interrupt::listen();
    interrupt.expects_a_run();
    let search = answers
        .into_iter()
        .fold(explore(builder), |exploring, (node, answer)| {
            exploring.answer(node, answer)
        })
        .workflow(workflow)
        .input(inputs.input)
        .conversation(inputs.conversation)
        .pinned(inputs.pinned)
        .max_schedules(args.max_schedules)
        .samples(args.samples)
        .seed(args.seed)
        .timeouts(args.timeouts)
        .keep_time(args.keep_time)
        .strict(args.strict)
        .reduce(!args.no_reduction)
        .on_progress({
            let shown = shown.clone();
            move |progress| show(&shown, progress)
        })
        .stop_when({
            let interrupt = interrupt.clone();
            move || interrupt.was_heard()
        });
    if let Some(choices) = &args.replay {
        shown.finish_and_clear();
        return replay(args, search, choices);
    }
    let explored = search.run();
    shown.finish_and_clear();
    match explored {
        Ok(explored) => {
            let errors = explored.outcomes.iter().filter_map(|outcome| outcome.error.as_ref());
            if let Some(hint) = missing_input.hint(errors.map(|error| error.code)) {
                say(hint);
            }
            Ok(print(args, &explored, interrupt.was_heard()))
        }
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &ExploreError) -> Failure {
    match error {
        ExploreError::AnswerRefused { node_id, reason } => refused_answer(node_id, reason),
        error => Failure::failed("EXPLORE_FAILED", error.to_string()),
    }
}

/// Runs one order, and returns 0 if it completes.
fn replay(args: &Args, mut explorer: Explorer, choices: &Choices) -> Result<ExitCode, Failure> {
    let wait = (!args.quiet).then(|| show_replay(&mut explorer));
    let replayed = explorer.replay(choices);
    if let Some(wait) = wait {
        wait();
    }
    let outcome = replayed.map_err(|error| match error {
        ExploreError::NoSuchOrder { .. } => Failure::usage("NO_SUCH_ORDER", format!("--replay {choices}: {error}")),
        error => failed(&error),
    })?;
    let code = if outcome.status == ThreadStatus::Completed {
        0
    } else {
        FAILED
    };
    let text = match args.output {
        Output::Text => described(&outcome),
        Output::Json => json_text(json!(outcome)),
    };
    Ok(answer(&text, code))
}

fn described(outcome: &Outcome) -> String {
    let status = match (&outcome.error, outcome.status) {
        (None, ThreadStatus::Running) => "RUNNING (waits for ever)",
        (_, status) => status.as_str(),
    };
    let output = match &outcome.error {
        Some(error) => format!("error   {}: {}", error.code.as_str(), error.message),
        None => format!("output  {}", outcome.output),
    };
    format!("status  {status}\n{output}\norder   {}\n", outcome.order.join(", "))
}

/// Returns a command for each outcome that replays its order.
fn commands(explored: &Exploration) -> String {
    let given = given_arguments();
    let valued = ["--output", "--max-schedules", "--samples"];
    let flags = ["--expect-one", "--no-reduction", "--quiet", "-q"];
    let commands = explored.outcomes.iter().zip(1..).map(|(outcome, no)| {
        let replay = format!("--replay {}", outcome.replay);
        format!("again {no}: {}\n", repeating(&given, &valued, &flags, &replay))
    });
    commands.collect()
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_position(progress.schedules);
    let how = if progress.is_sampling { ", sampling" } else { "" };
    bar.set_message(format!("{} outcomes{how}", progress.outcomes));
}

fn print(args: &Args, explored: &Exploration, was_interrupted: bool) -> ExitCode {
    let is_one = explored.outcomes.len() == 1 && explored.complete;
    let code = match (was_interrupted, args.expect_one && !is_one) {
        (true, _) => INTERRUPTED,
        (false, true) => FAILED,
        (false, false) => 0,
    };
    let text = match args.output {
        Output::Text => format!("{explored}{}", commands(explored)),
        Output::Json => json_text(json!(explored)),
    };
    answer(&text, code)
}
