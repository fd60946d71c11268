//! Substitutes for models and tools that need the outside world, because an exploration runs thousands of schedules.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::host::WorkClock;
use pirn_actors::journal::Graphs;
use pirn_actors::ports::{AskedCall, Function, Model, ModelCall, Models, Ports, ToolOutcome, ToolSpec, Tools};
use pirn_core::thread::{ModelReply, ToolResult};
use pirn_definition::definition::{InDoubt, Profile};
use pirn_definition::error::{RunError, RunErrorCode};

use pirn_models::Echo;

/// Replaces the models and tools that need the outside world. With `refused`, such models and all functions fail, and the first call
/// is stored there.
pub(super) fn restrict(ports: &mut Ports, refused: Option<&Refused>) {
    // Thousands of schedules must not call a provider or change anything outside.
    ports.tools = Arc::new(OfflineTools(Arc::clone(&ports.tools)));
    let Some(refused) = refused else {
        ports.models = Arc::new(OfflineModels(Arc::clone(&ports.models)));
        return;
    };
    ports.models = Arc::new(RefusingModels {
        models: Arc::clone(&ports.models),
        refused: refused.clone(),
    });
    let functions = ports.functions.keys().map(|name| {
        let (refused, called) = (refused.clone(), format!("the function `{name}` of the program"));
        let function = Function::Inline(Arc::new(move |_| Err(refused.refuse(called.clone()))));
        (name.clone(), function)
    });
    ports.functions = Arc::new(functions.collect::<BTreeMap<_, _>>());
}

/// The first call that was refused because it is not offline.
#[derive(Clone, Default)]
pub(super) struct Refused(Arc<OnceLock<String>>);

impl Refused {
    pub(super) fn called(&self) -> Option<String> {
        self.0.get().cloned()
    }

    /// Stores a call and returns the message of its failure.
    fn refuse(&self, called: String) -> String {
        let message = format!("{called} is not offline");
        // Later calls follow from the failure of the first one.
        let _: Result<(), String> = self.0.set(called);
        message
    }
}

/// Models of which those that need the outside world fail.
struct RefusingModels {
    models: Arc<dyn Models>,
    refused: Refused,
}

impl Models for RefusingModels {
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        let (profile, model) = self.models.choose(profile_id);
        if !model.is_external() {
            return (profile, model);
        }
        let called = format!("the profile `{}` of the provider `{}`", profile.id, profile.provider);
        let refused = self.refused.clone();
        (profile, Arc::new(RefusedModel { called, refused }))
    }

    fn of_run(&self, graphs: &Graphs) -> Option<Arc<dyn Models>> {
        Some(Arc::new(Self {
            models: self.models.of_run(graphs)?,
            refused: self.refused.clone(),
        }))
    }
}

struct RefusedModel {
    called: String,
    refused: Refused,
}

impl Model for RefusedModel {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let message = self.refused.refuse(self.called.clone());
        std::future::ready(Err(RunError::new(RunErrorCode::ModelError, message))).boxed()
    }
}

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
