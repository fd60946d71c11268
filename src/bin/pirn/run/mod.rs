//! `pirn run FILE...`: runs a workflow; progress on stderr, the result on stdout (SPEC section 8).

mod consent;
mod floor;
pub(crate) mod inputs;
pub(crate) mod progress;
mod record;
mod seeds;
mod spoken;
mod wants;

use std::process::ExitCode;
use std::time::Duration;

use pirn::faults::load_faults;
use pirn::tools::ToolRegistry;
use pirn::{BuildError, Engine, RunError, RunReport, ThreadStatus};
use pirn_core::graph::{Compiled, NodeKind};
use serde_json::Value;

use crate::interrupt::{self, Interrupt};
use crate::terminal::{FAILED, Output, USAGE, answer, complain};
use crate::tools;
use consent::Approve;
use floor::Floor;
use inputs::{Given, Inputs, Opened};
use wants::WantsInput;

/// Events that may wait for the terminal or the events file.
const BUFFER: usize = 65_536;

/// How long a run that was stopped may take to wind down.
const GRACE: Duration = Duration::from_millis(500);

/// Arguments of `pirn run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    given: Given,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write every event as a line of JSON
    #[arg(long, value_name = "FILE")]
    events: Option<String>,
    /// A clock that jumps: waits pass at once, the same seed gives the same order
    #[arg(long)]
    virtual_time: bool,
    /// Seeds --virtual-time, --faults, and Math.random in CODE
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Play N seeds from --seed on (default 0), until a run does not complete: which seed, and the command for it
    #[arg(long, value_name = "N", requires = "virtual_time", conflicts_with_all = ["events", "stream"],
        value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Have models and tools fail, stall and come late: [faults] of a TOML or JSON file (default: of pirn.toml)
    #[arg(long, value_name = "FILE")]
    faults: Option<String>,
    /// Which tool calls wait for your consent on the terminal
    #[arg(long, value_enum, default_value_t = Approve::Ask, value_name = "WHICH")]
    approve: Approve,
    /// Show replies on stderr as they come, also where it is no terminal
    #[arg(long)]
    stream: bool,
    /// No progress on stderr
    #[arg(long, short)]
    quiet: bool,
}

/// Runs, and ends with 0 where the run completed.
pub(crate) fn run(args: &Args) -> ExitCode {
    let Opened {
        sources,
        loaded,
        compiled,
        workflow,
        inputs,
    } = match inputs::open(&args.given) {
        Ok(opened) => opened,
        Err(code) => return code,
    };
    if !args.quiet && uses_a_model(&compiled) && inputs.config.profiles.is_empty() && loaded.profiles.is_empty() {
        progress::say("no model profile is configured: the built-in offline model answers (it repeats the prompt)");
    }
    if let (false, count @ 1..) = (args.quiet, compiled.warnings.len()) {
        let plural = if count == 1 { "" } else { "s" };
        progress::say(&format!(
            "{count} warning{plural} about the files: pirn validate says which"
        ));
    }
    // Before the first program is started, so that an interrupt ends it.
    let interrupt = interrupt::listen();
    let mut tools = match tools::registry(inputs.config.tools.clone()) {
        Ok(tools) => tools,
        Err(message) => return complain(&message, FAILED),
    };
    if !args.quiet {
        for (node, name) in unknown_tools(&compiled, &tools) {
            progress::say(&format!(
                "node {node} names the tool {name}, and there is none of that name"
            ));
        }
    }
    let floor = Floor::default();
    let prompts = consent::set(&mut tools, args.approve, &floor);
    let faults = match args.faults.as_ref().map(load_faults) {
        Some(Ok(faults)) => faults,
        Some(Err(error)) => return complain(&error.to_string(), USAGE),
        None => inputs.config.faults.clone(),
    };
    let profiles = inputs.config.profiles.clone();
    let build = move || {
        let mut builder = Engine::builder()
            .profiles(profiles.clone())
            .tools(tools.clone())
            .faults(faults.clone());
        for source in &sources {
            builder = builder.file(source.name.clone(), source.text.to_string());
        }
        builder
    };
    let first = args.seed.unwrap_or(0);
    if let Some(count) = args.seeds {
        return seeds::play(args, (first, count), &workflow, &inputs, build, &interrupt);
    }
    let mut builder = build();
    if let Some(seed) = args.seed {
        builder = builder.seed(seed);
    }
    if args.virtual_time {
        builder = builder.simulated(first);
    }
    match builder.build() {
        Ok(engine) => execute(args, &engine, &workflow, inputs, prompts.then_some(&floor), &interrupt),
        Err(error) => unbuilt(&error),
    }
}

