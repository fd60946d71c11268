//! A case: a recording, its definition, and the graders of its outcome.

use std::sync::Arc;
use std::time::Duration;

use pirn_actors::History;
use pirn_conversation::conversation::{Conversation, CountedMessage};
use pirn_core::run::RunReport;
use pirn_core::status::ThreadStatus;
use pirn_definition::definition::json_from_str;
use pirn_definition::error::RunError;
use pirn_store::{Commit, Content, MemoryStore, NewRun, RunStatus, SessionWrite, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::graders::{GradeError, GradeFailure, Grader, described};
use super::inputs::InputFeed;
use super::recorded::Player;
use super::varying::Varying;
use crate::engine::durable::{RecordError, RecordedSession, Recording};
use crate::engine::{BuildError, Engine, EngineBuilder, SessionState};

/// Version of the format of cases.
pub const FORMAT_VERSION: u32 = 1;

/// Number of orders of concurrent steps that [`Case::find_order`] tries.
const TRIED_ORDERS: u64 = 64;

/// Time limit for the shutdown of an engine after its run.
const GRACE: Duration = Duration::from_secs(1);

/// A recorded run as a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// Version of the format.
    pub format_version: u32,
    /// Name of the case in reports.
    pub name: String,
    /// Id of the workflow to run.
    pub workflow: String,
    /// Workflow files to run instead of a definition, as paths from the folder of the case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<CaseFile>,
    /// Workflows and triggers to run, unless the case names files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Value>,
    /// Seed of the order of concurrent steps (default: the seed of the recording, or FIFO order).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<u64>,
    /// Graders of the outcome.
    pub expect: Vec<Grader>,
    /// Inputs of the run.
    pub recording: Recording,
}

/// A workflow file that a case names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CaseFile {
    /// Path of the file from the folder of the case.
    pub path: String,
    /// SHA-256 of the file when the case was recorded.
    pub sha256: String,
}

/// The result of a case.
#[derive(Clone, Debug)]
pub struct Tested {
    /// Report of the run.
    pub report: Arc<RunReport>,
    /// Calls that the recording does not contain, followed by the graders that the outcome does not satisfy.
    pub failures: Vec<GradeFailure>,
}

/// Reasons why a case has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The format is that of another version.
    #[error("the case has format version {0}, and this program reads version {FORMAT_VERSION}: record it again")]
    Version(u32),
    /// The workflows or profiles have faults.
    #[error(transparent)]
    Build(BuildError),
    /// The run was refused: there is no such workflow, for example.
    #[error(transparent)]
    Refused(RunError),
    /// The starting conversation or session is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The expression of a grader is invalid.
    #[error(transparent)]
    Grade(#[from] GradeError),
    /// The case expects a run that completes, and the run of the update ended differently.
    #[error(
        "the case expects COMPLETED, and the run ended {0}; the case is unchanged: correct the workflow, or if this outcome is intended, \
         record a run that ends so with `pirn runs record`"
    )]
    NotCompleted(String),
    /// The run cannot be recorded.
    #[error(transparent)]
    Record(RecordError),
}

impl Case {
    /// Records a run of the engine's store that has ended. The case contains its definition, is named after the run, and expects its
    /// outcome, path, output and cost.
    ///
    /// # Errors
    /// As [`Engine::recording`].
    pub async fn record(engine: &Engine, run_id: &str) -> Result<Self, RecordError> {
        let recorded = engine.recording(run_id).await?;
        let definition = json_from_str(&recorded.definition).map_err(|error| RecordError::NotRepeatable {
            run_id: run_id.to_owned(),
            why: format!("its definition cannot be read: {error}"),
        })?;
        Ok(Self {
            format_version: FORMAT_VERSION,
            name: run_id.to_owned(),
            workflow: recorded.workflow,
            files: Vec::new(),
            definition: Some(definition),
            order: None,
            expect: Grader::of(&recorded.report),
            recording: recorded.recording,
        })
    }

    /// Runs the case in an engine with the workflows of `builder` and the case's definition, if it has one. The clock of the builder
    /// is not used, and its models and tools are not called.
    ///
    /// # Errors
    /// [`CaseError`]. A run that does not satisfy the graders is a result, not an error.
    pub fn run(&self, builder: EngineBuilder) -> Result<Tested, CaseError> {
        let player = Player::new(self.recording.clone(), false);
        let (engine, report, feed) = self.play(builder, &player)?;
        engine.shutdown_blocking(GRACE);
        let mut failures = player.unknown();
        failures.extend(feed.missing());
        let varying = Varying::of(&self.recording, report.elapsed_ms);
        for grader in &self.expect {
            failures.extend(grader.compare(&report, &varying)?);
        }
        Ok(Tested { report, failures })
    }

