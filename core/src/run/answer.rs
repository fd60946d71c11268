//! Answers of people: checked against what was asked, and taken once.

use std::fmt;

use serde_json::Value;

use super::RunMachine;
use super::message::{Message, ToThread};
use crate::thread::{ConsentAnswer, Input, Interaction, Outcome, PersonsAnswer};
use crate::value::{TOO_DEEP, is_too_deep};

/// Checks a value (the second) against a JSON Schema (the first); one sentence where it does not fit.
pub type Fits = fn(&Value, &Value) -> Result<(), String>;

/// Why an answer was not taken. The question, where there is one, stays open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerRefused {
    /// No question of that id waits: it was answered, withdrawn, or never asked.
    NotOpen,
    /// The answer is not what the question asks for.
    Invalid {
        /// One sentence.
        reason: String,
    },
    /// The run's store failed, or the run left this process, before the answer was durable. Whether it counts shows when the
    /// run goes on.
    NotKept {
        /// One sentence.
        reason: String,
    },
}

impl AnswerRefused {
    /// A stable code: `INTERACTION_CLOSED`, `INVALID_ANSWER` or `STORE_ERROR`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotOpen => "INTERACTION_CLOSED",
            Self::Invalid { .. } => "INVALID_ANSWER",
            Self::NotKept { .. } => "STORE_ERROR",
        }
    }
}

impl fmt::Display for AnswerRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpen => f.write_str("no question of this id waits: it was answered, withdrawn, or never asked"),
            Self::Invalid { reason } => write!(f, "invalid answer: {reason}"),
            Self::NotKept { reason } => write!(f, "the answer may be lost: {reason}"),
        }
    }
}

impl std::error::Error for AnswerRefused {}

impl RunMachine {
    /// The message that a person's answer to the question of this id is.
    ///
    /// # Errors
    /// The question does not wait, or the answer is not what it asks for.
    pub fn accept_answer(&self, id: &str, answer: PersonsAnswer, fits: Fits) -> Result<Message, AnswerRefused> {
        let (thread, effect, interaction) = self.interaction(id).ok_or(AnswerRefused::NotOpen)?;
        check(&interaction, &answer.answer, fits).map_err(|reason| AnswerRefused::Invalid { reason })?;
        let outcome = Outcome::Answered(answer);
        Ok(Message::Thread(
            thread,
            ToThread::Input(Input::Answer { effect, outcome }),
        ))
    }
}

fn check(interaction: &Interaction, answer: &Value, fits: Fits) -> Result<(), String> {
    if is_too_deep(answer) {
        return Err(TOO_DEEP.to_string());
    }
    interaction.check_choice(answer)?;
    if let Some(tool) = &interaction.tool {
        return match ConsentAnswer::read(answer)? {
            ConsentAnswer::Allow(Some(edited)) => fits(&tool.schema, &edited),
            ConsentAnswer::Allow(None) | ConsentAnswer::Refuse(_) => Ok(()),
        };
    }
    match &interaction.schema {
        Some(schema) => fits(&Value::Object((**schema).clone()), answer),
        None => Ok(()),
    }
}
