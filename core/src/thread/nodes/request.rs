//! Converts the evaluated parts of an LLM node to a request: prompt, message parts, profile and parameters.

use std::sync::Arc;

use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{LlmNode, PartSpec};
use pirn_definition::message::Part;
use serde_json::Value;

use crate::thread::data::effect::{ComputedPrompt, ModelChoice};
use serde::Deserialize;

/// Evaluated parts of a request.
pub(super) struct EvaluatedRequest {
    pub(super) prompt: Option<String>,
    pub(super) system: Option<String>,
    pub(super) choice: ModelChoice,
    /// Contents of the computed parts, in order.
    pub(super) parts: Vec<Vec<Part>>,
}

/// Parses the evaluated object.
///
/// # Errors
/// Returns `NODE_FAILED` if the profile's id is empty or a value is not a message part.
pub(super) fn read(computed: &Value) -> Result<EvaluatedRequest, RunError> {
    let failed = |message: String| RunError::new(RunErrorCode::NodeFailed, message);
    // Fails only for an outcome that a host built: `evaluate` serializes this type.
    let computed = ComputedPrompt::deserialize(computed).map_err(|error| failed(error.to_string()))?;
    // An empty id would otherwise be looked up later, and the error would name a profile instead of the template.
    if computed.profile.as_ref().is_some_and(|id| id.trim().is_empty()) {
        return Err(failed(
            "the template of `profileId` evaluates to an empty string: expected a profile's id".to_owned(),
        ));
    }
    // Not shared: the value has just been deserialized.
    let parameters = computed.parameters.map(Arc::unwrap_or_clone);
    let choice = ModelChoice {
        profile_id: computed.profile.map(|id| Arc::from(id.trim())),
        parameters: match parameters {
            Some(Value::Object(parameters)) => Some(Arc::new(parameters)),
            // Null means no parameters, as if the node had none.
            _ => None,
        },
    };
    let parts: Result<Vec<Vec<Part>>, RunError> = computed
        .parts
        .into_iter()
        .map(|value| pieces(&value).map_err(|why| failed(format!("`parts` of the node: {why}"))))
        .collect();
    Ok(EvaluatedRequest {
        prompt: computed.prompt,
        system: computed.system,
        choice,
        parts: parts?,
    })
}

/// Parses a part, a string, or a list of both. Null is an empty list.
fn pieces(value: &Value) -> Result<Vec<Part>, String> {
    match value {
        // Allows an expression to omit a part by a condition.
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::text(text.as_str())]),
        Value::Array(items) => {
            let mut all = Vec::with_capacity(items.len());
            for item in items {
                // Checked before the recursion, which bounds its depth to one level.
                if item.is_array() {
                    return Err("a list of parts holds no lists".to_owned());
                }
                all.extend(pieces(item)?);
            }
            Ok(all)
        }
        // Validated here, so that the error names the node instead of a provider's rejection.
        Value::Object(_) => Part::deserialize(value)
            .map(|part| vec![part])
            .map_err(|error| format!("not a part of a message: {error}")),
        Value::Bool(_) | Value::Number(_) => Err(format!("{value} is not a part of a message")),
    }
}

/// Returns the parts of a node's message, with the computed ones inserted at their positions.
pub(super) fn parts(node: &LlmNode, computed: Vec<Vec<Part>>) -> Vec<Part> {
    // `evaluate::computed` returns one value for each computed part, in the order of the node's parts.
    let mut computed = computed.into_iter();
    let mut parts = Vec::with_capacity(node.parts.len());
    for part in &node.parts {
        match part {
            PartSpec::Literal(part) => parts.push(part.clone()),
            PartSpec::Computed(_) => parts.extend(computed.next().into_iter().flatten()),
        }
    }
    parts
}
