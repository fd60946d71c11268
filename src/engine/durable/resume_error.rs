//! Errors of runs that are resumed or inspected.

use pirn_core::run::{AnswerRefused, Diverged, MessageRefused};
use pirn_definition::definition::Fault;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_store::{RunStatus, StoreError};
use serde_json::json;

use super::doubt_question::DoubtQuestion;

/// Reasons why a run cannot be resumed or inspected. Its stored state is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The engine has no store.
    #[error("the engine has no store")]
    NoStore,
    /// The store failed or refused the request.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run has ended.
    #[error("run {run_id} has ended {}", status.as_str())]
    HasEnded {
        /// The run.
        run_id: String,
        /// The run's status.
        status: RunStatus,
    },
    /// This engine already owns the run.
    #[error("run {run_id} is in progress")]
    UnderWay {
        /// The run.
        run_id: String,
    },
    /// The run has fewer steps.
    #[error("run {run_id} has no step {step}; its last is {last}")]
    NoSuchStep {
        /// The run.
        run_id: String,
        /// The requested step.
        step: u64,
        /// The last step of the run.
        last: u64,
    },
    /// The run has made no such model request.
    #[error("run {run_id} has no model request {effect_id}")]
    NoSuchRequest {
        /// The run.
        run_id: String,
        /// The requested effect.
        effect_id: String,
    },
    /// No process executes the run, and the input is only for runs that are executed.
    #[error("no process executes run {run_id}: resume it first")]
    NotExecuted {
        /// The run.
        run_id: String,
    },
    /// The events and steps of the run were dropped: the store has its report only.
    #[error("the events and steps of run {run_id} were dropped; the store has its report only")]
    EventsDropped {
        /// The run.
        run_id: String,
    },
    /// The run's stored record cannot be read: it was written by another version.
    #[error("run {run_id}, {}: {why}", if *step == 0 { "its start record".to_owned() } else { format!("step {step}") })]
    Unreadable {
        /// The run.
        run_id: String,
        /// The step; 0 is the record of the start.
        step: u64,
        /// The reason.
        why: String,
    },
    /// The run's workflows do not compile in this engine, for example because a function is missing.
    #[error("the workflows of run {run_id} do not fit this engine{}", below(faults))]
    Definition {
        /// The run.
        run_id: String,
        /// The faults.
        faults: Vec<Fault>,
    },
    /// The run may call tools or profiles that this engine lacks and that were available when the run started.
    #[error("run {run_id} cannot be resumed: this process lacks {}", names.join(", "))]
    Missing {
        /// The run.
        run_id: String,
        /// `tool NAME`, `profile ID`.
        names: Vec<String>,
    },
    /// A fork is to assign a variable that its workflows do not declare.
    #[error(
        "the workflows of run {run_id} have no variable {name}{}",
        near.as_ref().map_or_else(String::new, |near| format!("; did you mean {near}?"))
    )]
    NoSuchVariable {
        /// The run.
        run_id: String,
        /// The requested name.
        name: String,
        /// The most similar declared name.
        near: Option<String>,
    },
    /// The run's steps do not fit its workflows.
    #[error("run {run_id}: {diverged}")]
    Diverged {
        /// The run.
        run_id: String,
        /// The first step that does not fit.
        #[source]
        diverged: Diverged,
    },
    /// An effect is in doubt, a person must decide, and the engine has no function that asks one.
    #[error(
        "{} of node {} was in progress when its process ended: a person must decide whether it is repeated",
        .0.effect_id, .0.node_id
    )]
    Undecided(Box<DoubtQuestion>),
    /// The tool or function that reconciles an effect in doubt did not return its outcome.
    #[error("{name} returned no result of {effect_id}: {why}")]
    NotReconciled {
        /// The effect.
        effect_id: String,
        /// The tool or function.
        name: String,
        /// The reason.
        why: String,
    },
    /// An answer to one of the run's questions was refused.
    #[error(transparent)]
    Answer(AnswerRefused),
    /// The run refused a person's message.
    #[error(transparent)]
    Message(MessageRefused),
    /// The run waits for its session, and an earlier run of that session has no owner. Resume the earlier run first.
    #[error("run {run_id} waits for session {session}: resume or cancel run {before} first")]
    SessionBusy {
        /// The run.
        run_id: String,
        /// The session.
        session: String,
        /// The earlier run of the session.
        before: String,
    },
    /// The engine did not admit the run.
    #[error(transparent)]
    Refused(RunError),
}

impl ResumeError {
    /// A stable code: the store's, the engine's, or one of `NO_STORE`, `RUN_HAS_ENDED`, `RUN_UNDER_WAY`, `NO_SUCH_STEP`,
    /// `NO_SUCH_REQUEST`, `NOT_CARRIED`, `EVENTS_DROPPED`, `RUN_UNREADABLE`, `INVALID_WORKFLOW`, `RESOURCE_MISSING`, `UNKNOWN_NAME`, `RUN_DIVERGED`, `EFFECT_IN_DOUBT`, `INTERACTION_CLOSED`, `INVALID_ANSWER`,
    /// `NO_MODEL_REQUESTS`, `INVALID_MESSAGE`, `TOO_MANY_MESSAGES`, `SESSION_BUSY`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoStore => "NO_STORE",
            Self::Store(error) => error.code(),
            Self::HasEnded { .. } => "RUN_HAS_ENDED",
            Self::UnderWay { .. } => "RUN_UNDER_WAY",
            Self::NoSuchStep { .. } => "NO_SUCH_STEP",
            Self::NoSuchRequest { .. } => "NO_SUCH_REQUEST",
            Self::NotExecuted { .. } => "NOT_CARRIED",
            Self::EventsDropped { .. } => "EVENTS_DROPPED",
            Self::Unreadable { .. } => "RUN_UNREADABLE",
            Self::Definition { .. } => "INVALID_WORKFLOW",
            Self::Missing { .. } => "RESOURCE_MISSING",
            Self::NoSuchVariable { .. } => "UNKNOWN_NAME",
            Self::Diverged { .. } => "RUN_DIVERGED",
            Self::Undecided(_) | Self::NotReconciled { .. } => "EFFECT_IN_DOUBT",
            Self::Answer(refused) => refused.code(),
            Self::Message(refused) => refused.code(),
            Self::SessionBusy { .. } => "SESSION_BUSY",
            Self::Refused(error) => error.code.as_str(),
        }
    }

    /// Returns true if the journal of this run cannot be replayed.
    pub(super) fn is_unreadable(&self, run_id: &str) -> bool {
        match self {
            // The error may be that of a run which this run has started.
            Self::Unreadable { run_id: of, .. } | Self::Diverged { run_id: of, .. } => of == run_id,
            // A damaged content has no run.
            Self::Store(StoreError::Damaged { run, .. }) => run.as_deref().is_none_or(|of| of == run_id),
            _other => false,
        }
    }
}

/// Writes a line for each fault, after a line break.
fn below(faults: &[Fault]) -> String {
    faults
        .iter()
        .flat_map(|fault| ["\n".to_owned(), fault.to_string()])
        .collect()
}

/// Converts an error of the store to the error of a run.
pub(crate) fn run_error(error: &StoreError) -> RunError {
    let code = match error {
        StoreError::RunExists { .. } => RunErrorCode::RunIdTaken,
        // The details have the store's own code, so the caller can still tell the errors apart.
        _ => RunErrorCode::StoreError,
    };
    RunError::new(code, error.to_string()).with_details(json!({ "code": error.code() }))
}
