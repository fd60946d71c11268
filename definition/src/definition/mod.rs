//! Content of a workflow file: the canonical types that the loader produces.
//!
//! A value of these types contains what the user wrote, with aliases resolved and legacy forms normalised; [`crate::graph`]
//! checks that it is a valid graph.
//!
//! Not here: anything about a run, and rules that need a whole workflow ([`crate::graph`]).

mod aliases;
mod compression_parameter;
mod either;
mod fault;
mod field_values;
pub(crate) mod json;
mod load;
mod node_options;
mod origin;
mod pinned;
#[cfg(feature = "schema")]
mod schema;
mod script_workflow;
mod skill;
mod variable_name;
mod workflows;

pub use compression_parameter::{CompressionParameter, ParameterKind};
pub(crate) use fault::bounded;
pub use fault::{Fault, FaultCode, MAX_FAULTS, Position};
pub use json::{JsonError, JsonErrorKind, json_from_slice, json_from_str, json_from_value, pointer_token};
pub(crate) use load::steps_of;
pub use load::{Loaded, load, nearest, script_files, skill_folders};
pub use node_options::code_mode::CodeModeLimits;
pub use node_options::context_operation::{
    AllWord, ClearContext, CompressionConfig, ContextOperation, FilterContext, InsertContext, PinContext,
    ReplaceContext, Replacement, Target, Text, TextMessage, TruncateContext,
};
pub use node_options::dynamic::{DynamicConfig, DynamicConsent, DynamicForm, DynamicLimits};
pub use node_options::history_options::{
    ConversationHistoryOptions, HistoryRange, HistorySelection, RoleCount, RoleRange, SelectionFault, SelectionWarning,
};
pub use node_options::interaction::{OnTimeout, TimeoutTarget, TimeoutWord, UserInteractionConfig};
pub use origin::{Located, Origin, ScriptFiles, SkillFolders, SourceFile, Unreadable};
pub use pinned::{FolderNotes, PinSection, Pinned, PinnedText, TodoItem, TodoStatus, UsefulInfo};
#[cfg(feature = "schema")]
pub use schema::schema;
pub(crate) use script_workflow::script_workflow;
pub use script_workflow::{AgentOptions, agent_workflow, workflow_of_script};
pub use skill::{MAX_SKILL_BYTES, MAX_SKILL_FILES, MAX_SKILLS, SKILL_FILE, Skill, SkillError, SkillHead};
pub use variable_name::{misplaced_secrets, shown_variable_name, variable_name_fault, variable_text_fault};
pub use workflows::built_in_tools::BuiltInTool;
pub use workflows::nodes::{
    AgentConfig, CodeConfig, ContinueFromTriggerConfig, ConversationMode, EndConfig, ForkConfig, ForkStrategy,
    HistoryCallback, HistoryCallbackMode, ItemConversation, JoinConfig, JoinStrategy, LlmConfig, LoopDataSource,
    LoopEndConfig, LoopLimit, LoopStartConfig, MapConfig, MergeVariables, NodeConfig, NodeExits, OnDecided, Route,
    RouteConfig, ScriptConfig, ScriptLimits, SubgraphConfig, ToolConfig, ToolRoundLimit, VariableCallback,
    VariableConfig, VariableScope, VariableType, WaitConfig,
};
pub use workflows::schedule::{CatchUp, Overlap, ScheduleDefinition, schedule_name};
pub use workflows::tool_definition::{ClientToolsError, MAX_CLIENT_TOOL_BYTES, MAX_CLIENT_TOOLS, ToolDefinition};
pub use workflows::tool_entry::{ToolEntry, workflow_of_tool, workflow_tool_name};
pub use workflows::trigger::{
    ExecuteTriggeredSubgraph, MergeOptions, TriggerAction, TriggerCondition, TriggerDefinition, TriggerInput,
};
pub use workflows::workflow::{
    Budget, DEFAULT_MAX_STEPS, EdgeDefinition, InDoubt, Limits, MIN_RESULT_TOKENS, NodeDefinition, OnError, Profile,
    Reducer, ReducerWord, RetryPolicy, VariableDefinition, WorkflowConfig, WorkflowDefinition,
};
