//! The node types and their configs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ContextOperation, ConversationHistoryOptions, HistoryRange, RoleCount, RoleRange, UserInteractionConfig};
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
    /// Evaluates and assigns.
    Variable(VariableConfig),
    /// Calls a model.
    Llm(LlmConfig),
    /// Runs JavaScript or a registered function.
    Code(CodeConfig),
    /// Chooses the next node.
    Route(RouteConfig),
    /// Starts one thread a path.
    Fork(ForkConfig),
    /// Waits for a FORK's threads by strategy and timeout.
    Join(JoinConfig),
    /// Runs another workflow and waits.
    Subgraph(SubgraphConfig),
    /// Runs another workflow for each item of a list, and joins them.
    Map(MapConfig),
    /// Changes the conversation.
    ContextProcessor(ContextOperation),
    /// A timer, or a matching event.
    Wait(WaitConfig),
    /// Calls one tool, without a model.
    Tool(ToolConfig),
    /// Asks a person and waits.
    UserInteraction(UserInteractionConfig),
    /// Begins a loop.
    LoopStart(LoopStartConfig),
    /// Ends an iteration of a loop.
    LoopEnd(LoopEndConfig),
    /// First node of a triggered sub-workflow.
    StartFromTrigger,
    /// Last node of a triggered sub-workflow.
    ContinueFromTrigger(ContinueFromTriggerConfig),
}

/// The ways threads leave a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NodeExits<'a> {
    /// By the edges that are drawn.
    Edges,
    /// By what a ROUTE lists; its edges are for the drawing.
    Routes(&'a RouteConfig),
    /// By the paths of a FORK, a thread each.
    Paths(&'a ForkConfig),
}

impl NodeConfig {
    /// The type words, in the order of the variants.
    pub const TYPES: [&'static str; 18] = [
        "START",
        "END",
        "VARIABLE",
        "LLM",
        "CODE",
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

    /// The canonical type word: `CONTEXT_PROCESSOR`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::End(_) => "END",
            Self::Variable(_) => "VARIABLE",
            Self::Llm(_) => "LLM",
            Self::Code(_) => "CODE",
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

    /// The ways threads leave such a node. A ROUTE without routes goes by its edges.
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

    /// A FORK's configuration.
    pub fn as_fork(&self) -> Option<&ForkConfig> {
        if let Self::Fork(fork) = self { Some(fork) } else { None }
    }

    /// A JOIN's configuration.
    pub fn as_join(&self) -> Option<&JoinConfig> {
        if let Self::Join(join) = self { Some(join) } else { None }
    }

    /// A SUBGRAPH's configuration.
    pub fn as_subgraph(&self) -> Option<&SubgraphConfig> {
        if let Self::Subgraph(subgraph) = self {
            Some(subgraph)
        } else {
            None
        }
    }
}

/// END.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndConfig {
    /// Expression; absent: the last node's output.
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

/// The owner of a variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VariableScope {
    /// The thread's own; a branch gets a copy.
    #[default]
    Thread,
    /// The run's; the last write is seen by all.
    Global,
    /// The run's, and handed on from each run of a session to the next.
    Session,
}

/// VARIABLE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VariableConfig {
    /// The name of the variable (`variable` is an alias).
    #[serde(alias = "variable")]
    pub variable_name: String,
    /// Expression whose value is assigned.
    pub expression: String,
    /// Checked and, for text that reads as a number or boolean, converted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable_type: Option<VariableType>,
    /// The thread's or the run's; absent: the scope that `variables` declares for this name, or the thread's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<VariableScope>,
    /// True to make later assignments `READONLY_VARIABLE`.
    #[serde(default)]
    pub readonly: bool,
}

/// LLM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LlmConfig {
    /// A profile's id, or a template that gives one; absent: the default profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// Template; joins the conversation as a user message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Texts, images and files of the same user message, after the prompt: a list of `{type: text | image | file, ...}` with
    /// templates in its strings, or one expression that gives such a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Value>,
    /// Template; the request's system message where the conversation has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Names of registered tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Laid over the profile's parameters; strings are templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
    /// Rounds of tool calls (default 10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_rounds: Option<u32>,
    /// The policy where the model asks for tools once more after the last round (default `fail`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<ToolRoundLimit>,
    /// `{ type: "json_schema", schema, name? }`: the reply is checked, retried once with the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
}

/// The policy where a model asks for tools after the last round that its node allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ToolRoundLimit {
    /// The node fails with `TOOL_ROUNDS_EXCEEDED`.
    #[default]
    Fail,
    /// The model is asked once more, without tools.
    Answer,
}

/// CODE: exactly one of `code` and `function`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CodeConfig {
    /// JavaScript: the body of an async function; what it returns is the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A registered Rust function's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Its input (default: the thread's `input`): text is an expression, anything else is taken as it is, with templates in its
    /// strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// ROUTE.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteConfig {
    /// Tried by priority (highest first), then list order.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The node to go to when none holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_target_node_id: Option<String>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// Expression.
    pub condition: String,
    /// The node to go to when it holds.
    pub target_node_id: String,
    /// Higher is tried first (default 0).
    #[serde(default)]
    pub priority: f64,
}

/// The scheduling of a FORK's paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ForkStrategy {
    /// One after another, in path order.
    Serial,
    /// All at once, bounded by `maxConcurrentBranches`.
    #[default]
    Parallel,
}

/// FORK, after normalisation of the legacy forms.
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
    /// Serial or parallel.
    #[serde(default)]
    pub fork_strategy: ForkStrategy,
}

