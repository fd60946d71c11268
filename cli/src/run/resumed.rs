//! Runs that this process resumes: `pirn runs resume`, `pirn runs fork`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use clap::ArgGroup;
use futures::executor::block_on;
use futures::future::FutureExt;
use pirn::check::{CheckedFiles, SourceFile, World, check};
use pirn::store::{Run, RunFilter, Store};
use pirn::{DoubtAnswer, Engine, ResumeBuilder, RunReport, ThreadStatus};
use pirn_definition::definition::json_from_str;
use serde_json::{Value, json};

use super::inputs::check_run_id;
use super::progress::{self, Replies, Style};
use super::questions::asking::Asking;
use super::questions::consent::{self, Approve};
use super::questions::elicitation;
use super::questions::named_value::answered_once;
use super::questions::prompt_gate::PromptGate;
use super::questions::{self, Ask, UnansweredQuestion};
use super::{
    BUFFER, GRACE, StoredRun, WrittenAnswer, check_answers, named_answer, print, say_resumable, stored_run, unbuilt,
};
use crate::config::ConfigFile;
use crate::output::failure::Failure;
use crate::output::terminal::{FAILED, Output, answer, json_text, say, say_run};
use crate::process::interrupt::{self, Interrupt};
use crate::process::scripts::Level;
use crate::store::place::{Place, StoreArgs};
use crate::store::store_owner;
use crate::store::{all, config_key, config_of, new_run_id, not_resumed, refused, run_of};
use crate::{files, tools};

/// The arguments of a resumed run.
#[derive(clap::Args)]
struct Going {
    #[command(flatten)]
    config: ConfigFile,
    /// Which tool calls wait for a person's consent
    #[arg(long, value_enum, default_value_t = Approve::Ask, value_name = "WHICH")]
    approve: Approve,
    /// Isolation of JavaScript
    #[arg(long, value_enum, default_value_t, value_name = "WHERE")]
    scripts: Level,
    /// Decision on a call that was in progress when the process ended, if its `inDoubt` is `ask`
    #[arg(long, value_enum, value_name = "WHAT")]
    in_doubt: Option<Decided>,
    /// Answer to the questions of a node (USER_INTERACTION, or consent to its tool calls): JSON or a string (repeatable)
    #[arg(long, value_name = "NODE=ANSWER", value_parser = named_answer)]
    answer: Vec<(String, WrittenAnswer)>,
    /// No progress on stderr
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Decided {
    /// Repeat the call, with its idempotency key
    Repeat,
    /// Treat the call as failed
    Fail,
}

/// Arguments of `pirn runs resume`.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("resumed").required(true).args(["id", "all"]))]
pub(crate) struct Resume {
    /// The run
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Every run that has not ended
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    going: Going,
}

/// Arguments of `pirn runs fork`.
#[derive(clap::Args)]
pub(crate) struct Fork {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// The last step that both share
    #[arg(long, value_name = "STEP")]
    at: u64,
    /// Id of the new run (default: a generated id)
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// A variable of the main thread to assign at the fork
    #[arg(long = "set", value_name = "NAME=JSON", value_parser = assigned)]
    assigned: Vec<(String, Value)>,
    /// Input of the new run, JSON (default: that of the original)
    #[arg(long, value_name = "JSON", value_parser = json_of)]
    input: Option<Value>,
    /// Workflow file for the new run, consistent with the shared steps (default: the original's definition)
    #[arg(long, value_name = "FILE")]
    workflow: Option<String>,
    #[command(flatten)]
    going: Going,
}

fn json_of(text: &str) -> Result<Value, String> {
    json_from_str(text).map_err(|error| error.to_string())
}

fn assigned(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=JSON")?;
    Ok((name.to_owned(), json_of(value)?))
}

impl Going {
    fn ask(asking: Option<&Asking>, place: &Place, is_of_many: bool) -> Ask {
        match (asking.cloned(), is_of_many) {
            (Some(asking), true) => Ask::TerminalOfMany(asking),
            (Some(asking), false) => Ask::Terminal(asking),
            (None, _) => Ask::Elsewhere(place.arguments()),
        }
    }

