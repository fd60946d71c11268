//! Substitutes for models and tools that need the outside world, because an exploration runs thousands of schedules.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::host::WorkClock;
use pirn_actors::journal::Graphs;
use pirn_actors::ports::{AskedCall, Model, Models, ToolOutcome, ToolSpec, Tools};
use pirn_core::thread::ToolResult;
use pirn_definition::definition::{InDoubt, Profile};

use pirn_models::Echo;

/// Models, with `echo` for those that need the outside world.
pub(crate) struct OfflineModels(pub(crate) Arc<dyn Models>);

impl Models for OfflineModels {
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        let (profile, model) = self.0.choose(profile_id);
        if model.is_external() {
            // The profile stays, because its limits and tokenizer affect the run.
            (profile, Arc::new(Echo))
        } else {
            (profile, model)
        }
    }

    fn of_run(&self, graphs: &Graphs) -> Option<Arc<dyn Models>> {
        // Wrapped too, because the models of a definition's own profiles would call their provider otherwise.
        let models = self.0.of_run(graphs)?;
        Some(Arc::new(Self(models)))
    }
}

/// Tools. A call of one that needs the outside world returns a text which explains that the tool was not called.
pub(crate) struct OfflineTools(pub(crate) Arc<dyn Tools>);

impl Tools for OfflineTools {
    fn specs(&self, names: &[Arc<str>]) -> Vec<ToolSpec> {
        self.0.specs(names)
    }

    fn is_external(&self, _: &str) -> bool {
        // No call behind this wrapper reaches the outside world.
        false
    }

    fn in_doubt(&self, name: &str, is_consented: bool) -> Option<InDoubt> {
        self.0.in_doubt(name, is_consented)
    }

    fn call(&self, names: &[Arc<str>], asked: AskedCall, clock: WorkClock) -> BoxFuture<'static, ToolOutcome> {
        if self.0.is_external(&asked.call.name) {
            let content = format!("(the tool {} was not called: this is an exploration)", asked.call.name);
            let result = ToolResult {
                content,
                ..ToolResult::default()
            };
            return std::future::ready(ToolOutcome::Result(result)).boxed();
        }
        self.0.call(names, asked, clock)
    }

    fn close(&self) {
        self.0.close();
    }
}
