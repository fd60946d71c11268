//! `pirn run FILE...`: runs a workflow; progress on stderr, the result on stdout.

mod advice;
pub(crate) mod inputs;
mod progress;
mod questions;
mod record;
pub(crate) mod resumed;
pub(crate) mod seeds;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use pirn::check::{CheckedFiles, SourceFile};
use pirn::explore::Explorer;
use pirn::faults::{Faults, load_faults};
use pirn::store::{Run, RunFilter, Store};
use pirn::tools::ToolRegistry;
use pirn::{
    BuildError, Engine, Interaction, Profile, RunBuilder, RunError, RunErrorCode, RunReport, RunView, ThreadStatus,
};
use pirn_actors::engine::check_name;
use pirn_definition::definition::{BuiltInTool, FaultCode, ToolEntry, nearest, workflow_of_tool};
use pirn_definition::graph::{Graph, Node, NodeKind};
use serde_json::{Value, json};

use crate::config::invalid_config;
use crate::files;
use crate::output::failure::Failure;
use crate::output::terminal::{
    FAILED, FORMAT_VERSION, INTERRUPTED, Output, TIMED_OUT, answer, counted, json_text, say, say_run, shell_quoted,
};
use crate::process::interrupt::{self, Interrupt};
use crate::process::log;
use crate::process::scripts::Level;
use crate::store::place::{Place, SharedArgs};
use crate::store::store_owner;
use crate::store::{all, config_key, new_run_id, not_resumed, refused, spare};
use crate::tools;
pub(crate) use inputs::check_run_id;
use inputs::{Given, Inputs, MissingInput, PreparedRun};
use progress::places::Places;
use progress::{Replies, Style};
use questions::asking::{self, Asking};
use questions::consent::{self, Approve};
pub(crate) use questions::named_value::{WrittenAnswer, json_or_text, named_answer};
use questions::named_value::{answered_once, named_value, said_once};
use questions::prompt_gate::PromptGate;
use questions::{Ask, UnansweredQuestion};
use questions::{elicitation, messages};

/// Capacity of the event channels of the terminal and the events file.
const BUFFER: usize = 65_536;

/// Time limit for a cancelled run to end.
const GRACE: Duration = Duration::from_millis(500);

/// Arguments of `pirn run`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn run workflow.json --input '{\"name\": \"Ada\"}'
  pirn run workflow.json --input @input.json --output json > report.json
  pirn run main.json trigger.json --profiles models.toml --events events.jsonl
  pirn run workflow.json --virtual-time --seed 7
  pirn run workflow.json --store runs.db --metadata tenant=acme --metadata user=u-7
  pirn run workflow.json --store runs.db --detach
  pirn run workflow.json --interactive
  pirn run chat.json --input '\"And then?\"' --store runs.db --session ada

JSON: {runId, threadId, workflowId, session?, status, output, variables, error?, conversation{messages, markMap},
tokens{context, spent}, usage?{nodes[], paths?[]}, budget?, nodes[], threads[], firings?[], waitingMessages?[], elapsedMs}; {error{code, message, help?}} where nothing ran;
{ok, runId} with --detach.

