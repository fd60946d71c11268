//! Commands that only read a store: list, show, explain, events, diff.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use futures::executor::block_on;
use pirn::{Engine, ResumeError, RunView, Step};
use serde_json::{Value, json};

use crate::output::failure::Failure;
use crate::output::terminal::{Output, answer, counted, json_text, say, shell_quoted, table};
use crate::store::place::StoreArgs;
use crate::store::store_owner::{ListedRuns, list_runs};
use crate::store::{close, not_resumed};

/// Arguments of `pirn runs list`.
#[derive(clap::Args)]
pub(super) struct List {
    /// List only runs with this status: UNFINISHED, WAITING, COMPLETED, FAILED, CANCELLED, TIMEOUT
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<String>,
    /// List only runs of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// List only runs of this workflow
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// List only the N runs that started last
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Print only the ids, one a line
    #[arg(long)]
    ids: bool,
}

pub(super) fn status(text: &str) -> Result<String, String> {
    let word = text.to_uppercase();
    let words: Vec<&str> = pirn::store::RunStatus::ALL
        .iter()
        .map(|status| status.as_str())
        .collect();
    if words.contains(&word.as_str()) {
        return Ok(word);
    }
    Err("expected one of UNFINISHED, WAITING, COMPLETED, FAILED, CANCELLED, TIMEOUT".to_owned())
}

impl List {
    /// Returns the notice for an empty list, with the filters that excluded the runs.
    fn nothing_found(&self) -> String {
        let filters = [
            ("--status", &self.status),
            ("--session", &self.session),
            ("--workflow", &self.workflow),
        ];
        let given = filters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let given: Vec<String> = given
            .map(|(name, value)| format!("{name} {}", shell_quoted(value)))
            .collect();
        if given.is_empty() {
            "the store has no runs".to_owned()
        } else {
            format!("no stored run matches {}", given.join(" "))
        }
    }

    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let wanted = ListedRuns {
            status: self.status.clone(),
            session: self.session.clone(),
            workflow: self.workflow.clone(),
            limit: self.limit.map(NonZeroUsize::get),
        };
        let runs = list_runs(store, &wanted)?;
        if runs.is_empty() && output == Output::Text && !self.ids {
            say(&self.nothing_found());
        }
        let text = match output {
            Output::Text if self.ids => runs
                .iter()
                .fold(String::new(), |text, run| text + word(run, "runId") + "\n"),
            Output::Json => json_text(json!({ "runs": runs })),
            Output::Text => table(
                &["RUN", "WORKFLOW", "STATUS", "STEPS", "WAITS FOR"],
                runs.iter().map(|run| {
                    let texts = ["runId", "workflowId", "status"].map(|name| word(run, name).to_owned());
                    let more = [run["steps"].to_string(), word(run, "waitingFor").to_owned()];
                    texts.into_iter().chain(more).collect()
                }),
            ),
        };
        Ok(answer(&text, 0))
    }
}

fn word<'r>(run: &'r Value, name: &str) -> &'r str {
    run[name].as_str().unwrap_or_default()
}

/// Arguments of `pirn runs show`.
#[derive(clap::Args)]
pub(super) struct Show {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// Show the state after this step
    #[arg(long, value_name = "STEP")]
    at: Option<u64>,
    /// List the steps
    #[arg(long)]
    history: bool,
    /// Write the run as a page into this file, which a browser shows without a service; with --at, the page opens at the step
    #[cfg(feature = "studio")]
    #[arg(long, value_name = "FILE", conflicts_with = "history")]
    html: Option<String>,
}

fn view(store: &StoreArgs, id: &str, at: Option<u64>) -> Result<RunView, Failure> {
    let engine = store.open_engine()?;
    let view = block_on(engine.view(id, at));
    close(&engine);
    view.map_err(|error| not_resumed(&error))
}

impl Show {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        #[cfg(feature = "studio")]
        if let Some(file) = &self.html {
            return super::page::write(store, &self.id, self.at, (file, output));
        }
        let engine = store.open_engine()?;
        let text = block_on(self.text(&engine, output));
        close(&engine);
        Ok(answer(&text.map_err(|error| not_resumed(&error))?, 0))
    }

    async fn text(&self, engine: &Engine, output: Output) -> Result<String, ResumeError> {
        let view = match engine.view(&self.id, self.at).await {
            Err(error @ ResumeError::EventsDropped { .. }) if self.at.is_none() && !self.history => {
                return reduced(engine, &self.id, output).await?.ok_or(error);
            }
            view => view?,
        };
        Ok(match (output, self.history) {
            (Output::Json, true) => json_text(json!({ "steps": view.history })),
            (Output::Json, false) => json_text(view.to_json()),
            (Output::Text, true) => history(&view.history),
            (Output::Text, false) => person(&view),
        })
    }
}

