//! The node types and their configs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::definition::node_options::code_mode::CodeModeLimits;
use crate::definition::node_options::dynamic::DynamicConfig;
#[cfg(feature = "schema")]
use crate::definition::skill::SkillEntry;
use crate::definition::{
    ContextOperation, ConversationHistoryOptions, HistoryRange, RoleCount, RoleRange, Skill, ToolEntry,
    UserInteractionConfig,
};
use crate::message::Role;

/// A node's `type` and `config`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", content = "config", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NodeConfig {
    /// The first node of a normal workflow.
    Start,
    /// Ends the thread.
    End(EndConfig),
    /// Evaluates an expression and assigns the result to a variable.
    Variable(VariableConfig),
    /// Calls a model.
    Llm(LlmConfig),
    /// Runs JavaScript or a registered function.
    Code(CodeConfig),
    /// Runs a script that starts agents, workflows and tools.
    Script(ScriptConfig),
    /// Chooses the next node.
    Route(RouteConfig),
    /// Starts a thread for each path.
    Fork(ForkConfig),
    /// Waits for a FORK's threads by strategy and timeout.
    Join(JoinConfig),
    /// Runs another workflow and waits.
    Subgraph(SubgraphConfig),
    /// Runs another workflow for each item of a list, and joins them.
    Map(MapConfig),
    /// Changes the conversation.
    ContextProcessor(ContextOperation),
    /// Waits for a time or an event.
    Wait(WaitConfig),
    /// Calls one tool, without a model.
    Tool(ToolConfig),
    /// Asks a person a question and waits.
    UserInteraction(UserInteractionConfig),
    /// Starts a loop.
    LoopStart(LoopStartConfig),
    /// Ends an iteration of a loop.
    LoopEnd(LoopEndConfig),
    /// First node of a triggered sub-workflow.
    StartFromTrigger,
    /// Last node of a triggered sub-workflow.
    ContinueFromTrigger(ContinueFromTriggerConfig),
}

/// Outgoing transitions of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NodeExits<'a> {
    /// The node's edges.
    Edges,
    /// The routes of a ROUTE; its edges are only drawn.
    Routes(&'a RouteConfig),
    /// The paths of a FORK, one thread each.
    Paths(&'a ForkConfig),
}

impl NodeConfig {
    /// Type words of workflow files, in the order of the variants.
    pub const TYPES: [&'static str; 19] = [
        "START",
        "END",
        "VARIABLE",
        "LLM",
        "CODE",
        "SCRIPT",
        "ROUTE",
        "FORK",
        "JOIN",
        "SUBGRAPH",
        "MAP",
        "CONTEXT_PROCESSOR",
        "WAIT",
        "TOOL",
        "USER_INTERACTION",
        "LOOP_START",
        "LOOP_END",
        "START_FROM_TRIGGER",
        "CONTINUE_FROM_TRIGGER",
    ];

    /// Returns the type word of workflow files, such as `CONTEXT_PROCESSOR`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::End(_) => "END",
            Self::Variable(_) => "VARIABLE",
            Self::Llm(_) => "LLM",
            Self::Code(_) => "CODE",
            Self::Script(_) => "SCRIPT",
            Self::Route(_) => "ROUTE",
            Self::Fork(_) => "FORK",
            Self::Join(_) => "JOIN",
            Self::Subgraph(_) => "SUBGRAPH",
            Self::Map(_) => "MAP",
            Self::ContextProcessor(_) => "CONTEXT_PROCESSOR",
            Self::Wait(_) => "WAIT",
            Self::Tool(_) => "TOOL",
            Self::UserInteraction(_) => "USER_INTERACTION",
            Self::LoopStart(_) => "LOOP_START",
            Self::LoopEnd(_) => "LOOP_END",
            Self::StartFromTrigger => "START_FROM_TRIGGER",
            Self::ContinueFromTrigger(_) => "CONTINUE_FROM_TRIGGER",
        }
    }

    /// Returns the outgoing transitions of the node. A ROUTE without routes uses its edges.
    pub fn exits(&self) -> NodeExits<'_> {
        match self {
            Self::Route(route) if !route.routes.is_empty() || route.default_target_node_id.is_some() => {
                NodeExits::Routes(route)
            }
            Self::Fork(fork) => NodeExits::Paths(fork),
            Self::Start
            | Self::End(_)
            | Self::Variable(_)
            | Self::Llm(_)
            | Self::Code(_)
            | Self::Script(_)
            | Self::Route(_)
            | Self::Join(_)
            | Self::Subgraph(_)
            | Self::Map(_)
            | Self::ContextProcessor(_)
            | Self::Wait(_)
            | Self::Tool(_)
            | Self::UserInteraction(_)
            | Self::LoopStart(_)
            | Self::LoopEnd(_)
            | Self::StartFromTrigger
            | Self::ContinueFromTrigger(_) => NodeExits::Edges,
        }
    }

    /// Returns the configuration of a FORK; `None` for other types.
    pub fn as_fork(&self) -> Option<&ForkConfig> {
        if let Self::Fork(fork) = self { Some(fork) } else { None }
    }

    /// Returns the configuration of a JOIN; `None` for other types.
    pub fn as_join(&self) -> Option<&JoinConfig> {
        if let Self::Join(join) = self { Some(join) } else { None }
    }

    /// Returns the configuration of a SUBGRAPH; `None` for other types.
    pub fn as_subgraph(&self) -> Option<&SubgraphConfig> {
        if let Self::Subgraph(subgraph) = self {
            Some(subgraph)
        } else {
            None
        }
    }
}