    /// Builds an engine over the store, with the workflows and the config of these runs.
    fn engine(&self, store: Arc<dyn Store>, runs: &[Run], asking: Option<&Asking>) -> Result<Engine, Failure> {
        let mut config_at = None;
        for run in runs {
            config_at = config_at.or(config_of(&*store, &run.id)?);
        }
        let is_known = config_at.is_some();
        let config = self.config.read_or(config_at);
        let config = config.map_err(|failure| failure.with_help("name the config of the runs: --profiles FILE"))?;
        let is_known = is_known || config.is_some();
        let config = config.unwrap_or_default();
        let mut tools = tools::registry(config.tools)?;
        consent::set(&mut tools, self.approve);
        if let Some(asking) = asking {
            elicitation::set(&mut tools, asking);
        }
        let mut builder = Engine::builder()
            .profiles(config.profiles)
            .tools(tools)
            .scripts(self.scripts.port())
            // Loaded workflows are the definitions that the runs started with: a schedule in an old version must not start runs.
            .schedules(false)
            .shared_store(store);
        if let Some(decided) = self.in_doubt {
            let answer = match decided {
                Decided::Repeat => DoubtAnswer::Repeat,
                Decided::Fail => DoubtAnswer::Fail,
            };
            builder = builder.ask_in_doubt(move |_| std::future::ready(answer.clone()).boxed());
        }
        let engine = builder.build().map_err(|error| unbuilt(&error))?;
        answered_once(&self.answer)?;
        let mut loaded = BTreeSet::new();
        let mut definitions = Vec::new();
        for run in runs {
            let text = block_on(engine.definition_of(&run.id)).map_err(|error| not_resumed(&error))?;
            if !loaded.insert(Arc::clone(&text)) {
                continue;
            }
            // The store may have runs of several versions of a file: each run resumes with the version that it started with.
            let definition = SourceFile::new("the run's definition", &*text);
            engine.load_files(std::slice::from_ref(&definition)).map_err(|faults| {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                let failure = Failure::failed("INVALID_WORKFLOW", faults.join("\n"));
                if is_known {
                    failure
                } else {
                    failure.with_help("the store has no config of the run: name it with --profiles FILE")
                }
            })?;
            definitions.push(definition);
        }
        self.check_answers_to(&definitions)?;
        Ok(engine)
    }

    /// Refuses answers to nodes without questions in these definitions.
    fn check_answers_to(&self, definitions: &[SourceFile]) -> Result<(), Failure> {
        if self.answer.is_empty() {
            return Ok(());
        }
        let each = definitions.iter();
        let checked: Vec<CheckedFiles> = each
            .map(|definition| check(std::slice::from_ref(definition), &World::default()))
            .collect();
        // The nodes of a definition without graphs are unknown.
        if checked.is_empty() || checked.iter().any(|checked| checked.graphs().is_empty()) {
            return Ok(());
        }
        let graphs: Vec<_> = checked.iter().flat_map(CheckedFiles::graphs).cloned().collect();
        check_answers(&self.answer, &graphs)
    }

    /// Resumes one run, waits until it ends, and prints its result.
    fn one(
        &self,
        engine: &Engine,
        mut builder: ResumeBuilder,
        (gate, asking): (&PromptGate, Option<&Asking>),
        (place, output, interrupt): (&Place, Output, &Interrupt),
    ) -> Result<ExitCode, Failure> {
        let run_id = builder.run_id().to_owned();
        if !self.quiet {
            say_run(&run_id);
        }
        let seen = block_on(engine.view(&run_id, None)).map_err(|error| not_resumed(&error))?;
        let style = Style::suiting(false, Replies::OnTerminal, false);
        let shown = (!self.quiet).then(|| {
            let events = builder.blocking_events_after(seen.events.len() as u64, &style.types(), BUFFER);
            progress::start(events, style, gate.clone(), None, seen.events)
        });
        let listening = store_owner::listen(place, engine, self.quiet);
        interrupt.expects_a_run();
        let (give, refused) = questions::answers(
            engine,
            self.answer.iter().cloned().collect(),
            Self::ask(asking, place, false),
            &UnansweredQuestion::default(),
        );
        let run = block_on(builder.answers(give, refused).start()).map_err(|error| not_resumed(&error))?;
        interrupt.stops_durable(&run);
        let report = run.outcome_blocking();
        if report.status == ThreadStatus::Completed {
            run.wait_all_ended_blocking();
        }
        let stored = stored_run(engine, &report);
        drop(listening);
        engine.shutdown_blocking(GRACE);
        let was_interrupted = interrupt.was_heard();
        if let Some(shown) = shown {
            shown.finish(&report, was_interrupted);
        }
        if matches!(stored, Some(StoredRun::Released(_))) {
            say_resumable(&run_id, place);
        }
        print((output, self.quiet), &report, stored, None, was_interrupted)
    }
}

impl Resume {
    pub(crate) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let at = store.place()?;
        let store = store.open()?;
        let interrupt = interrupt::listen();
        let gate = PromptGate::default();
        let asking = Asking::start(&gate);
        let asking = asking.as_ref();
        if let Some(id) = &self.id {
            let run = run_of(&*store, id)?;
            let engine = self.going.engine(store, &[run], asking)?;
            let builder = engine.resume(id.as_str());
            return self
                .going
                .one(&engine, builder, (&gate, asking), (&at, output, &interrupt));
        }
        let runs = all(&*store, &RunFilter::live())?;
        let engine = self.going.engine(store, &runs, asking)?;
        let listening = store_owner::listen(&at, &engine, self.going.quiet);
        let given = self.going.answer.iter().cloned().collect();
        let (give, refused) = questions::answers(
            &engine,
            given,
            Going::ask(asking, &at, true),
            &UnansweredQuestion::default(),
        );
        let (give, refused) = (Arc::new(give), Arc::new(refused));
        let recovering = engine.recover_each(|run| {
            let (give, refused) = (Arc::clone(&give), Arc::clone(&refused));
            run.answers(
                move |question| give(question),
                move |question, error| refused(question, error),
            )
        });
        let resumed = block_on(recovering).map_err(|error| not_resumed(&error))?;
        let mut ended = Vec::with_capacity(resumed.len());
        for (run_id, resumed) in resumed {
            let report = resumed.map(|run| {
                let report = run.outcome_blocking();
                if report.status == ThreadStatus::Completed {
                    run.wait_all_ended_blocking();
                }
                report
            });
            ended.push((run_id, report.map_err(|error| (error.code(), error.to_string()))));
        }
        drop(listening);
        engine.shutdown_blocking(GRACE);
        Ok(print_all(&ended, output))
    }
}

