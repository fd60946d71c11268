//! Forks of stored runs: new runs that share the steps of another run up to a given step.

use std::collections::BTreeSet;
use std::sync::Arc;

use pirn_actors::rebuilt_run::RebuiltRun;
use pirn_core::run::{Assignment, ForkGap, Message, ToSupervisor};
use pirn_core::thread::{ThreadMachine, coerce};
use pirn_definition::definition::{VariableScope, nearest};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::value::{TOO_DEEP, is_too_deep};
use pirn_store::{Base, Commit, Content, NewRun};
use serde_json::Value;

use super::offline::{record_of, uncarried_input};
use super::resume::ResumeBuilder;
use crate::engine::Engine;
use crate::engine::durable::claim::Claim;
use crate::engine::durable::records::sessions::without_conversation;
use crate::engine::durable::records::stored::StoredRecords;
use crate::engine::durable::resume_error::ResumeError;

/// Builder of a fork: `engine.fork("run-1", 7).set("name", json!("Ada")).make("run-2").await?`.
#[must_use = "the run is forked only by `make`"]
pub struct ForkBuilder {
    engine: Engine,
    run_id: String,
    step: u64,
    assigned: Vec<(String, Value)>,
    input: Option<Value>,
    definition: Option<String>,
}

impl ForkBuilder {
    pub(crate) fn new(engine: Engine, run_id: String, step: u64) -> Self {
        Self {
            engine,
            run_id,
            step,
            assigned: Vec::new(),
            input: None,
            definition: None,
        }
    }

    /// Assigns a variable, in the scope that its workflow declares, before the fork continues after the shared steps.
    pub fn set(mut self, name: impl Into<String>, value: Value) -> Self {
        self.assigned.push((name.into(), value));
        self
    }

    /// Replaces the run's input. The outcomes of the shared steps stay as recorded.
    pub fn input(mut self, input: Value) -> Self {
        self.input = Some(input);
        self
    }

    /// Replaces the workflow definition by the source text of workflow files. The shared steps must be valid under this
    /// definition.
    pub fn definition(mut self, text: impl Into<String>) -> Self {
        self.definition = Some(text.into());
        self
    }

    /// Creates the run with this id. The assigned values are part of it. Execution starts when the returned builder is started; if that
    /// fails, the run is removed again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the fork either exists completely in the store or not at all. Look it up by its id.
    ///
    /// # Errors
    /// Fails if the run or the step does not exist, if the shared steps do not fit the new input or definition, if the new input does not
    /// fit the workflow's `inputSchema`, if an assigned variable is unknown or readonly or belongs to a thread that has ended, if a value
    /// has another type than its variable or is nested too deeply, or if the store fails.
    pub async fn make(self, id: impl Into<String>) -> Result<ResumeBuilder, ResumeError> {
        let durable = self.engine.durable()?;
        let store = &durable.store;
        let mut stored = StoredRecords::read(&durable, &self.run_id).await?;
        if self.step > stored.run.steps {
            return Err(ResumeError::NoSuchStep {
                run_id: self.run_id,
                step: self.step,
                last: stored.run.steps,
            });
        }
        let id = id.into();
        let mut commit_contents = Vec::new();
        // A later migration of the original run does not apply to a fork from before it.
        let shared = stored.definition_at(self.step as usize);
        let content = Content::new(self.definition.as_deref().unwrap_or(&shared));
        // Changed in the copy only, so that the shared steps are rebuilt under the fork's definition and input below.
        stored.run.definition = content.hash();
        stored.definition = Arc::clone(content.text());
        commit_contents.push(content);
        if let Some(input) = self.input.clone() {
            stored.begun = stored.begun.with_input(input);
        }
        // If the original run received its session's state only after the shared steps, the fork receives that state as its
        // first input.
        let handed = stored.inputs.iter().skip(self.step as usize);
        let handed = handed
            .map(|input| &input.message)
            .find(|message| is_session_turn(message));
        let handed = handed.cloned();
        // The shared steps are replayed before the commit: a fork that cannot be rebuilt must not be created.
        stored.inputs.truncate(self.step as usize);
        let inputs = std::mem::take(&mut stored.inputs);
        let rebuilt = stored.rebuild(&self.engine, &durable, inputs)?;
        // Check the names before the commit too, because an assignment is executed only after it.
        self.check_names(&rebuilt)?;
        self.check_values(&stored, &rebuilt)?;
        let now = self.engine.shared().wall_clock().await.map_err(ResumeError::Refused)?;
        // The fork starts now, and not when the original run took the shared steps: lists of runs are in the order of this time.
        let started_at = now.max(rebuilt.at);
        // Without the gap the fork of a run that is older than a pending time limit would end at once.
        let gap = ForkGap {
            from: rebuilt.at,
            to: started_at,
        };
        stored.begun = stored.begun.forked(gap);
        let text = serde_json::to_string(&stored.begun).map_err(|error| ResumeError::Unreadable {
            run_id: self.run_id.clone(),
            step: 0,
            why: error.to_string(),
        })?;
        let content = Content::new(text);
        if content.hash() != stored.run.contents[0] {
            stored.run.contents[0] = content.hash();
            commit_contents.push(content);
        }
        let mut new = NewRun::new(stored.run.workflow.clone(), stored.run.definition, started_at);
        // The fork refers to the contents of the original. The store keeps each text once.
        new.contents.clone_from(&stored.run.contents);
        new.base = Some(Base {
            run: self.run_id,
            step: self.step,
        });
        // Without an owner, another process that shares the store could claim the run before it is started here.
        new.is_carried = true;
        let mut commit = Commit::start(id.clone(), new);
        commit.contents = commit_contents;
        let main = rebuilt.graphs.get(&*stored.begun.workflow_id).cloned();
        // In its declared scope: a thread variable of that name would hide a global one.
        let scopes = |name: &str| {
            let mut declared = main.iter().flat_map(|graph| &graph.variables);
            let declared = declared.find(|variable| variable.name == name);
            declared.map_or(VariableScope::Thread, |variable| variable.scope)
        };
        let assigned = self.assigned.into_iter().map(|(name, value)| {
            Message::Supervisor(ToSupervisor::Assign(Box::new(Assignment {
                thread: 0,
                scope: scopes(&name),
                // An assignment from outside of a thread has the form of a trigger's, so it needs a name here.
                trigger_id: "fork".into(),
                name: name.into(),
                value: Arc::new(value),
                trigger_depth: 0,
            })))
        });
        // In the commit that creates the run: no process can resume it without them.
        for message in handed.into_iter().chain(assigned) {
            let input = uncarried_input(&rebuilt, started_at, message);
            // The store has the conversation, and the original run has named its last part.
            let input = without_conversation(&input).map_or(input, |(bare, _)| bare);
            commit.records.push(record_of(&id, &input)?);
        }
        store.commit(commit).await?;
        // Created after the commit, which makes the claim. Dropping it releases the run if the builder is never started.
        let claim = Claim::of_new(store, &id.as_str().into());
        Ok(ResumeBuilder::of_fork(self.engine, id, claim))
    }
}

