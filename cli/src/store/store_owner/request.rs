//! Inputs that commands send to a run of a store, whichever process owns the run, and requests to the store.

use std::path::PathBuf;

use futures::executor::block_on;
use pirn::store::{RunFilter, Store};
use pirn::{AnswerRefused, CommandOutcome, Engine, Interaction, RunCommand, When};
use pirn_definition::definition::PinSection;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::output::failure::Failure;
use crate::store::{latest, not_resumed, refused, shown};

/// A request to a run or to the store; also the message to the process that has the store open.
#[derive(Clone, Serialize, Deserialize)]
#[serde(
    tag = "do",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(crate) enum Request {
    /// Answers a question.
    Answer {
        run_id: String,
        interaction_id: String,
        answer: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Raises a CUSTOM event.
    Emit {
        run_id: String,
        name: String,
        #[serde(default)]
        data: Map<String, Value>,
    },
    /// Sends a message to the run's model.
    Say {
        run_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        text: String,
        #[serde(default)]
        when: When,
    },
    /// Pauses the run, or ends its pause.
    Pause { run_id: String, end: bool },
    /// Sets a section of the pinned context.
    Pin {
        run_id: String,
        section: PinSection,
        value: Value,
    },
    /// Ends the run.
    Cancel { run_id: String, reason: String },
    /// Writes a copy of the store to a file.
    BackUp { file: PathBuf },
    /// Lists runs of the store.
    List(ListedRuns),
}

/// The runs that a list has.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListedRuns {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workflow: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
}

impl ListedRuns {
    /// Reads the runs, the oldest first.
    pub(crate) fn read(&self, store: &dyn Store) -> Result<Vec<Value>, Failure> {
        let filter = RunFilter {
            status: self.status.clone(),
            session: self.session.clone(),
            workflow: self.workflow.clone(),
            ..RunFilter::default()
        };
        let runs = latest(store, filter, self.limit.unwrap_or(usize::MAX))?;
        Ok(runs.iter().map(shown).collect())
    }
}

impl Request {
    /// Sends the request to the run, which this engine executes or has in its store. The input is durable when this returns.
    pub(super) fn send(self, engine: &Engine) -> Result<CommandOutcome, Failure> {
        let (run_id, command) = match self {
            Self::Answer {
                run_id,
                interaction_id,
                answer,
                by,
            } => {
                let interaction_id = question_of(engine, &run_id, interaction_id)?;
                let answer = RunCommand::Answer {
                    interaction_id,
                    answer,
                    by,
                };
                (run_id, answer)
            }
            Self::Emit { run_id, name, data } => (run_id, RunCommand::Emit { name, data }),
            Self::Say { run_id, id, text, when } => (run_id, RunCommand::Say { id, text, when }),
            Self::Cancel { run_id, reason } => (run_id, RunCommand::Cancel { reason }),
            Self::Pause { run_id, end: false } => (run_id, RunCommand::Pause),
            Self::Pause { run_id, end: true } => (run_id, RunCommand::Unpause),
            Self::Pin { run_id, section, value } => (run_id, RunCommand::Pin { section, value }),
            Self::BackUp { file } => {
                let store = engine
                    .store()
                    .ok_or_else(|| Failure::failed("NO_STORE", "the process has no store"))?;
                block_on(store.back_up(&file)).map_err(|error| refused(&error))?;
                return Ok(CommandOutcome::Kept);
            }
            // The answer to this request is a list, which `ListedRuns::read` returns.
            Self::List(_) => return Ok(CommandOutcome::Kept),
        };
        block_on(engine.send_command(&run_id, &command)).map_err(|error| not_resumed(&error))
    }

    /// True for a request that may take long: others are answered meanwhile.
    #[cfg(unix)]
    pub(super) fn is_long(&self) -> bool {
        matches!(self, Self::BackUp { .. })
    }
}

/// Maximum number of open questions that an error lists.
const MAX_LISTED: usize = 5;

/// Returns the id of the question that `named` names: an id, or the node of the only open question of that node.
fn question_of(engine: &Engine, run_id: &str, named: String) -> Result<String, Failure> {
    let open = match engine.find(run_id) {
        Some(run) => block_on(run.interactions()),
        // An unknown run is reported by the command itself.
        None => block_on(engine.view(run_id, None)).map_or_else(|_| Vec::new(), |view| view.interactions),
    };
    if open.is_empty() || open.iter().any(|question| question.id == named) {
        return Ok(named);
    }
    let of_node = |question: &&Interaction| *question.node_id == *named;
    let listed = |questions: &[&Interaction]| {
        let each = questions.iter().take(MAX_LISTED);
        let each = each.map(|question| format!("{} (node {}): {}", question.id, question.node_id, question.question));
        each.collect::<Vec<_>>().join("; ")
    };
    match open.iter().filter(of_node).collect::<Vec<_>>()[..] {
        [one] => Ok(one.id.clone()),
        [] => {
            let refused = AnswerRefused::NotOpen;
            let help = format!(
                "`{named}` is neither the id of an open question nor its node; open: {}",
                listed(&open.iter().collect::<Vec<_>>())
            );
            Err(Failure::failed(refused.code(), refused.to_string()).with_help(help))
        }
        ref several => {
            let message = format!("the node `{named}` has {} open questions", several.len());
            Err(Failure::failed("SEVERAL_QUESTIONS", message)
                .with_help(format!("name one by its id: {}", listed(several))))
        }
    }
}
