//! Dynamic workflows: what a model may run by the tool `run_workflow`.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// Rules for the workflows that the model of an LLM node writes and runs by the tool `run_workflow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DynamicConfig {
    /// Forms that the model may submit (default: all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<DynamicForm>>,
    /// Profiles that the submitted workflow may use; the first one applies to nodes that name none (default: the profile of the node).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Vec<String>>,
    /// Tools that the submitted workflow may use, and the workflows that it may call: `workflow:ID` (default: the tools of the node).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Limits of the submitted workflow.
    #[serde(default, skip_serializing_if = "DynamicLimits::is_default")]
    pub limits: DynamicLimits,
    /// Policy before a submitted workflow starts (default `ask`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<DynamicConsent>,
}

/// A form in which a model submits a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DynamicForm {
    /// A graph, in the format of a workflow file.
    Graph,
    /// A script.
    Script,
}

/// Policy before a submitted workflow starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DynamicConsent {
    /// A person approves, changes or refuses the plan.
    #[default]
    Ask,
    /// The workflow starts at once.
    Auto,
}

/// Limits of a submitted workflow. The budget of the run applies in addition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DynamicLimits {
    /// Maximum number of LLM nodes, and of workflows that the graph calls; a MAP counts its `maxItems` (default 100).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<u64>,
    /// Maximum nesting of submitted workflows: with 1, a submitted workflow cannot submit another one (default 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Maximum number of concurrent branches of a FORK or MAP (default 16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Maximum number of tokens, sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost, in the currency of the profiles' `prices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Time limit in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<Millis>,
}

impl DynamicLimits {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