impl ForkBuilder {
    /// Checks that every assigned variable belongs to a workflow or to the main thread.
    fn check_names(&self, rebuilt: &RebuiltRun) -> Result<(), ResumeError> {
        let assigned = rebuilt.graphs.values().flat_map(|graph| graph.variable_names.iter());
        let main = rebuilt.machine.live(0).map(ThreadMachine::variables);
        let own = main
            .into_iter()
            .flat_map(|variables| variables.iter().map(|(name, _)| name));
        let known: BTreeSet<&str> = assigned.chain(own).map(AsRef::as_ref).collect();
        for (name, _) in &self.assigned {
            if !known.contains(name.as_str()) {
                return Err(ResumeError::NoSuchVariable {
                    run_id: self.run_id.clone(),
                    name: name.clone(),
                    near: nearest(name, known.iter().copied()).map(str::to_owned),
                });
            }
        }
        Ok(())
    }

    /// Checks the values by the rules of a new run and of an assignment. The store could not return deeper values, and the failure of an
    /// assignment in the fork would only be an event.
    fn check_values(&self, stored: &StoredRecords, rebuilt: &RebuiltRun) -> Result<(), ResumeError> {
        let refused = |message| ResumeError::Refused(RunError::new(RunErrorCode::InvalidInput, message));
        let main = rebuilt.graphs.get(&*stored.begun.workflow_id);
        for (name, value) in &self.assigned {
            if is_too_deep(value) {
                return Err(refused(format!("the variable {name}: {TOO_DEEP}")));
            }
            let mut declared = main.iter().flat_map(|graph| &graph.variables);
            let declared = declared.find(|variable| variable.name == *name);
            if declared.is_some_and(|variable| variable.readonly) {
                return Err(refused(format!(
                    "the variable {name} is readonly: remove its assignment"
                )));
            }
            if let Some(variable_type) = declared.and_then(|variable| variable.variable_type) {
                coerce(variable_type, Arc::new(value.clone()), name).map_err(|error| refused(error.message.clone()))?;
            }
            let is_of_thread = declared.is_none_or(|variable| variable.scope == VariableScope::Thread);
            if is_of_thread && rebuilt.machine.live(0).is_none() {
                let step = self.step;
                return Err(refused(format!(
                    "the variable {name} belongs to the main thread, which has ended at step {step}: fork at an earlier step"
                )));
            }
        }
        let Some(input) = &self.input else { return Ok(()) };
        if is_too_deep(input) {
            return Err(refused(format!("the input: {TOO_DEEP}")));
        }
        let Some(graph) = rebuilt.graphs.get(&*stored.begun.workflow_id) else {
            return Ok(());
        };
        self.engine
            .shared()
            .check_input(graph, input)
            .map_err(ResumeError::Refused)
    }
}

fn is_session_turn(message: &Message) -> bool {
    matches!(message, Message::Supervisor(ToSupervisor::Session(_)))
}