Exit codes: 0 completed, 1 failed or invalid, 2 wrong usage or an unreadable file, 124 the time limit ended the run, 130
interrupted. Ctrl-C stops the run, which ends CANCELLED with what had finished; with a store it does not end, can be resumed, and the
JSON is that of `pirn runs show`. A second Ctrl-C ends the process.")]
pub(crate) struct Args {
    #[command(flatten)]
    given: Given,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
    /// Write every event as a line of JSON
    #[arg(long, value_name = "FILE")]
    events: Option<String>,
    /// End the run with status TIMEOUT after this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Use a virtual clock: waits take no real time, and equal seeds give equal orders
    #[arg(long)]
    virtual_time: bool,
    /// Seed of --virtual-time, --faults and Math.random in CODE
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run N seeds, starting at --seed (default 0), until a run does not complete; prints that seed and the command that repeats it
    #[arg(long, value_name = "N", requires = "virtual_time", conflicts_with_all = ["events", "stream"],
        value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Make models and tools fail, stall or answer late: [faults] of a TOML or JSON file (default: of pirn.toml)
    #[arg(long, value_name = "FILE")]
    faults: Option<String>,
    /// Make the run durable in this store, a file or a folder; `pirn runs resume` resumes it after a crash (default: PIRN_STORE)
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    store: Option<String>,
    #[command(flatten)]
    shared: SharedArgs,
    /// Only add the run to the store; a worker or `pirn runs resume` executes it
    #[arg(long, conflicts_with_all = ["seeds", "events", "virtual_time", "stream", "answer"])]
    detach: bool,
    /// Name the run
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Start with the conversation and the `session` variables that the last run of this session stored
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Write the run's state to the session even if the run does not complete
    #[arg(long, requires = "session")]
    keep_on_failure: bool,
    /// Which tool calls wait for a person's consent
    #[arg(long, value_enum, default_value_t = Approve::Ask, value_name = "WHICH")]
    approve: Approve,
    /// Answer to the questions of a node (USER_INTERACTION, or consent to its tool calls): JSON or a string (repeatable)
    #[arg(long, value_name = "NODE=ANSWER", value_parser = named_answer)]
    answer: Vec<(String, WrittenAnswer)>,
    /// Metadata of the run, such as its owner: JSON or a string (repeatable); profiles choose keys by it, models do not receive it
    #[arg(long, value_name = "NAME=VALUE", value_parser = named_value)]
    metadata: Vec<(String, Value)>,
    /// Isolation of JavaScript
    #[arg(long, value_enum, default_value_t, value_name = "WHERE")]
    scripts: Level,
    /// Start no runs by schedules of the files
    #[arg(long)]
    no_schedules: bool,
    /// Send each line of stdin to the run's model, as a user message before the next model request
    #[arg(long, short, conflicts_with_all = ["seeds", "detach", "virtual_time"])]
    interactive: bool,
    /// Show replies on stderr while they arrive, also without a terminal
    #[arg(long, conflicts_with = "no_stream")]
    stream: bool,
    /// Show no replies on stderr
    #[arg(long)]
    no_stream: bool,
    /// Show every node, and replies in full
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
    /// Print only errors on stderr
    #[arg(long, short)]
    quiet: bool,
}

const NOBODY_UNDER_VIRTUAL_TIME: &str = "questions are not shown under virtual time";

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| "expected a positive number of seconds".to_owned())
}