type Ended = (String, Result<Arc<RunReport>, (&'static str, String)>);

fn print_all(ended: &[Ended], output: Output) -> ExitCode {
    let is_fine = |(_, report): &Ended| {
        report
            .as_ref()
            .is_ok_and(|report| report.status == ThreadStatus::Completed)
    };
    let code = if ended.iter().all(is_fine) { 0 } else { FAILED };
    let errors = ended.iter().filter_map(|(run_id, report)| {
        let report = report.as_ref().ok()?;
        Some(format!(
            "run {run_id} ended {}: {}",
            report.status.as_str(),
            report.error.as_ref()?
        ))
    });
    if output == Output::Text {
        errors.for_each(|error| say(&error));
    }
    let text = match output {
        Output::Json => {
            let each = ended.iter().map(|(run_id, report)| match report {
                Ok(report) => json!(report),
                Err((code, message)) => json!({"runId": run_id, "error": {"code": code, "message": message}}),
            });
            json_text(json!({ "runs": each.collect::<Vec<_>>() }))
        }
        Output::Text => {
            let each = ended.iter().map(|(run_id, report)| match report {
                Ok(report) => format!("{run_id} {}\n", report.status.as_str()),
                Err((_, message)) => format!("{run_id} not resumed: {message}\n"),
            });
            each.collect()
        }
    };
    answer(&text, code)
}

impl Fork {
    pub(crate) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let at = store.place()?;
        let store = store.open()?;
        let interrupt = interrupt::listen();
        let run = run_of(&*store, &self.id)?;
        let config_at = config_of(&*store, &run.id)?;
        let definition = self.workflow.as_deref().map(files::read_named).transpose()?;
        let gate = PromptGate::default();
        let asking = Asking::start(&gate);
        let asking = asking.as_ref();
        let engine = self.going.engine(store, &[run], asking)?;
        let mut fork = engine.fork(self.id.as_str(), self.at);
        for (name, value) in &self.assigned {
            fork = fork.set(name.as_str(), value.clone());
        }
        if let Some(input) = &self.input {
            fork = fork.input(input.clone());
        }
        if let Some(definition) = definition {
            fork = fork.definition(definition);
        }
        if let Some(id) = &self.run_id {
            check_run_id(id)?;
        }
        let id = self.run_id.clone().unwrap_or_else(new_run_id);
        if let (Some(store), Some(config_at)) = (engine.store(), config_at) {
            let config_at = config_at.display().to_string();
            block_on(store.set_meta(&config_key(&id), Some(config_at))).map_err(|error| refused(&error))?;
        }
        let builder = block_on(fork.make(id)).map_err(|error| not_resumed(&error))?;
        self.going
            .one(&engine, builder, (&gate, asking), (&at, output, &interrupt))
    }
}
