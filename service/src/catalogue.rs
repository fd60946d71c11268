//! The workflows that can be started: their metadata, and validators of their inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonschema::Validator;

use crate::http::problem::{Problem, ProblemCode};
use pirn::{Engine, WorkflowInfo};
use pirn_definition::definition::Fault;

/// Workflows by id, as registered with the engine when the catalogue was built.
#[derive(Default)]
pub(super) struct Catalogue {
    offers: BTreeMap<String, Arc<PublishedWorkflow>>,
}

pub(super) struct PublishedWorkflow {
    pub(super) info: WorkflowInfo,
    /// Warnings about the workflow in its file.
    pub(super) warnings: Vec<Fault>,
    input: Option<Result<Validator, String>>,
}

impl Catalogue {
    /// Builds a catalogue of the engine's workflows that can be started and for which `warnings` returns those of their files; `None`
    /// omits a workflow.
    pub(super) fn of<'w>(engine: &Engine, warnings: impl Fn(&str) -> Option<&'w [Fault]>) -> Self {
        let workflows = engine.workflows().into_iter().filter(|info| !info.is_triggered);
        let offers = workflows.filter_map(|info| {
            let warnings = warnings(&info.id)?.to_vec();
            Some((info.id.clone(), Arc::new(PublishedWorkflow::of(info, warnings))))
        });
        Self {
            offers: offers.collect(),
        }
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<PublishedWorkflow>, Problem> {
        self.offers.get(id).cloned().ok_or_else(|| {
            let near = pirn_definition::definition::nearest(id, self.offers.keys().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            Problem::new(ProblemCode::UnknownWorkflow, format!("there is no workflow {id}{hint}"))
        })
    }

    pub(super) fn offers(&self) -> impl Iterator<Item = &Arc<PublishedWorkflow>> {
        self.offers.values()
    }

    /// Returns a message for each workflow with an `inputSchema` that is not a valid JSON Schema.
    pub(super) fn faults(&self) -> Vec<String> {
        let faults = self.offers.values().filter_map(|published| match &published.input {
            Some(Err(error)) => Some(format!("workflow {}: {error}", published.info.id)),
            Some(Ok(_)) | None => None,
        });
        faults.collect()
    }
}

impl PublishedWorkflow {
    fn of(info: WorkflowInfo, warnings: Vec<Fault>) -> Self {
        let schema = info.input_schema.clone().map(serde_json::Value::Object);
        let input = schema.map(|schema| {
            jsonschema::validator_for(&schema)
                .map_err(|error| format!("inputSchema is not a JSON Schema: {}", shown(&error)))
        });
        Self { info, warnings, input }
    }

    /// Validates an input; the problem contains the first location that is invalid.
    pub(super) fn check(&self, input: &serde_json::Value) -> Result<(), Problem> {
        match &self.input {
            None => Ok(()),
            Some(Err(error)) => Err(Problem::new(ProblemCode::Internal, error.clone())),
            Some(Ok(validator)) => validator.validate(input).map_err(|error| {
                let pointer = format!("/input{}", error.instance_path());
                Problem::new(ProblemCode::InvalidInput, shown(&error)).at(pointer)
            }),
        }
    }
}

/// Maximum number of characters of a fault that are shown.
const SHOWN: usize = 400;

/// Returns the beginning of a fault's message, which quotes the input or the schema.
fn shown(fault: &jsonschema::ValidationError<'_>) -> String {
    fault.to_string().chars().take(SHOWN).collect()
}