/// Runs a workflow; returns 0 if the run completed.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let help = "a name has one value; pass several values as JSON: NAME='[1, 2]'";
    said_once("--metadata", &args.metadata, help)?;
    answered_once(&args.answer)?;
    // The runs of seeds are too many to report each of their warnings.
    if args.seeds.is_none() {
        log::show_warnings();
    }
    let PreparedRun {
        checked,
        workflow,
        inputs,
    } = inputs::open(&args.given)?;
    let place = match args.seeds {
        // PIRN_STORE does not concern runs under virtual time that are repeated by their seed.
        Some(_) => None,
        None => args.shared.or(args.store.as_deref())?,
    };
    if args.session.is_some() && place.is_none() {
        return Err(Failure::usage("USAGE", "--session needs --store"));
    }
    if let Some(session) = &args.session
        && let Err(wrong) = check_name("session", session)
    {
        let message = format!("--session {}: {wrong}", shell_quoted(session));
        return Err(
            Failure::usage("USAGE", message).with_help("name the session, such as --session ada, or omit the option")
        );
    }
    if args.detach && place.is_none() {
        return Err(Failure::usage("USAGE", "--detach needs --store"));
    }
    if let Some(id) = &args.run_id {
        check_run_id(id)?;
    }
    check_answers(&args.answer, checked.graphs())?;
    // Open the store before the id of the run is printed: without the store there is no run.
    let config = inputs.config.text.as_ref();
    let store = place.as_ref().map(|place| place.open(config)).transpose()?;
    let run_id = args.run_id.clone().or_else(|| place.is_some().then(new_run_id));
    if let (Some(run_id), Some(_), false) = (&run_id, &place, args.quiet) {
        say_run(run_id);
    }
    if !args.quiet {
        notices(&checked, &inputs);
    }
    // Install the handler before the first program starts, so that an interrupt kills the programs.
    let interrupt = interrupt::listen();
    let mut tools = tools::registry(inputs.config.tools.clone())?;
    if !args.quiet {
        for (node, name) in unknown_tools(&checked, &tools) {
            let near = nearest(&name, tools.names());
            let meant = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            say(&format!("node {node} names the unknown tool {name}{meant}"));
        }
    }
    let gate = PromptGate::default();
    let asking = Asking::start(&gate);
    let asks = consent::set(&mut tools, args.approve) || questions::may_come(&checked);
    let elicits = asking
        .as_ref()
        .is_some_and(|asking| elicitation::set(&mut tools, asking));
    if args.seeds.is_some() {
        consent::refuse(&mut tools, args.approve, NOBODY_UNDER_VIRTUAL_TIME);
    }
    let prompts = asking.filter(|_| asks || elicits).map(|asking| (gate, asking));
    let faults = match &args.faults {
        Some(path) => load_faults(path).map_err(|error| invalid_config(&error))?,
        None => inputs.config.faults.clone(),
    };
    let profiles = inputs.config.profiles.clone();
    check_fault_names(&faults, &profiles, &checked, &tools)?;
    let scripts = args.scripts.port();
    let fires = !args.no_schedules;
    let in_engine = checked.clone();
    let build = move || {
        Engine::builder()
            .profiles(profiles.clone())
            .tools(tools.clone())
            .faults(faults.clone())
            .checked(in_engine.clone())
            .scripts(Arc::clone(&scripts))
            .schedules(fires)
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
    if let (Some(place), Some(store)) = (&place, store) {
        // Runs in a shared store are taken over by the other processes: do not report them.
        if !args.quiet && store.claims().is_none() {
            say_unfinished(&*store, place)?;
        }
        builder = builder.shared_store(store);
    }
    let engine = builder.build().map_err(|error| unbuilt(&error))?;
    let run_id = run_id.as_deref();
    execute(
        (args, run_id, place.as_ref()),
        &engine,
        &workflow,
        (inputs, checked),
        (asks, prompts.as_ref()),
        &interrupt,
    )
}

/// Shows the nodes of the order that the explorer replays. The result waits for the last line.
pub(crate) fn show_replay(explorer: &mut Explorer) -> impl FnOnce() + use<> {
    let style = Style::suiting(false, Replies::Never, true);
    let events = explorer.blocking_events(&style.types(), BUFFER);
    let shown = progress::start(events, style, PromptGate::default(), None, Vec::new());
    move || shown.wait()
}

/// Refuses answers to nodes that do not exist or have no questions, unless the run may add nodes.
pub(crate) fn check_answers(given: &[(String, WrittenAnswer)], graphs: &[Arc<Graph>]) -> Result<(), Failure> {
    let nodes = || graphs.iter().flat_map(|graph| &graph.nodes);
    let may_add = nodes().any(|node| match &node.kind {
        NodeKind::Orchestration(_) => true,
        NodeKind::Llm(llm) => llm.dynamic.is_some(),
        _other => false,
    });
    // Calls of tools may need consent.
    let can_ask = |node: &&Node| {
        matches!(
            node.kind,
            NodeKind::UserInteraction(_) | NodeKind::Llm(_) | NodeKind::Tool { .. } | NodeKind::Orchestration(_)
        )
    };
    let is_asked = |name: &str| nodes().filter(can_ask).any(|node| *node.id == *name);
    let wrong = given.iter().find(|(name, _)| !is_asked(name));
    let Some((name, _)) = wrong.filter(|_| !may_add) else {
        return Ok(());
    };
    let why = if nodes().any(|node| *node.id == **name) {
        format!("the node `{name}` asks no question")
    } else {
        format!("no workflow has a node `{name}`")
    };
    let failure = Failure::usage("USAGE", format!("--answer {name}=...: {why}"));
    let asks = |node: &&Node| matches!(node.kind, NodeKind::UserInteraction(_));
    let asking: Vec<&str> = nodes().filter(asks).map(|node| &*node.id).collect();
    Err(match nearest(name, asking.iter().copied()) {
        Some(near) => failure.with_help(format!("did you mean {near}?")),
        None if asking.is_empty() => failure.with_help("no node of these files asks a question"),
        None => failure.with_help(format!("the nodes that ask are {}", asking.join(", "))),
    })
}

