//! Validation of inputs: a value that is nested too deeply is rejected before it is recorded.

use pirn_definition::error::RunError;
use pirn_definition::value::{MAX_LEVELS, TOO_DEEP, has_too_deep, is_too_deep, too_deep};

use super::data::message::{Message, ToSupervisor, ToThread};
use crate::thread::{Input, Outcome};

impl Message {
    /// Enforces [`MAX_LEVELS`], and returns the name of the rejected part. An outcome with a deeper value becomes a failure; a
    /// deeper event or pinned value is removed.
    #[inline]
    pub fn limit_levels(&mut self) -> Option<&'static str> {
        match self {
            Self::Thread(_, ToThread::Input(Input::Answer { outcome, .. })) => {
                let refused = deep_part(outcome)?;
                // Replaced, not removed: the thread waits for an answer to this effect.
                *outcome = Outcome::Failed(refusal(refused));
                Some(refused)
            }
            Self::Supervisor(ToSupervisor::Raise(events)) => {
                let all = events.len();
                events.retain(|event| !event.is_too_deep());
                (events.len() < all).then_some("the data of an event")
            }
            Self::Supervisor(ToSupervisor::Pin(_, value)) if is_too_deep(value) => {
                // The caller records the message and passes it on, so that one without effect takes its place.
                *self = Self::Supervisor(ToSupervisor::Raise(Vec::new()));
                Some("a pinned value")
            }
            _ => None,
        }
    }
}

fn refusal(what: &str) -> RunError {
    let mut error = RunError::from(too_deep());
    error.message = format!("{what}: {TOO_DEEP}");
    error
}

/// Returns the name of the part of an outcome that is nested too deeply.
fn deep_part(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Value(value) => is_too_deep(value).then_some("the result"),
        // The log lines are text and have no levels.
        Outcome::Logged(logged) => deep_part(&logged.outcome),
        Outcome::Reply(reply) => {
            if reply.tool_calls.iter().any(|call| is_too_deep(&call.arguments)) {
                return Some("the arguments of a tool call");
            }
            let metadata = reply.metadata.as_ref();
            metadata
                .is_some_and(has_too_deep)
                .then_some("the metadata of a model's reply")
        }
        Outcome::NeedsConsent(request) => {
            if is_too_deep(&request.arguments) {
                return Some("the arguments of a tool call");
            }
            is_too_deep(&request.schema).then_some("the schema of a tool's arguments")
        }
        Outcome::Answered(answer) => is_too_deep(&answer.answer).then_some("the answer"),
        Outcome::Event { event, .. } => (event.levels() > MAX_LEVELS).then_some("the event"),
        Outcome::Done
        | Outcome::Choice(_)
        | Outcome::Texts(_)
        | Outcome::Prepared(_)
        | Outcome::Tool(_)
        | Outcome::Summarize(..)
        | Outcome::Joined(_)
        | Outcome::Child { .. }
        | Outcome::Elapsed
        | Outcome::HeldByFiring(_)
        | Outcome::Failed(_) => None,
    }
}
