//! The workflow, its edges, variables, config and budget.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "schema")]
use crate::definition::skill::SkillEntry;
use crate::definition::{CompressionConfig, NodeConfig, Pinned, Skill, TriggerDefinition, VariableScope, VariableType};

/// A workflow: `{ id, name?, version?, description?, variables?[], nodes[], edges[], triggers?[], config? }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowDefinition {
    /// Id of the workflow, which `--workflow`, `subgraphId`, `triggeredWorkflowId` and events use.
    pub id: String,
    /// Name for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Description for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Data that is preserved and never read by the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// JSON Schema of the run's input. A run with another input is refused with `INVALID_INPUT` at admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Map<String, Value>>,
    /// Variables declared before the first node runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<VariableDefinition>,
    /// The nodes, in file order.
    pub nodes: Vec<NodeDefinition>,
    /// The edges, in file order.
    pub edges: Vec<EdgeDefinition>,
    /// Triggers that watch this workflow's runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerDefinition>,
    /// Limits, token limit, compression, pinned context.
    #[serde(default)]
    pub config: WorkflowConfig,
}

/// A variable declared before the first node runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VariableDefinition {
    /// Name of the variable.
    pub name: String,
    /// Type of the variable, checked at every assignment.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub variable_type: Option<VariableType>,
    /// Initial value (default `null`; `defaultValue` is an alias).
    #[serde(default, alias = "defaultValue")]
    pub value: Value,
    /// Scope of the variable (default `thread`).
    #[serde(default)]
    pub scope: VariableScope,
    /// True if assignments fail with `READONLY_VARIABLE`.
    #[serde(default)]
    pub readonly: bool,
    /// Reducer that combines the values of several paths, in path order, under `mergeVariables: all` of a JOIN and `assign` of a
    /// MAP; absent: two different values are `VARIABLE_MERGE_CONFLICT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce: Option<Reducer>,
    /// Description for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Function that combines the values of one variable, two at a time and in path order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a word or an expression over `a` and `b`")]
pub enum Reducer {
    /// A built-in reducer.
    Word(ReducerWord),
    /// An expression over `a`, the combined value of the earlier paths, and `b`, the value of the next path.
    Expression(String),
}

/// A built-in reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReducerWord {
    /// The last value.
    Last,
    /// A list of all values: lists are concatenated, other values become items.
    Append,
    /// The sum of numbers.
    Sum,
    /// The least number or string.
    Min,
    /// The greatest number or string.
    Max,
    /// A list like that of `append`, without duplicates.
    Union,
    /// An object with the fields of all; the later of two fields with one name is used.
    Merge,
}

impl From<ReducerWord> for Reducer {
    fn from(word: ReducerWord) -> Self {
        Self::Word(word)
    }
}

impl ReducerWord {
    /// Words of the reducers in JSON.
    pub const WORDS: [&str; 7] = ["last", "append", "sum", "min", "max", "union", "merge"];

    /// Returns the word in JSON.
    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// A node: `{ id, type, config, retry?, timeoutMs?, onError? }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeDefinition {
    /// Id of the node, unique in the workflow.
    pub id: String,
    /// Name for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Description for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `type` and `config`.
    #[serde(flatten)]
    pub config: NodeConfig,
    /// The retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Time limit of each attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The node where the thread continues after every attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// Policy for the node's model, tool or function call that was in progress when the process of a durable run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubt>,
}

/// Policy for a call that was started and has no outcome after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenInDoubt", into = "WrittenInDoubt")]
pub enum InDoubt {
    /// The call is repeated: it is idempotent.
    Retry,
    /// The call is repeated with its idempotency key, so that the callee can detect the repetition.
    Keyed,
    /// The tool or function of this name is called with the key, and returns the outcome, or that the call did not happen.
    Reconcile(String),
    /// A person decides.
    Ask,
    /// The call fails with EFFECT_IN_DOUBT.
    Fail,
}