/// Refuses faults of profiles and tools that do not exist: they would have no effect.
fn check_fault_names(
    faults: &Faults,
    profiles: &[Profile],
    checked: &CheckedFiles,
    tools: &ToolRegistry,
) -> Result<(), Failure> {
    let of_files = checked.loaded().profiles.iter().map(|profile| &profile.value);
    let mut models: Vec<&str> = profiles
        .iter()
        .chain(of_files)
        .map(|profile| profile.id.as_str())
        .collect();
    // The profiles that need no configuration.
    models.extend(["echo", "extractive"]);
    let tools: Vec<&str> = tools.names().collect();
    let models = faults.models.keys().map(|name| ("models", "profile", name, &models));
    let tools = faults.tools.keys().map(|name| ("tools", "tool", name, &tools));
    let is_unknown =
        |(_, _, name, known): &(&str, &str, &String, &Vec<&str>)| *name != "*" && !known.contains(&name.as_str());
    let unknown: Vec<String> = models
        .chain(tools)
        .filter(is_unknown)
        .map(|(section, noun, name, known)| {
            let near = nearest(name, known.iter().copied());
            let meant = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            format!("faults.{section}.{name}: there is no {noun} {name}{meant}")
        })
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(Failure::usage("INVALID_CONFIG", unknown.join("\npirn: "))
        .with_help("the keys are ids of profiles and names of tools; `*` stands for those without a key"))
}

/// Returns the answers for a trial of these workflows.
///
/// # Errors
/// As [`check_answers`].
pub(crate) fn answers_to(
    given: &[(String, WrittenAnswer)],
    graphs: &[Arc<Graph>],
) -> Result<Vec<(String, Value)>, Failure> {
    check_answers(given, graphs)?;
    let value = |(node, answer): &(String, WrittenAnswer)| (node.clone(), answer.to_node(node, graphs));
    Ok(given.iter().map(value).collect())
}

/// Returns the failure for an answer that no question of its node has accepted.
pub(crate) fn refused_answer(node_id: &str, reason: &str) -> Failure {
    Failure::usage(
        "INVALID_ANSWER",
        format!("--answer {node_id}: invalid answer: {reason}"),
    )
    .with_help("an answer is JSON or a string; a string that looks like JSON has its quotes: --answer NODE='\"1\"'")
}

/// Reports the unfinished runs of a store, which no process executes.
fn say_unfinished(store: &dyn Store, place: &Place) -> Result<(), Failure> {
    let unfinished = all(store, &RunFilter::live())?;
    if let [first, ..] = &unfinished[..] {
        let (count, id) = (unfinished.len(), &first.id);
        let more = if count == 1 {
            String::new()
        } else {
            format!(" and {} more", count - 1)
        };
        say(&format!(
            "unfinished: {id}{more}; pirn runs resume {} {}, or --all",
            shell_quoted(id),
            place.arguments()
        ));
    }
    Ok(())
}

/// A run in the engine's store after this process has executed it.
enum StoredRun {
    Entry(Run),
    /// State of a run that an interrupt has released. The run can be resumed; its report states only that.
    Released(Box<RunView>),
}

/// Returns a run as it is in the engine's store; none without a store.
fn stored_run(engine: &Engine, report: &RunReport) -> Option<StoredRun> {
    let run = block_on(engine.store()?.run(&report.run_id)).ok()??;
    let is_released = report.status == ThreadStatus::Failed
        && !run.status.is_final()
        && report
            .error
            .as_ref()
            .is_some_and(|error| error.code == RunErrorCode::Cancelled);
    let view = is_released.then(|| block_on(engine.view(&report.run_id, None)));
    Some(match view {
        Some(Ok(view)) => StoredRun::Released(Box::new(view)),
        Some(Err(_)) | None => StoredRun::Entry(run),
    })
}

/// Prints the command that resumes an interrupted run of a store.
fn say_resumable(run_id: &str, place: &Place) {
    say(&format!(
        "run {run_id} is stored: pirn runs resume {} {}",
        shell_quoted(run_id),
        place.arguments()
    ));
}

