//! Content of a workflow file: the canonical types that the loader produces.
//!
//! A value of these types contains what the user wrote, with aliases resolved and legacy forms normalised; [`crate::graph`]
//! checks that it is a valid graph.
//!
//! Not here: anything about a run, and rules that need a whole workflow ([`crate::graph`]).

mod aliases;
mod budget;
mod built_in_tools;
mod context_operation;
mod either;
mod fault;
mod history_options;
mod interaction;
pub(crate) mod json;
mod load;
mod nodes;
mod origin;
mod pinned;
mod schedule;
#[cfg(feature = "schema")]
mod schema;
mod trigger;
mod variable_name;
mod workflow;

pub use budget::Budget;
pub use built_in_tools::BuiltInTool;
pub use context_operation::{
    AllWord, ClearContext, CompressionConfig, ContextOperation, FilterContext, InsertContext, PinContext,
    ReplaceContext, Replacement, Target, Text, TextMessage, TruncateContext,
};
pub(crate) use fault::bounded;
pub use fault::{Fault, FaultCode, MAX_FAULTS, Position};
pub use history_options::{
    ConversationHistoryOptions, HistoryRange, HistorySelection, RoleCount, RoleRange, SelectionFault, SelectionWarning,
};
pub use interaction::{OnTimeout, TimeoutTarget, TimeoutWord, UserInteractionConfig};
pub use json::{JsonError, JsonErrorKind, json_from_slice, json_from_str, json_from_value};
pub use load::{Loaded, load, nearest};
pub use nodes::{
    AgentConfig, CodeConfig, ContinueFromTriggerConfig, ConversationMode, EndConfig, ForkConfig, ForkStrategy,
    HistoryCallback, HistoryCallbackMode, ItemConversation, JoinConfig, JoinStrategy, LlmConfig, LoopDataSource,
    LoopEndConfig, LoopLimit, LoopStartConfig, MapConfig, MergeVariables, NodeConfig, NodeExits, OnDecided, Route,
    RouteConfig, SubgraphConfig, ToolConfig, ToolRoundLimit, VariableCallback, VariableConfig, VariableScope,
    VariableType, WaitConfig,
};
pub use origin::{Located, Origin, SourceFile};
pub use pinned::{FolderNotes, PinSection, Pinned, PinnedText, TodoItem, TodoStatus, UsefulInfo};
pub use schedule::{CatchUp, Overlap, ScheduleDefinition};
#[cfg(feature = "schema")]
pub use schema::schema;
pub use trigger::{
    ExecuteTriggeredSubgraph, MergeOptions, TriggerAction, TriggerCondition, TriggerDefinition, TriggerInput,
};
pub use variable_name::{misplaced_secrets, shown_variable_name, variable_name_fault, variable_text_fault};
pub use workflow::{
    DEFAULT_MAX_STEPS, EdgeDefinition, InDoubt, Limits, MIN_RESULT_TOKENS, NodeDefinition, OnError, Profile, Reducer,
    ReducerWord, RetryPolicy, VariableDefinition, WorkflowConfig, WorkflowDefinition,
};