/// A word, or `{"reconcile": NAME}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(
    untagged,
    expecting = "expected `retry`, `keyed`, `ask`, `fail` or `{\"reconcile\": NAME}`"
)]
enum WrittenInDoubt {
    Word(InDoubtWord),
    Reconcile { reconcile: String },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
enum InDoubtWord {
    Retry,
    Keyed,
    Ask,
    Fail,
}

impl From<WrittenInDoubt> for InDoubt {
    fn from(written: WrittenInDoubt) -> Self {
        match written {
            WrittenInDoubt::Word(InDoubtWord::Retry) => Self::Retry,
            WrittenInDoubt::Word(InDoubtWord::Keyed) => Self::Keyed,
            WrittenInDoubt::Word(InDoubtWord::Ask) => Self::Ask,
            WrittenInDoubt::Word(InDoubtWord::Fail) => Self::Fail,
            WrittenInDoubt::Reconcile { reconcile } => Self::Reconcile(reconcile),
        }
    }
}

impl From<InDoubt> for WrittenInDoubt {
    fn from(policy: InDoubt) -> Self {
        match policy {
            InDoubt::Retry => Self::Word(InDoubtWord::Retry),
            InDoubt::Keyed => Self::Word(InDoubtWord::Keyed),
            InDoubt::Ask => Self::Word(InDoubtWord::Ask),
            InDoubt::Fail => Self::Word(InDoubtWord::Fail),
            InDoubt::Reconcile(reconcile) => Self::Reconcile { reconcile },
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for InDoubt {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "InDoubt".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        WrittenInDoubt::json_schema(generator)
    }
}

/// The node where a thread continues after a failure. There the error is the last node's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OnError {
    /// The node's id.
    pub target_node_id: String,
}

/// The attempts at a failed node, and the delays between them. Delays have jitter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first; at least 1.
    pub max_attempts: u32,
    /// Delay before the second attempt, in milliseconds (default 100).
    #[serde(default = "default_initial_delay")]
    pub initial_delay_ms: u64,
    /// Factor from one delay to the next (default 2).
    #[serde(default = "default_backoff")]
    pub backoff: f64,
    /// Maximum delay, in milliseconds (default 30 000).
    #[serde(default = "default_max_delay")]
    pub max_delay_ms: u64,
    /// Codes of the errors that are retried; absent: all but `CANCELLED` and `TOKEN_BUDGET_EXCEEDED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_on: Option<Vec<String>>,
}

impl RetryPolicy {
    /// Creates a policy with this number of attempts and default delays.
    pub fn attempts(max_attempts: u32) -> Self {
        Self {
            max_attempts,
            initial_delay_ms: default_initial_delay(),
            backoff: default_backoff(),
            max_delay_ms: default_max_delay(),
            retry_on: None,
        }
    }
}

fn default_initial_delay() -> u64 {
    100
}
fn default_backoff() -> f64 {
    2.0
}
fn default_max_delay() -> u64 {
    30_000
}

/// An edge: `{ sourceNodeId, targetNodeId, id?, type?, label?, condition?, weight? }` (`from`, `to` are aliases).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EdgeDefinition {
    /// Id for display and events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Source node.
    #[serde(alias = "from")]
    pub source_node_id: String,
    /// Target node.
    #[serde(alias = "to")]
    pub target_node_id: String,
    /// Type of the edge (`DEFAULT`, `CONDITIONAL`), which is preserved and not interpreted: the condition decides.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub edge_type: Option<String>,
    /// Label for drawings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Expression; the edge may be taken if it is true. Absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Priority among satisfied edges (default 0): the edge with the highest weight is taken, or the first of those in the list.
    #[serde(default, serialize_with = "crate::definition::field_values::finite_or_text")]
    pub weight: f64,
}

/// Default number of nodes that a thread may enter.
pub const DEFAULT_MAX_STEPS: u64 = 1000;

/// Minimum of `artifactTokens`: previews and pages of large results need room for their fixed text.
pub const MIN_RESULT_TOKENS: u64 = 200;

/// Limits and settings of a workflow. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowConfig {
    /// Maximum number of nodes that a thread may enter (default 1000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
    /// Maximum number of concurrent branches of one FORK (default: all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_branches: Option<u32>,
    /// Nesting limit of forks, called and triggered sub-workflows (default 10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// Maximum number of firings in a run of this workflow for events that triggers caused (default 10000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_triggered_events: Option<u64>,
    /// Time limit in milliseconds of a thread that executes this workflow (default: none), as a run, as a called workflow or
    /// started by a trigger. The thread ends with TIMEOUT. Branches count within the limit of the thread that forked them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Context tokens above which TOKEN_LIMIT_EXCEEDED fires (default: the profile's, else none).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_limit: Option<u64>,
    /// Tokenizer's name (default: the profile's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// Default parameters of compressions, also passed to the workflows that token events start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionConfig>,
    /// Pinned context of every model request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
    /// Number of messages after the pinned block (default 5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_end: Option<usize>,
    /// Tokens above which a tool's result is replaced by a preview, and the tool `read_artifact` returns any part of it; at least
    /// 200 (default: every result is shown whole).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_tokens: Option<u64>,
    /// Maximum bytes of such results in a run (default 64 MiB); beyond it the oldest are deleted. A result larger than the limit
    /// is shown whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_artifact_bytes: Option<usize>,
    /// Skills that the models of all LLM nodes may read: folders with a `SKILL.md`, relative to the workflow file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<SkillEntry>>"))]
    pub skills: Option<Vec<Skill>>,
    /// True to offer the tool `recall`, which searches the messages that compressions archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<bool>,
    /// Limits on what model calls may use (default: none).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Box<Budget>>,
    /// Limits on the resources of a run of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Maximum number of agents that the workflow starts. Set for workflows that a model submits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub max_agents: Option<u64>,
    /// Maximum nesting of workflows that are submitted within the workflow (default 0). Set for workflows that a model submits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub max_nested: Option<u32>,
}

impl WorkflowConfig {
    /// Returns the memory limit of a run in bytes, if the workflow sets one.
    pub fn run_bytes(&self) -> Option<u64> {
        self.limits.as_ref()?.run_bytes
    }
}

/// Limits on the resources of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Maximum memory of a run in bytes: its variables, outputs and conversations (default 256 MiB, or the engine's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_bytes: Option<u64>,
}

/// A model profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// The id used in `profileId`.
    pub id: String,
    /// `scripted`, `echo`, `extractive`, or a registered provider's name.
    pub provider: String,
    /// The provider's model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// URL of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Environment variable with the API key. Never the key itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Passed to the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
    /// Context tokens above which TOKEN_LIMIT_EXCEEDED fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_limit: Option<u64>,
    /// Tokenizer's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// Fields defined by the provider (`responses` of `scripted`, timeouts, limits).
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Limits on what the model calls of a thread of the workflow, and of everything it starts, may use together. Every call reserves
/// the most that it may use before it starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Maximum number of tokens, sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost, in the currency of the profiles' `prices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Maximum number of model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Separate limits for each path of a FORK and each item of a MAP. Must not contain `perPath`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_path: Option<Box<Budget>>,
    /// Used share of a limit at which models are warned (default 0.8; for a path that of the whole).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<f64>,
}

impl Budget {
    /// True if something other than the paths is limited.
    pub fn is_limit(&self) -> bool {
        self.tokens.is_some() || self.cost.is_some() || self.model_calls.is_some()
    }

    /// Returns the limits of the whole and those of a path.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.per_path.as_deref())
    }
}