fn unbuilt(error: &BuildError) -> ExitCode {
    match error {
        BuildError::Profiles(faults) => {
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            complain(&lines.join("\n"), FAILED)
        }
        error => complain(&error.to_string(), FAILED),
    }
}

/// `floor`: where questions may come on the terminal.
fn execute(
    args: &Args,
    engine: &Engine,
    workflow: &str,
    inputs: Inputs,
    floor: Option<&Floor>,
    interrupt: &Interrupt,
) -> ExitCode {
    let wants = inputs.wants;
    let mut prepared = engine
        .run(workflow)
        .input(inputs.input)
        .conversation(inputs.conversation)
        .pinned(inputs.pinned);
    let record = match &args.events {
        Some(path) => match record::start(path, prepared.blocking_events(&[], BUFFER)) {
            Ok(record) => Some(record),
            Err(error) => return complain(&format!("cannot write {path}: {error}"), USAGE),
        },
        None => None,
    };
    let style = progress::Style::suiting(floor.is_some());
    let shown = (!args.quiet).then(|| {
        let events = prepared.blocking_events(&style.types(args.stream), BUFFER);
        progress::start(events, style, floor.cloned().unwrap_or_default())
    });
    // Before the run's first sign of life, so that no Ctrl-C after it is lost.
    interrupt.expects_a_run();
    let run = match prepared.start() {
        Ok(run) => run,
        Err(error) => return complain(&error.to_string(), FAILED),
    };
    interrupt.stops(&run);

    engine.cancel_if_deadlocked(&run);
    let report = run.outcome_blocking();
    if report.status == ThreadStatus::Completed && !args.virtual_time {
        run.settled_blocking();
    }
    // Flushes the bus: after it, both readers see their end.
    engine.shutdown_blocking(GRACE);
    if let Some(floor) = floor {
        floor.clear();
    }
    let recorded = record.map_or(Ok(()), record::Record::finish);
    if let Some(shown) = shown {
        shown.finish(&report);
    }
    if let Err(error) = recorded {
        return complain(&format!("cannot write the events: {error}"), FAILED);
    }
    if report.status != ThreadStatus::Completed && args.virtual_time && !args.quiet {
        progress::say(&format!(
            "the same run again: --virtual-time --seed {}",
            args.seed.unwrap_or(0)
        ));
    }
    print(args.output, &report, wants)
}

fn print(output: Output, report: &RunReport, wants: WantsInput) -> ExitCode {
    let code = if report.status == ThreadStatus::Completed {
        0
    } else {
        FAILED
    };
    match (output, &report.error) {
        (Output::Json, _) => match serde_json::to_string_pretty(report) {
            Ok(text) => answer(&format!("{text}\n"), code),
            Err(error) => complain(&error.to_string(), FAILED),
        },
        (Output::Text, None) => answer(&plain(&report.output), code),
        (Output::Text, Some(error)) => complain(&explained(report.status, error, wants), code),
    }
}

/// Text as it is, anything else as JSON.
fn plain(output: &Value) -> String {
    match output {
        Value::String(text) => format!("{text}\n"),
        other => format!("{other:#}\n"),
    }
}

fn explained(status: ThreadStatus, error: &RunError, wants: WantsInput) -> String {
    let mut text = format!("the run ended {}: {error}", status.as_str());
    let causes = || std::iter::successors(Some(error), |error| error.cause.as_ref());
    for cause in causes().skip(1) {
        text.push_str("\n  caused by ");
        text.push_str(&cause.to_string());
    }
    if let Some(hint) = wants.hint(causes().map(|cause| cause.code)) {
        text.push_str("\n  ");
        text.push_str(hint);
    }
    text
}

/// What LLM nodes name and nothing gives, with the node.
fn unknown_tools(compiled: &Compiled, tools: &ToolRegistry) -> Vec<(String, String)> {
    let nodes = compiled.graphs.iter().flat_map(|graph| &graph.nodes);
    let named = nodes.filter_map(|node| match &node.kind {
        NodeKind::Llm(llm) => Some((node, &llm.tools)),
        _other => None,
    });
    let each = named.flat_map(|(node, names)| names.iter().map(move |name| (node.id.to_string(), name.to_string())));
    each.filter(|(_, name)| !tools.has(name)).collect()
}

fn uses_a_model(compiled: &Compiled) -> bool {
    let mut nodes = compiled.graphs.iter().flat_map(|graph| &graph.nodes);
    nodes.any(|node| matches!(node.kind, NodeKind::Llm(_)))
}