/// Configuration of END.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndConfig {
    /// Expression for the thread's output. Absent: the last node's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The type of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VariableType {
    /// A number; text that reads as one is converted.
    Number,
    /// Text.
    String,
    /// true or false.
    Boolean,
    /// A list.
    Array,
    /// An object.
    Object,
}

impl VariableType {
    /// Returns true if the value has this type, without a conversion.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

/// The owner of a variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VariableScope {
    /// The variable belongs to a thread; a branch starts with a copy.
    #[default]
    Thread,
    /// The variable belongs to the run; all threads see the last write.
    Global,
    /// The variable belongs to the run, and is passed from each run of a session to the next.
    Session,
}

/// Configuration of VARIABLE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VariableConfig {
    /// The name of the variable (`variable` is an alias).
    #[serde(alias = "variable")]
    pub variable_name: String,
    /// Expression for the new value.
    pub expression: String,
    /// Type of the value, which is checked. A string that denotes a number or a boolean is converted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable_type: Option<VariableType>,
    /// Scope of the variable. Absent: the scope that `variables` declares for this name, otherwise `thread`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<VariableScope>,
    /// True if later assignments fail with `READONLY_VARIABLE`.
    #[serde(default)]
    pub readonly: bool,
}

/// Configuration of LLM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LlmConfig {
    /// Id of a profile, or a template of it. Absent: the default profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// Template of a user message, which is appended to the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Further parts of the same user message, after the prompt: a list of `{type: text | image | file, ...}` with templates in
    /// its strings, or one expression that returns such a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Value>,
    /// Template of the request's system message, used if the conversation has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Registered tools: names, or `{name, deferred}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolEntry>,
    /// Skills that the model may read, instead of those of the workflow: folders with a `SKILL.md`, relative to the workflow file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<SkillEntry>>"))]
    pub skills: Option<Vec<Skill>>,
    /// True to offer the tools of the run's client as well (default: true in the main thread, false in other threads).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<bool>,
    /// Overrides the profile's parameters; strings are templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
    /// Maximum number of rounds of tool calls (default 10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_rounds: Option<u32>,
    /// Policy if the model requests tools after the last round (default `fail`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<ToolRoundLimit>,
    /// `{ type: "json_schema", schema, name? }`: the reply is checked, retried once with the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
    /// Rules for the workflows that the model writes and runs by the tool `run_workflow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<Box<DynamicConfig>>,
    /// Limits of the scripts that the model runs by the tool `run_code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_limits: Option<CodeModeLimits>,
}

