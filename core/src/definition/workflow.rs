//! The workflow, its edges, variables and config.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Budget, CompressionConfig, NodeConfig, Pinned, TriggerDefinition, VariableScope, VariableType};

/// A workflow: `{ id, name?, version?, description?, variables?[], nodes[], edges[], triggers?[], config? }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowDefinition {
    /// Names the workflow for `--workflow`, `subgraphId`, `triggeredWorkflowId`, events.
    pub id: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Carried through, never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// JSON Schema of the run's input, checked where runs are started from outside: by the service and as a tool of MCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Map<String, Value>>,
    /// Variables that exist before the first node.
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

/// A variable known before the first node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VariableDefinition {
    /// Its name.
    pub name: String,
    /// Checked at every assignment where given.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub variable_type: Option<VariableType>,
    /// The value it starts with; `null` where absent. (`defaultValue` is an alias.)
    #[serde(default, alias = "defaultValue")]
    pub value: Value,
    /// The thread's or the run's.
    #[serde(default)]
    pub scope: VariableScope,
    /// True to make assigning it `READONLY_VARIABLE`.
    #[serde(default)]
    pub readonly: bool,
    /// Under `mergeVariables: all` of a JOIN and `assign` of a MAP, how the values that several paths gave it become one, in
    /// path order; absent: two different ones are `VARIABLE_MERGE_CONFLICT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce: Option<Reducer>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The function that makes the values of one variable one, two at a time and in path order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a word or an expression over `a` and `b`")]
pub enum Reducer {
    /// A ready-made one.
    Word(ReducerWord),
    /// An expression over `a`, what the paths before have come to, and `b`, the next one's value.
    Expression(String),
}

/// A ready-made reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReducerWord {
    /// The last one.
    Last,
    /// A list of all: lists are joined, other values become items.
    Append,
    /// The sum of numbers.
    Sum,
    /// The least number or text.
    Min,
    /// The greatest number or text.
    Max,
    /// As `append`, each item once.
    Union,
    /// One object; of two fields of one name the later counts.
    Merge,
}

impl From<ReducerWord> for Reducer {
    fn from(word: ReducerWord) -> Self {
        Self::Word(word)
    }
}

impl ReducerWord {
    /// The words, as they are written.
    pub const WORDS: [&str; 7] = ["last", "append", "sum", "min", "max", "union", "merge"];

    /// The word, as it is written.
    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// A node: `{ id, type, config, retry?, timeoutMs?, onError? }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeDefinition {
    /// Unique in the workflow.
    pub id: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `type` and `config`.
    #[serde(flatten)]
    pub config: NodeConfig,
    /// The retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// One attempt's time limit, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The node to go on at when every attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// The policy for the node's model, tool or function call that had begun when the process of a durable run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubt>,
}

/// The policy for a call that had begun and has no outcome after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenInDoubt", into = "WrittenInDoubt")]
pub enum InDoubt {
    /// It is done once more: doing it twice does no harm.
    Retry,
    /// It is done once more with the same idempotency key, by which whoever does it knows it.
    Keyed,
    /// The tool or function of this name is called with the key, and says what came of it, or that it was not done.
    Reconcile(String),
    /// A person decides.
    Ask,
    /// It counts as failed, with EFFECT_IN_DOUBT.
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

/// The node where a thread goes on after a failure. The error is the last output there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OnError {
    /// The node to go to.
    pub target_node_id: String,
}

/// The attempts at a failed node, and the delays between them. Delays carry jitter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; at least 1.
    pub max_attempts: u32,
    /// Delay before the second attempt, milliseconds (default 100).
    #[serde(default = "default_initial_delay")]
    pub initial_delay_ms: u64,
    /// Factor from one delay to the next (default 2).
    #[serde(default = "default_backoff")]
    pub backoff: f64,
    /// No delay is longer, milliseconds (default 30 000).
    #[serde(default = "default_max_delay")]
    pub max_delay_ms: u64,
    /// Only errors of these codes are tried again; absent: all but CANCELLED.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_on: Option<Vec<String>>,
}

impl RetryPolicy {
    /// So many attempts in all, with the delays that stand where nothing else is said.
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
    /// For people and events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The node it starts at.
    #[serde(alias = "from")]
    pub source_node_id: String,
    /// The node it leads to.
    #[serde(alias = "to")]
    pub target_node_id: String,
    /// Carried through (`DEFAULT`, `CONDITIONAL`); the condition alone decides.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub edge_type: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Expression; absent: always satisfied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Of several satisfied edges the heaviest is taken (default 0), then list order.
    #[serde(default)]
    pub weight: f64,
}

/// Limits and settings of a workflow. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowConfig {
    /// Nodes a thread may enter (default 1000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
    /// Branches of one FORK that run at once (default: all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_branches: Option<u32>,
    /// Nesting limit of forks, called and triggered sub-workflows (default 10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// Limit of firings in a run of this workflow for what triggers caused (default 10000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_triggered_events: Option<u64>,
    /// Time limit of a thread that walks this workflow, milliseconds (default: none): for a run of it, where it is
    /// called and where a trigger starts it. It ends TIMEOUT. A branch lives within the limit of the thread that forked
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Context tokens above which TOKEN_LIMIT_EXCEEDED fires (default: the profile's, else none).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_limit: Option<u64>,
    /// Tokenizer's name (default: the profile's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// Handed to what a token event starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionConfig>,
    /// Pinned context of every model request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
    /// N of the pinned block's position (default 5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_end: Option<usize>,
    /// Tokens above which a tool's result is shown as a preview, and the tool `read_artifact` gives any part of it; at least
    /// 200 (default: every result is shown whole).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_tokens: Option<u64>,
    /// Bytes of such results that a run keeps (default 64 MiB); of more, those go that were kept longest ago. A larger result is
    /// shown whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_artifact_bytes: Option<usize>,
    /// True to offer the tool `recall`, which searches the messages that compressions archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<bool>,
    /// Limits on what model calls may use (default: none).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Box<Budget>>,
    /// Limits on what a run of this workflow takes of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

impl WorkflowConfig {
    /// Bytes that a run of the workflow may hold, where it says.
    pub fn run_bytes(&self) -> Option<u64> {
        self.limits.as_ref()?.run_bytes
    }
}

/// Limits on what a run takes of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Bytes of memory that a run may hold: its variables, outputs and conversations (default 256 MiB, or the engine's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_bytes: Option<u64>,
}

/// A model profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// The id that `profileId` names.
    pub id: String,
    /// `scripted`, `echo`, `extractive`, or a registered provider's name.
    pub provider: String,
    /// The provider's model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The environment variable that holds the key. Never the key itself.
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
    /// Fields the provider itself defines (`responses` of `scripted`, timeouts, limits); read by the provider.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}