/// Prints notices before the run starts.
fn notices(checked: &CheckedFiles, inputs: &Inputs) {
    if uses_a_model(checked) && inputs.config.profiles.is_empty() && checked.loaded().profiles.is_empty() {
        say("no model profile is configured: the built-in offline model answers (it repeats the prompt)");
    }
    // Warn at the start: an unknown profile fails only when its node runs, after the work of the nodes before it.
    let is_profile = |code| code == FaultCode::UnknownProfile;
    for warning in checked.warnings().iter().filter(|warning| is_profile(warning.code)) {
        say(&warning.to_string());
    }
    if let count @ 1.. = checked.warnings().len() {
        say(&format!(
            "{} about the files: pirn validate says which",
            counted(count, "warning")
        ));
    }
}

fn unbuilt(error: &BuildError) -> Failure {
    let code = match error {
        BuildError::Profiles(_) => "INVALID_PROFILE",
        BuildError::Workflows(_) => "INVALID_WORKFLOW",
        _other => "ENGINE_NOT_BUILT",
    };
    Failure::failed(code, error.to_string())
}

/// Executes a run. `prompts` is true if questions may appear on the terminal.
fn execute(
    (args, run_id, place): (&Args, Option<&str>, Option<&Place>),
    engine: &Engine,
    workflow: &str,
    (inputs, checked): (Inputs, CheckedFiles),
    (asks, prompts): (bool, Option<&(PromptGate, Asking)>),
    interrupt: &Interrupt,
) -> Result<ExitCode, Failure> {
    let asked = RunFacts {
        missing_input: inputs.missing_input,
        sources: inputs.sources,
        checked,
    };
    let mut prepared = engine
        .run(workflow)
        .input(inputs.input)
        .conversation(inputs.conversation)
        .pinned(inputs.pinned);
    if !args.metadata.is_empty() {
        prepared = prepared.metadata(args.metadata.iter().cloned());
    }
    if let Some(limit) = args.timeout {
        prepared = prepared.deadline(limit);
    }
    if let Some(run_id) = run_id {
        prepared = prepared.run_id(run_id);
    }
    if let Some(session) = &args.session {
        prepared = prepared.session(session.as_str());
    }
    if args.keep_on_failure {
        prepared = prepared.keep_on_failure();
    }
    if let (Some(store), Some(run_id)) = (engine.store(), run_id) {
        let config = args.given.config.place(&args.given.files);
        block_on(store.set_meta(&config_key(run_id), config)).map_err(|error| refused(&error))?;
    }
    if args.detach {
        return detach(prepared, engine, args.output);
    }
    if let Some(path) = &args.events {
        spare(place.and_then(Place::file).as_deref(), path)?;
    }
    // Subscribe before the run starts, so that no event is missed.
    let record = match &args.events {
        Some(path) => Some(
            record::start(path, prepared.blocking_events(&[], BUFFER))
                .map_err(|error| files::unwritable(path, &error))?,
        ),
        None => None,
    };
    let gate = prompts.map(|(gate, _)| gate);
    // The redrawn display would overwrite what a person types.
    let style = Style::suiting(gate.is_some() || args.interactive, replies(args), args.verbose);
    let shown = (!args.quiet).then(|| {
        let events = prepared.blocking_events(&style.types(), BUFFER);
        let places = Places::new(&asked.checked, &asked.sources);
        progress::start(
            events,
            style,
            gate.cloned().unwrap_or_default(),
            Some(places),
            Vec::new(),
        )
    });
    let failures = args
        .quiet
        .then(|| progress::quiet::collect(prepared.blocking_events(progress::quiet::TYPES, BUFFER)));
    let unanswered = UnansweredQuestion::default();
    if asks {
        let given = args.answer.iter().cloned().collect();
        let ask = match (prompts, place) {
            _ if args.virtual_time => Ask::Nobody(NOBODY_UNDER_VIRTUAL_TIME),
            (Some((_, asking)), _) => Ask::Terminal(asking.clone()),
            (None, Some(place)) => Ask::Elsewhere(place.arguments()),
            (None, None) => Ask::NobodyEver("there is no terminal"),
        };
        let (give, refused) = questions::answers(engine, given, ask, &unanswered);
        // The rules of a submitted workflow request consent independently of the tools' configuration.
        let allows = args.approve == Approve::None;
        let give = move |question: &Interaction| match question.tool {
            Some(_) if allows => Some(consent::allowed()),
            _ => give(question),
        };
        prepared = prepared.answers(give, refused);
    }
    let listening = place.and_then(|place| store_owner::listen(place, engine, args.quiet));
    // Set this before the run's first output, so that an interrupt after it stops the run and not the process.
    interrupt.expects_a_run();
    if args.interactive {
        asking::expect_lines();
    }
    let run = prepared.start().map_err(|error| {
        let failure = Failure::failed(error.code.as_str(), error.to_string());
        match advice::advice(&error) {
            Some(advice) => failure.with_help(advice),
            None => failure,
        }
    })?;
    if engine.store().is_some() {
        interrupt.stops_durable(&run);
    } else {
        interrupt.stops(&run);
    }
    if args.interactive {
        messages::send_typed(&run);
    }
    engine.cancel_if_deadlocked(&run);
    let report = run.outcome_blocking();
    if report.status == ThreadStatus::Completed && !args.virtual_time {
        run.wait_all_ended_blocking();
    }
    let stored = stored_run(engine, &report);
    // Stop accepting inputs before the engine that executes them stops.
    drop(listening);
    // Shutting down flushes the event bus, so that both event readers reach their end.
    engine.shutdown_blocking(GRACE);
    if let Some(gate) = gate {
        gate.clear();
    }
    let recorded = record.map_or(Ok(()), record::Record::finish);
    let is_left = report.status == ThreadStatus::Failed && engine.store().is_some();
    let was_interrupted = (report.status == ThreadStatus::Cancelled || is_left) && interrupt.was_heard();
    if let Some(shown) = shown {
        shown.finish(&report, was_interrupted);
    }
    let failures = failures.flatten().and_then(|failures| failures.join().ok());
    // The error of a failed run names its causes.
    if report.status == ThreadStatus::Completed {
        failures.iter().flatten().for_each(|failure| say(failure));
    }
    recorded.map_err(|error| Failure::usage("WRITE_FAILED", format!("cannot write the events: {error}")))?;
    if report.status != ThreadStatus::Completed && args.virtual_time && !args.quiet && !was_interrupted {
        let seed = args.seed.unwrap_or(0);
        say(&format!("to repeat this run: --virtual-time --seed {seed}"));
    }
    if was_interrupted && let Some(place) = place {
        say_resumable(run.run_id(), place);
    }
    if report.status == ThreadStatus::Cancelled
        && let Some(failure) = unanswered.failure()
    {
        return match args.output {
            Output::Json => print(
                (args.output, args.quiet),
                &report,
                stored,
                Some(&asked),
                was_interrupted,
            ),
            Output::Text => Err(failure),
        };
    }
    print(
        (args.output, args.quiet),
        &report,
        stored,
        Some(&asked),
        was_interrupted,
    )
}