    /// Runs the case like [`Self::run`]. If it fails, tries other orders of concurrent steps, and sets [`Self::order`] to the first one in
    /// which it passes: the live order of branches that race is not recorded. Returns the result in the order of the case.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn find_order(&mut self, mut build: impl FnMut() -> EngineBuilder) -> Result<Tested, CaseError> {
        let tested = self.run(build())?;
        if tested.failures.is_empty() {
            return Ok(tested);
        }
        let given = self.order;
        for order in 0..TRIED_ORDERS {
            self.order = Some(order);
            let other = self.run(build())?;
            if other.failures.is_empty() {
                return Ok(other);
            }
        }
        self.order = given;
        Ok(tested)
    }

    /// Records the case again: runs it with the models and tools of `builder` for the requests and calls that the recording does not
    /// contain. Graders that a recording writes get the new values, all others stay.
    ///
    /// # Errors
    /// [`CaseError`]; [`CaseError::NotCompleted`] if the case expects COMPLETED and the run ends differently.
    pub fn update(&self, builder: EngineBuilder) -> Result<Self, CaseError> {
        let player = Player::new(self.recording.clone(), true);
        let (engine, report, feed) = self.play(builder, &player)?;
        let completes = |grader: &Grader| {
            matches!(
                grader,
                Grader::Outcome {
                    status: ThreadStatus::Completed,
                    ..
                }
            )
        };
        if report.status != ThreadStatus::Completed && self.expect.iter().any(completes) {
            return Err(CaseError::NotCompleted(described(&report)));
        }
        if let Some(missing) = feed.missing().first() {
            // The new recording would not contain the input.
            return Err(CaseError::Invalid(format!(
                "{}: correct its position in the case, or remove the input",
                missing.message
            )));
        }
        // The record of a run is complete when the engine has nothing more to do for it.
        engine.wait_idle();
        let recorded = futures::executor::block_on(Self::record(&engine, &report.run_id));
        engine.shutdown_blocking(GRACE);
        let recorded = recorded.map_err(CaseError::Record)?;
        let own = self.expect.iter().filter(|grader| !grader.is_recorded()).cloned();
        Ok(Self {
            name: self.name.clone(),
            files: self.files.clone(),
            definition: self.definition.clone(),
            order: self.order,
            expect: recorded.expect.into_iter().chain(own).collect(),
            recording: Recording {
                seed: self.recording.seed,
                ..recorded.recording
            },
            ..recorded
        })
    }

    fn play(
        &self,
        builder: EngineBuilder,
        player: &Arc<Player>,
    ) -> Result<(Engine, Arc<RunReport>, InputFeed), CaseError> {
        if self.format_version != FORMAT_VERSION {
            return Err(CaseError::Version(self.format_version));
        }
        let recording = &self.recording;
        let mut builder = builder
            .virtual_time(self.order.or(recording.seed))
            .wall_clock(recording.started_at);
        if let Some(seed) = recording.seed {
            builder = builder.seed(seed);
        }
        if let Some(definition) = &self.definition {
            builder = builder.workflows(definition.to_string());
        }
        let wrapping = Arc::clone(player);
        let store = MemoryStore::new();
        if let Some(session) = &recording.session {
            restore(self, session, &store)
                .map_err(|error| CaseError::Invalid(format!("the session of the case: {error}")))?;
        }
        // A schedule would start runs that the recording does not contain.
        let engine = builder
            // Also for a test: commits are steps of the virtual order, and the recorded run made them.
            .store(store)
            .other_profiles(recording.profiles.iter().cloned())
            .schedules(false)
            .over_ports(move |ports| wrapping.wrap(ports))
            .build()
            .map_err(CaseError::Build)?;
        let history = match &recording.mark_map {
            Some(marks) => History::of_parts(recording.conversation.clone(), marks.clone())
                .map_err(|error| CaseError::Invalid(format!("the conversation of the case: {error}")))?,
            None => recording.conversation.clone().into(),
        };
        let feed = InputFeed::new(engine.shared(), recording.inputs.clone());
        let answering = Arc::clone(player);
        let mut run = engine
            .run(self.workflow.as_str())
            .run_id(recording.run_id.as_str())
            .input(&recording.input)
            .conversation(history)
            .pinned(recording.pinned.clone())
            .run_seed(recording.run_seed)
            .client_tools(recording.client_tools.clone())
            .answers_later(
                move |question| answering.answer(question),
                // A question stays open after a refused answer; the run then ends differently, which a grader reports.
                |_, _| (),
            );
        if let Some(limit) = recording.deadline_ms {
            run = run.deadline(Duration::from_millis(limit));
        }
        if let Some(session) = &recording.session {
            run = run.session(Arc::clone(&session.id));
            if session.keeps_on_failure {
                run = run.keep_on_failure();
            }
        }
        if !recording.inputs.is_empty() {
            run.subscribe(&[], Box::new(feed.clone()));
        }
        let run = run.start().map_err(CaseError::Refused)?;
        engine.cancel_if_deadlocked(&run);
        let report = run.outcome_blocking();
        Ok((engine, report, feed))
    }
}

/// Writes the state of the session of a case to a store, as the result of an earlier run.
fn restore(case: &Case, session: &RecordedSession, store: &MemoryStore) -> Result<(), String> {
    let Some(state) = &session.state else { return Ok(()) };
    // Without a tokenizer, because the run counts the tokens again.
    let messages = state.conversation.iter().map(|message| CountedMessage {
        message: Arc::new(message.clone()),
        tokens: 0,
    });
    let conversation = Conversation::from_parts(messages, state.mark_map.clone().unwrap_or_default());
    let state = SessionState {
        version: 1,
        tokenizer: "".into(),
        conversation: conversation.map_err(|error| error.to_string())?,
        variables: state.variables.clone(),
        stored: None,
    };
    let definition = Content::new("{}");
    let mut run = NewRun::new(case.workflow.as_str(), definition.hash(), 0);
    run.session = Some(session.id.to_string());
    let commit = Commit::start(format!("before {}", case.recording.run_id), run)
        .content(definition)
        .status(RunStatus::Completed)
        .session(SessionWrite {
            id: session.id.to_string(),
            follows: 0,
            body: json!(state).to_string(),
            contents: Vec::new(),
            at: 0,
        });
    let committed = futures::executor::block_on(store.commit(commit));
    committed.map(|_| ()).map_err(|error| error.to_string())
}