/// Policy if a model requests tools after the last round that its node allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ToolRoundLimit {
    /// The node fails with `TOOL_ROUNDS_EXCEEDED`.
    #[default]
    Fail,
    /// Sends one more request to the model, without tools.
    Answer,
}

/// Configuration of CODE: exactly one of `code` and `function`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CodeConfig {
    /// Body of a JavaScript async function, which returns the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Name of a registered Rust function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Input of the script or function (default: the thread's `input`): text is an expression, anything else is used literally,
    /// with templates in its strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// Configuration of SCRIPT.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptConfig {
    /// Body of a JavaScript async function, which may start with `export const meta = {...}`. Its return value is the output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// Path of a file with the code, relative to the workflow file; instead of `code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Value of `args` in the script (default: the thread's `input`): text is an expression, anything else is used literally, with
    /// templates in its strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Profile of agents that name none (default: the default profile).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// Profile for each value of an agent's option `model`. Other values are ignored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, String>,
    /// Tools that the script and its agents may call. Agents that name no tools have all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Profiles that agents may name (default: all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Vec<String>>,
    /// Registered workflows that the script may start (default: all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflows: Option<Vec<String>>,
    /// Limits of the script.
    #[serde(default)]
    pub limits: ScriptLimits,
    /// Maximum bytes of the output. The tool `run_code` sets it: the script then calls tools only, and its output is the text of its return
    /// value and its log lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub tool_result_bytes: Option<u64>,
}

/// Limits of a SCRIPT. A script that exceeds one fails with `SCRIPT_LIMIT_EXCEEDED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptLimits {
    /// Maximum number of agents and workflows (default 100).
    pub agents: u32,
    /// Maximum number of agents, workflows and tools at once (default 16). Further ones wait.
    pub concurrency: u32,
    /// Maximum number of calls of host functions (default 10000).
    pub calls: u32,
    /// Maximum bytes of all results that the script receives (default 8388608).
    pub result_bytes: u64,
    /// Time limit of an attempt in milliseconds (default: none).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            agents: 100,
            concurrency: 16,
            calls: 10_000,
            result_bytes: 8 << 20,
            time_ms: None,
        }
    }
}

/// Configuration of ROUTE.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteConfig {
    /// Routes; evaluated by priority (highest first), then in list order.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The node to continue at if no route matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_target_node_id: Option<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// Expression; the route is taken if it is true.
    pub condition: String,
    /// The node to continue at if the condition is true.
    pub target_node_id: String,
    /// Routes with a higher priority are evaluated first (default 0).
    #[serde(default, serialize_with = "crate::definition::field_values::finite_or_text")]
    pub priority: f64,
}

/// The scheduling of a FORK's paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ForkStrategy {
    /// Branches run one after another, in path order.
    Serial,
    /// Branches run concurrently, up to `maxConcurrentBranches`.
    #[default]
    Parallel,
}

/// Configuration of FORK, after normalisation of the legacy forms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkConfig {
    /// The paths, in order.
    #[serde(default)]
    pub fork_path_ids: Vec<String>,
    /// Path `i` starts at `childNodeIds[i]`.
    #[serde(default)]
    pub child_node_ids: Vec<String>,
    /// Scheduling of the paths.
    #[serde(default)]
    pub fork_strategy: ForkStrategy,
}

/// Condition under which a JOIN succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JoinStrategy {
    /// Every path has completed.
    #[default]
    AllCompleted,
    /// At least one path has completed.
    AnyCompleted,
    /// Every path has failed.
    AllFailed,
    /// At least one path has failed.
    AnyFailed,
    /// At least `threshold` paths have completed.
    SuccessCountThreshold,
}