/// When a JOIN succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JoinStrategy {
    /// Every path completed.
    #[default]
    AllCompleted,
    /// One completed.
    AnyCompleted,
    /// Every path failed.
    AllFailed,
    /// One failed.
    AnyFailed,
    /// `threshold` completed.
    SuccessCountThreshold,
}

impl JoinStrategy {
    /// The word: `ALL_COMPLETED`.
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

/// The fate of the paths that still run when a JOIN is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnDecided {
    /// They are cancelled.
    #[default]
    Cancel,
    /// They run on, their results ignored.
    Detach,
}

/// The branches whose thread variables come back at a JOIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum MergeVariables {
    /// None.
    #[default]
    None,
    /// The main path's.
    Main,
    /// Every completed path's; two different values for one name are `VARIABLE_MERGE_CONFLICT`.
    All,
}

/// JOIN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinConfig {
    /// The paired FORK's paths, order included.
    #[serde(default)]
    pub fork_path_ids: Vec<String>,
    /// When it succeeds.
    pub join_strategy: JoinStrategy,
    /// For SUCCESS_COUNT_THRESHOLD: 1 to the number of paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
    /// Seconds, fractions allowed; 0 or absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// The path whose conversation the parent takes (default: the first path).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_path_id: Option<String>,
    /// The rest, once decided.
    #[serde(default)]
    pub on_decided: OnDecided,
    /// Thread variables that come back.
    #[serde(default)]
    pub merge_variables: MergeVariables,
}

/// The conversation of a called sub-workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConversationMode {
    /// The caller's own: what it appends, the caller sees.
    Share,
    /// A snapshot of the caller's.
    #[default]
    Fork,
    /// An empty one.
    None,
}

/// A sub-agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// For errors.
    pub id: String,
    /// Its role; absent is `SUB_AGENT_ROLE_MISSING` when it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Follow the role in its first prompt, blank lines between.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
}

/// SUBGRAPH.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubgraphConfig {
    /// The workflow to run.
    pub subgraph_id: String,
    /// Its input: text is an expression, anything else is taken as it is, with templates in its strings;
    /// absent: the last node's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Expression over the child's output (as `output`); absent: that output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Its conversation.
    #[serde(default)]
    pub conversation: ConversationMode,
    /// Makes it a sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentConfig>,
}

/// The conversation that the thread of a MAP's item starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ItemConversation {
    /// An empty one.
    #[default]
    None,
    /// A snapshot of the MAP's.
    Fork,
}

/// MAP: a branch thread for each item, which runs the sub-workflow; joined as a FORK's are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MapConfig {
    /// A list, or an object, whose items are `{key, value}`: text is an expression, anything else is taken as it is, with
    /// templates in its strings.
    pub items: Value,
    /// The workflow to run for each item.
    pub subgraph_id: String,
    /// The name that `input` has the item under (default `item`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_name: Option<String>,
    /// The sub-workflow's input, which sees the item and its `index`: text is an expression, anything else is taken as it
    /// is, with templates in its strings; absent: the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Threads at once (default `config.maxConcurrentBranches`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// When it succeeds.
    #[serde(default)]
    pub join_strategy: JoinStrategy,
    /// For SUCCESS_COUNT_THRESHOLD: at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
    /// Seconds, fractions allowed; 0 or absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// The rest, once decided.
    #[serde(default)]
    pub on_decided: OnDecided,
    /// The conversation of each item's thread.
    #[serde(default)]
    pub conversation: ItemConversation,
    /// Thread variables of the items' threads that come back: those of one name become one by its `reduce`, in item order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assign: Vec<String>,
    /// Items at most (default 1000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u32>,
}

/// WAIT: exactly one of `seconds` and `event`.
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
    /// Seconds; passing it is `NODE_TIMEOUT`. 0 or absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

/// TOOL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolConfig {
    /// The tool's name.
    pub tool: String,
    /// Its arguments: text is an expression, anything else is taken as it is, with templates in its strings; absent: `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The thread variable that takes the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign_to: Option<String>,
}

/// LOOP_START: repeats the nodes up to the LOOP_END of the same `loopId`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoopStartConfig {
    /// Unique in the workflow.
    pub loop_id: String,
    /// The items; absent: the loop counts from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<LoopDataSource>,
    /// Iterations at most; at least 1.
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
    /// A list; an object, as `{key, value}`; a whole number n, as 0 to n - 1; a text, as its characters; or text that is an
    /// expression or a `{{path}}` whose value is one of these.
    pub iterable: Value,
    /// The thread variable that takes each item.
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

/// LOOP_END.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoopEndConfig {
    /// The loop that it ends.
    pub loop_id: String,
    /// Expression; the loop ends after the iteration in which it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_condition: Option<String>,
}

/// CONTINUE_FROM_TRIGGER.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContinueFromTriggerConfig {
    /// Variables handed to the main thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable_callback: Option<VariableCallback>,
    /// Messages handed to the main thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_history_callback: Option<HistoryCallback>,
}

/// The variables that go back: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VariableCallback {
    /// These.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_variables: Option<Vec<String>>,
    /// All.
    #[serde(default)]
    pub include_all: bool,
}

/// The placement of returned messages in the main thread's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum HistoryCallbackMode {
    /// At its end.
    Append,
    /// In its place, in a new batch.
    Replace,
}

/// The messages that go back, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryCallback {
    /// Default: append, but replace for token events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<HistoryCallbackMode>,
    /// See [`ConversationHistoryOptions`], as all that follow.
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
    /// The selection that stands beside `mode`.
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