/// Puts the run into the store, for another process to execute.
fn detach(prepared: RunBuilder, engine: &Engine, output: Output) -> Result<ExitCode, Failure> {
    let put = block_on(prepared.enqueue());
    engine.shutdown_blocking(GRACE);
    let run_id = put.map_err(|error| not_resumed(&error))?;
    Ok(match output {
        Output::Json => answer(&json_text(json!({"ok": true, "runId": run_id})), 0),
        Output::Text => answer(&format!("{run_id}\n"), 0),
    })
}

/// Returns which replies are shown.
fn replies(args: &Args) -> Replies {
    match (args.stream, args.no_stream) {
        (_, true) => Replies::Never,
        (true, false) => Replies::Always,
        (false, false) => Replies::OnTerminal,
    }
}

/// Prints the result. `stored` is the entry of a durable run.
fn print(
    (output, is_quiet): (Output, bool),
    report: &RunReport,
    stored: Option<StoredRun>,
    asked: Option<&RunFacts>,
    was_interrupted: bool,
) -> Result<ExitCode, Failure> {
    let code = match (was_interrupted, report.status) {
        (true, _) => INTERRUPTED,
        (false, ThreadStatus::Completed) => 0,
        (false, ThreadStatus::Timeout) => TIMED_OUT,
        (false, _) => FAILED,
    };
    let stored = match (output, stored) {
        // As `runs show` prints it, because the run can be resumed from this state.
        (Output::Json, Some(StoredRun::Released(view))) => return Ok(answer(&json_text(view.to_json()), code)),
        (_, Some(StoredRun::Entry(run))) => Some(run),
        (Output::Text, Some(StoredRun::Released(_))) | (_, None) => None,
    };
    match (output, &report.error) {
        (Output::Json, _) => {
            let text = serde_json::to_string_pretty(&ReportOutput {
                report,
                steps: stored.as_ref().map(|run| run.steps),
                forked_from: stored
                    .and_then(|run| run.base)
                    .map(|base| json!({"runId": base.run, "step": base.step})),
                format_version: FORMAT_VERSION,
            });
            let text = text.map_err(|error| Failure::failed("WRITE_FAILED", error.to_string()))?;
            Ok(answer(&format!("{text}\n"), code))
        }
        (Output::Text, None) => Ok(answer(&plain(&report.output), code)),
        // The last line of the progress has reported the interruption already.
        (Output::Text, Some(_)) if was_interrupted => {
            if is_quiet {
                say("interrupted");
            }
            Ok(ExitCode::from(code))
        }
        (Output::Text, Some(error)) => Err(explained(report.status, error, asked).exiting(code)),
    }
}

