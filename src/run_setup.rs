//! Workflow, input, conversation and pinned context of the runs that a trial starts: a simulation, an exploration, or runs under faults.

use pirn_actors::History;
use pirn_definition::definition::Pinned;
use pirn_definition::error::RunError;
use serde_json::Value;

use crate::engine::{BuildError, Engine, EngineBuilder, RunBuilder};

/// Settings of a run, independent of its engine.
pub(crate) struct RunSetup {
    pub(crate) workflow: Option<String>,
    pub(crate) input: Result<Value, RunError>,
    pub(crate) conversation: History,
    pub(crate) pinned: Pinned,
}

impl Default for RunSetup {
    fn default() -> Self {
        Self {
            workflow: None,
            input: Ok(Value::Null),
            conversation: History::default(),
            pinned: Pinned::default(),
        }
    }
}

impl RunSetup {
    /// Returns the id of the workflow: the given one, or the first of the builder.
    pub(crate) fn workflow_of(&self, build: impl FnOnce() -> EngineBuilder) -> Result<String, BuildError> {
        match &self.workflow {
            Some(id) => Ok(id.clone()),
            // A plan has no threads, so it is the cheapest way to read the workflows of the builder.
            None => Ok(build().plan()?.first_workflow()),
        }
    }

    /// Prepares a run of the workflow. Fails if the input was refused.
    pub(crate) fn prepare(&self, engine: &Engine, workflow: &str) -> Result<RunBuilder, RunError> {
        let run = engine.run(workflow).input(self.input.clone()?);
        Ok(run.conversation(self.conversation.clone()).pinned(self.pinned.clone()))
    }
}

/// Methods of a builder that change its field `setup`, a [`RunSetup`].
macro_rules! run_setup_methods {
    () => {
        /// Sets the workflow (default: the first of the files that is not a triggered sub-workflow).
        #[must_use]
        pub fn workflow(mut self, id: impl Into<String>) -> Self {
            self.setup.workflow = Some(id.into());
            self
        }

        /// Sets the input of every run (default null): a JSON value, or anything that serializes to one.
        #[must_use]
        pub fn input(mut self, input: impl serde::Serialize) -> Self {
            self.setup.input = $crate::engine::input_of(input);
            self
        }

        /// Sets the start of the main thread's conversation.
        #[must_use]
        pub fn conversation(mut self, messages: impl Into<pirn_actors::History>) -> Self {
            self.setup.conversation = messages.into();
            self
        }

        /// Sets pinned context in addition to the workflow's; its sections take precedence.
        #[must_use]
        pub fn pinned(mut self, pinned: pirn_definition::definition::Pinned) -> Self {
            self.setup.pinned = pinned;
            self
        }
    };
}

pub(crate) use run_setup_methods;