impl JoinStrategy {
    /// Returns the word of workflow files, such as `ALL_COMPLETED`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllCompleted => "ALL_COMPLETED",
            Self::AnyCompleted => "ANY_COMPLETED",
            Self::AllFailed => "ALL_FAILED",
            Self::AnyFailed => "ANY_FAILED",
            Self::SuccessCountThreshold => "SUCCESS_COUNT_THRESHOLD",
        }
    }
}

/// Policy for the paths that are running when a JOIN is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnDecided {
    /// The remaining branches are cancelled.
    #[default]
    Cancel,
    /// The remaining branches continue, and their results are ignored.
    Detach,
}

/// Branches whose thread variables are merged at a JOIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum MergeVariables {
    /// No branch.
    #[default]
    None,
    /// The main path.
    Main,
    /// Every completed path; two different values for one name are `VARIABLE_MERGE_CONFLICT`.
    All,
}

/// Configuration of JOIN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinConfig {
    /// Paths of the paired FORK, in its order.
    #[serde(default)]
    pub fork_path_ids: Vec<String>,
    /// Condition under which the node succeeds.
    pub join_strategy: JoinStrategy,
    /// Required number of completed paths for SUCCESS_COUNT_THRESHOLD, from 1 to the number of paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
    /// Time limit in seconds, fractions allowed. 0 or absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// The path whose conversation replaces the parent's (default: the first path).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_path_id: Option<String>,
    /// Policy for the paths that have not ended when the JOIN is decided.
    #[serde(default)]
    pub on_decided: OnDecided,
    /// Branches whose thread variables are merged.
    #[serde(default)]
    pub merge_variables: MergeVariables,
}

/// The conversation of a called sub-workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConversationMode {
    /// The caller's conversation: the caller sees appended messages.
    Share,
    /// A snapshot of the caller's conversation.
    #[default]
    Fork,
    /// An empty conversation.
    None,
}

/// A sub-agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// Id of the sub-agent, for errors.
    pub id: String,
    /// Role of the sub-agent. If absent, the start fails with `SUB_AGENT_ROLE_MISSING`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Instructions that follow the role in the first prompt, separated by blank lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
}

/// Configuration of SUBGRAPH.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubgraphConfig {
    /// The workflow to run.
    pub subgraph_id: String,
    /// Input of the called workflow: text is an expression, anything else is used literally, with templates in its strings.
    /// Absent: the last node's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Expression over the child's output (as `output`); absent: that output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Conversation of the called workflow.
    #[serde(default)]
    pub conversation: ConversationMode,
    /// Sub-agent as which the called workflow runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentConfig>,
}

/// The conversation that the thread of a MAP's item starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ItemConversation {
    /// An empty conversation.
    #[default]
    None,
    /// A snapshot of the conversation of the MAP's thread.
    Fork,
}

/// MAP: a branch thread for each item, which runs the sub-workflow; joined like the paths of a FORK.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MapConfig {
    /// A list, or an object, which is read as a list of `{key, value}`: text is an expression, anything else is used literally,
    /// with templates in its strings.
    pub items: Value,
    /// The workflow to run for each item.
    pub subgraph_id: String,
    /// The key of the item in `input` (default `item`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_name: Option<String>,
    /// The sub-workflow's input, which can use the item and its `index`: text is an expression, anything else is used literally,
    /// with templates in its strings; absent: the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Maximum number of concurrent threads (default `config.maxConcurrentBranches`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Condition under which the node succeeds.
    #[serde(default)]
    pub join_strategy: JoinStrategy,
    /// Required number of completed items for SUCCESS_COUNT_THRESHOLD, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
    /// Time limit in seconds, fractions allowed. 0 or absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Policy for the paths that have not ended when the JOIN is decided.
    #[serde(default)]
    pub on_decided: OnDecided,
    /// The conversation of each item's thread.
    #[serde(default)]
    pub conversation: ItemConversation,
    /// Thread variables of the items' threads to merge: values of one name are combined by its `reduce`, in item order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assign: Vec<String>,
    /// Maximum number of items (default 1000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u32>,
}

