//! Inputs that commands send to a run of a store, whichever process owns the run.

use futures::executor::block_on;
use pirn::{CommandOutcome, Engine, RunCommand, When};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::store::not_resumed;

/// A request to a run; also the message to the process that has the store open.
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
    /// Ends the run.
    Cancel { run_id: String, reason: String },
}

impl Request {
    /// Sends the request to the run, which this engine executes or has in its store. The input is durable when this returns.
    pub(super) fn send(self, engine: &Engine) -> Result<CommandOutcome, Failure> {
        block_on(engine.send_command(self.run_id(), &self.command())).map_err(|error| not_resumed(&error))
    }

    fn run_id(&self) -> &str {
        match self {
            Self::Answer { run_id, .. }
            | Self::Emit { run_id, .. }
            | Self::Say { run_id, .. }
            | Self::Cancel { run_id, .. } => run_id,
        }
    }

    fn command(&self) -> RunCommand {
        match self.clone() {
            Self::Answer {
                interaction_id,
                answer,
                by,
                ..
            } => RunCommand::Answer {
                interaction_id,
                answer,
                by,
            },
            Self::Emit { name, data, .. } => RunCommand::Emit { name, data },
            Self::Say { id, text, when, .. } => RunCommand::Say { id, text, when },
            Self::Cancel { reason, .. } => RunCommand::Cancel { reason },
        }
    }
}