/// Returns the report of a run whose events were dropped.
async fn reduced(engine: &Engine, id: &str, output: Output) -> Result<Option<String>, ResumeError> {
    let store = engine.store().ok_or(ResumeError::NoStore)?;
    let Some(run) = store.run(id).await? else {
        return Ok(None);
    };
    let Some(mut report) = engine.report_without_events(&run).await? else {
        return Ok(None);
    };
    if let Some(session) = &run.session {
        report["session"] = json!(session);
    }
    Ok(Some(match output {
        Output::Json => json_text(report),
        Output::Text => {
            let message = report["error"].get("message").unwrap_or(&report["output"]);
            format!(
                "{id} of {}: {}, its events and steps were dropped\n{message:#}\n",
                run.workflow,
                run.status.as_str()
            )
        }
    }))
}

fn history(steps: &[Step]) -> String {
    table(
        &["STEP", "THREAD", "KIND", "NODE", "EFFECT", ""],
        steps.iter().map(|step| {
            let node = step.node_id.as_deref().unwrap_or("-").to_owned();
            let effect = step.effect_id.clone().unwrap_or_else(|| "-".to_owned());
            let repeated = if step.repeated { "repeated" } else { "" };
            let (number, kind) = (step.step.to_string(), step.kind.as_str().to_owned());
            vec![number, step.thread_id.clone(), kind, node, effect, repeated.to_owned()]
        }),
    )
}

fn person(view: &RunView) -> String {
    let report = &view.report;
    let status = view.to_json()["status"].as_str().unwrap_or_default().to_owned();
    let mut text = format!(
        "{} of {}: {status} after step {}\n",
        view.run.id, view.run.workflow, view.step
    );
    for node in &report.nodes {
        let _ = writeln!(
            text,
            "  {} {}",
            node.node_id,
            json!(node.status).as_str().unwrap_or_default()
        );
    }
    for question in &view.interactions {
        let _ = writeln!(
            text,
            "  waits for an answer: {} of {}: {}",
            question.id, question.node_id, question.question
        );
    }
    for message in &report.waiting_messages {
        let first = message.text.lines().next().unwrap_or_default();
        let _ = writeln!(text, "  message {} is not in the conversation: {first}", message.id);
    }
    for doubt in &report.in_doubt {
        let _ = writeln!(text, "  in doubt: {} of {}", doubt.effect_id, doubt.node_id);
    }
    if let Some(error) = &report.error {
        let _ = writeln!(text, "{error}");
    } else if !report.output.is_null() {
        let _ = writeln!(text, "{:#}", report.output);
    }
    text
}

/// Arguments of `pirn runs explain`.
#[derive(clap::Args)]
pub(super) struct Explain {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// Explain the run as of this step
    #[arg(long, value_name = "STEP")]
    at: Option<u64>,
}

impl Explain {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let explanation = view(store, &self.id, self.at)?.explain();
        let text = match output {
            Output::Json => json_text(json!({ "text": explanation })),
            Output::Text => explanation,
        };
        Ok(answer(&text, 0))
    }
}

/// Arguments of `pirn runs events`.
#[derive(clap::Args)]
pub(super) struct Events {
    /// The run
    #[arg(value_name = "ID")]
    id: String,
    /// List only events after this sequence number
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    after: u64,
}

impl Events {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let view = view(store, &self.id, None)?;
        let later = view.events.iter().filter(|event| event.sequence > self.after);
        let events: Vec<Value> = later.map(|event| event.to_json()).collect();
        let text = match output {
            Output::Json => json_text(json!({ "events": events })),
            Output::Text => events.iter().fold(String::new(), |mut text, event| {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{event}");
                text
            }),
        };
        Ok(answer(&text, 0))
    }
}

/// Arguments of `pirn runs diff`.
#[derive(clap::Args)]
pub(super) struct Diff {
    /// The first run
    #[arg(value_name = "A")]
    a: String,
    /// The second run
    #[arg(value_name = "B")]
    b: String,
}

impl Diff {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let engine = store.open_engine()?;
        let differ = block_on(engine.diff(&self.a, &self.b));
        close(&engine);
        let diff = differ.map_err(|error| not_resumed(&error))?;
        let text = match output {
            Output::Json => json_text(json!(diff)),
            Output::Text => {
                let next = |step: &Option<Step>| {
                    step.as_ref().map_or_else(
                        || "ends".to_owned(),
                        |step| format!("{} {}", step.step, step.kind.as_str()),
                    )
                };
                let same = if diff.outcome.equal {
                    "equal outcomes"
                } else {
                    "another outcome"
                };
                format!(
                    "{} in common, then {} and {}; {same}\n",
                    counted(diff.common_steps, "step"),
                    next(&diff.a),
                    next(&diff.b)
                )
            }
        };
        Ok(answer(&text, 0))
    }
}