impl MapConfig {
    /// Returns the maximum number of items, with the default.
    pub fn most_items(&self) -> u32 {
        self.max_items.unwrap_or(1000)
    }
}

/// Configuration of WAIT: exactly one of `seconds` and `event`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitConfig {
    /// The time in seconds, fractions allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The event to wait for: the name of a CUSTOM event, or an event type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Time limit in seconds, after which the node fails with `NODE_TIMEOUT`. 0 or absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

/// Configuration of TOOL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolConfig {
    /// Name of the tool.
    pub tool: String,
    /// Arguments of the tool: text is an expression, anything else is used literally, with templates in its strings; absent: `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Thread variable that receives the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign_to: Option<String>,
}

/// LOOP_START: repeats the nodes up to the LOOP_END with its `loopId`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoopStartConfig {
    /// Id of the loop, unique in the workflow.
    pub loop_id: String,
    /// The items; absent: the loop counts from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<LoopDataSource>,
    /// Maximum number of iterations; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u64>,
    /// The policy at `maxIterations` with items left.
    #[serde(default)]
    pub on_limit: LoopLimit,
}

/// The items of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoopDataSource {
    /// A list; an object, as `{key, value}`; a whole number n, as 0 to n - 1; a string, as its characters; or an expression or a
    /// `{{path}}` that returns one of these.
    pub iterable: Value,
    /// Thread variable that receives each item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable_name: Option<String>,
}

/// The policy of a loop that reaches `maxIterations` with items left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LoopLimit {
    /// LOOP_END fails with `LOOP_LIMIT_EXCEEDED`.
    #[default]
    Fail,
    /// The loop ends as if there were no more items.
    Finish,
}

/// Configuration of LOOP_END.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoopEndConfig {
    /// Id of the loop whose iteration ends here.
    pub loop_id: String,
    /// Expression that is evaluated after each iteration; the loop ends if it is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_condition: Option<String>,
}

/// Configuration of CONTINUE_FROM_TRIGGER.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContinueFromTriggerConfig {
    /// Variables passed to the main thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable_callback: Option<VariableCallback>,
    /// Messages passed to the main thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_history_callback: Option<HistoryCallback>,
}

/// Variables passed to the main thread: one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VariableCallback {
    /// Names of the variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_variables: Option<Vec<String>>,
    /// True to pass all variables.
    #[serde(default)]
    pub include_all: bool,
}

/// The placement of returned messages in the main thread's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum HistoryCallbackMode {
    /// Messages are appended to the history.
    Append,
    /// Messages replace the visible history, in a new batch.
    Replace,
}

/// Messages passed to the main thread, and their placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryCallback {
    /// Placement of the messages. Absent: `replace` for token events, otherwise `append`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<HistoryCallbackMode>,
    /// The last N visible messages, as in [`ConversationHistoryOptions`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_n: Option<u64>,
    /// The last `count` visible messages of a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_n_by_role: Option<RoleCount>,
    /// Every visible message of a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_role: Option<Role>,
    /// Half-open indices into the complete history; archived messages are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<HistoryRange>,
    /// Half-open indices among the visible messages of a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_by_role: Option<RoleRange>,
}

impl HistoryCallback {
    /// Returns the selection in the fields other than `mode`.
    pub fn selection(&self) -> ConversationHistoryOptions {
        ConversationHistoryOptions {
            last_n: self.last_n,
            last_n_by_role: self.last_n_by_role,
            by_role: self.by_role,
            range: self.range,
            range_by_role: self.range_by_role,
        }
    }
}