/// A report in the format of the JSON output.
#[derive(serde::Serialize)]
struct ReportOutput<'a> {
    #[serde(flatten)]
    report: &'a RunReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    #[serde(rename = "forkedFrom", skip_serializing_if = "Option::is_none")]
    forked_from: Option<Value>,
    #[serde(rename = "formatVersion")]
    format_version: u32,
}

/// Formats an output: a string unchanged, any other value as JSON.
fn plain(output: &Value) -> String {
    match output {
        Value::String(text) => format!("{text}\n"),
        other => format!("{other:#}\n"),
    }
}

/// Facts about the requested run, to explain its failure.
struct RunFacts {
    missing_input: MissingInput,
    sources: Vec<SourceFile>,
    checked: CheckedFiles,
}

fn explained(status: ThreadStatus, error: &RunError, asked: Option<&RunFacts>) -> Failure {
    let mut text = format!("the run ended {}: {error}", status.as_str());
    let causes = || std::iter::successors(Some(error), |error| error.cause.as_ref());
    for cause in causes().skip(1) {
        text.push_str("\n  caused by ");
        text.push_str(&cause.to_string());
    }
    let mut failure = Failure::failed(error.code.as_str(), text);
    if let Some(asked) = asked
        && let Some(place) = asked.checked.place_of(error)
    {
        failure = failure.shown_at(&asked.sources, &place);
    }
    let hint = asked.and_then(|asked| asked.missing_input.hint(causes().map(|cause| cause.code)));
    match hint
        .or_else(|| causes().last().and_then(advice::of_model))
        .or_else(|| advice::advice(error))
        .or_else(|| causes().last().and_then(advice::advice))
    {
        Some(hint) => failure.with_help(hint),
        None => failure,
    }
}

/// Returns the tools that LLM nodes name and that no source provides, each with its node.
fn unknown_tools(checked: &CheckedFiles, tools: &ToolRegistry) -> Vec<(String, String)> {
    let nodes = checked.graphs().iter().flat_map(|graph| &graph.nodes);
    let named = nodes.filter_map(|node| match &node.kind {
        NodeKind::Llm(llm) => Some((node, &llm.tools)),
        _other => None,
    });
    let each = named.flat_map(|(node, names)| names.iter().map(move |name| (node.id.to_string(), name.to_string())));
    let unknown = each
        .filter(|(_, name)| !tools.has(ToolEntry::name_in(name)) && BuiltInTool::of_name(name).is_none())
        // A workflow that does not exist is an error of the definition.
        .filter(|(_, name)| workflow_of_tool(ToolEntry::name_in(name)).is_none());
    let shown = |(node, name): (String, String)| (node, ToolEntry::name_in(&name).to_owned());
    unknown.map(shown).collect()
}

fn uses_a_model(checked: &CheckedFiles) -> bool {
    let mut nodes = checked.graphs().iter().flat_map(|graph| &graph.nodes);
    nodes.any(|node| matches!(node.kind, NodeKind::Llm(_)))
}
