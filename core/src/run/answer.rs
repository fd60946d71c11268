//! Answers of people: validated against the question, and accepted once.

use pirn_definition::value::{SchemaMismatch, TooDeep, is_too_deep};
use serde_json::Value;

use super::data::message::{Message, ToThread};
use super::state::RunMachine;
use crate::thread::{ClientCall, ConsentAnswer, Input, Interaction, InvalidAnswer, Outcome, PersonsAnswer};

/// Validates a value (second) against a JSON Schema (first).
pub type Fits = fn(&Value, &Value) -> Result<(), SchemaMismatch>;

/// Reason that an answer was rejected. An open question stays open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerRefused {
    /// No question with this id is open: it was answered, withdrawn, or never raised.
    #[error("no open question has this id: it was answered or withdrawn, or never existed")]
    NotOpen,
    /// The answer does not fit the question.
    #[error("invalid answer: {reason}")]
    Invalid {
        /// Explanation, one sentence.
        reason: String,
    },
    /// The run's store failed, or the run left this process, before the answer was durable. The answer may or may not have been
    /// stored: the resumed run shows whether the question is still open.
    #[error("the answer may be lost: {reason}")]
    NotKept {
        /// Explanation, one sentence.
        reason: String,
    },
}

impl AnswerRefused {
    /// Returns the refusal for an error of the store, or of the run, that prevented the answer from becoming durable.
    pub fn not_kept(error: &pirn_definition::error::RunError) -> Self {
        Self::NotKept {
            reason: error.to_string(),
        }
    }

    /// Returns a stable code: `INTERACTION_CLOSED`, `INVALID_ANSWER` or `STORE_ERROR`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotOpen => "INTERACTION_CLOSED",
            Self::Invalid { .. } => "INVALID_ANSWER",
            Self::NotKept { .. } => "STORE_ERROR",
        }
    }
}

impl RunMachine {
    /// Converts a person's answer to the message for the run.
    ///
    /// # Errors
    /// Returns an error if the question is not open or the answer does not fit it.
    pub fn accept_answer(&self, id: &str, answer: PersonsAnswer, fits: Fits) -> Result<Message, AnswerRefused> {
        // Nothing changes here: the caller records the message first, and the run takes it in order with its other inputs.
        let (thread, effect, interaction) = self.interaction(id).ok_or(AnswerRefused::NotOpen)?;
        check_answer(&interaction, &answer.answer, fits).map_err(|why| AnswerRefused::Invalid {
            reason: why.to_string(),
        })?;
        let outcome = Outcome::Answered(answer);
        Ok(Message::Thread(
            thread,
            ToThread::Input(Input::Answer { effect, outcome }),
        ))
    }
}

/// Checks that an answer fits its question.
///
/// # Errors
/// Returns the reason that the answer is refused.
pub fn check_answer(interaction: &Interaction, answer: &Value, fits: Fits) -> Result<(), InvalidAnswer> {
    // Refused here, so that the person can answer again: `Message::limit_levels` would answer the question with a failure.
    if is_too_deep(answer) {
        return Err(TooDeep.into());
    }
    interaction.check_choice(answer)?;
    // A consent is validated against the tool's schema, and only if the person changed the arguments.
    if let Some(tool) = &interaction.tool {
        return match ConsentAnswer::read(answer)? {
            ConsentAnswer::Allow(Some(edited)) => Ok(fits(&tool.schema, &edited)?),
            ConsentAnswer::Allow(None) | ConsentAnswer::Refuse(_) => Ok(()),
        };
    }
    if interaction.client_tool.is_some() {
        return ClientCall::read(answer).map(drop);
    }
    match &interaction.schema {
        Some(schema) => Ok(fits(&Value::Object((**schema).clone()), answer)?),
        None => Ok(()),
    }
}
