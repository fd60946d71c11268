//! The one table of every field the loader knows, with the other names it is read under.
//!
//! The loader renames by it, finds unknown fields by it, and the published schema takes its aliases from it.

use super::read::{Problem, problems};
use crate::definition::json::Tree;
use crate::definition::{ConversationHistoryOptions, FolderNotes, TextMessage, TodoItem, UsefulInfo};

/// The fields of one kind of object.
pub(crate) struct Shape {
    /// The Rust type that holds it, for the schema.
    #[cfg_attr(not(feature = "schema"), expect(dead_code, reason = "only the schema asks"))]
    pub(crate) type_name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// One field.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) holds: Holds,
}

/// What a field holds, as far as the loader cares before serde does.
#[derive(Clone, Copy)]
pub(crate) enum Holds {
    /// Any value, `null` included.
    Value,
    /// Whatever the type says; `null` counts as absent.
    Plain,
    /// A word that is read in either case, upper in canonical form.
    Upper,
    /// A word that is read in either case, lower in canonical form.
    Lower,
    /// An object, or a list of objects; anything else is left to serde.
    Object(&'static Shape),
    /// Text or a flag, or something that must be of a type; looked at here because serde says nothing useful about
    /// untagged enums.
    Either(&'static Shape, fn(&Tree) -> Vec<Problem>),
}

const fn field(name: &'static str, holds: Holds) -> Field {
    Field {
        name,
        aliases: &[],
        holds,
    }
}

const fn also(name: &'static str, aliases: &'static [&'static str], holds: Holds) -> Field {
    Field { name, aliases, holds }
}

use Holds::{Either, Lower, Object, Plain, Upper, Value};

pub(crate) static BUNDLE: Shape = Shape {
    type_name: "Bundle",
    fields: &[
        field("workflows", Value),
        field("triggers", Value),
        field("profiles", Value),
    ],
};

pub(crate) static WORKFLOW: Shape = Shape {
    type_name: "WorkflowDefinition",
    fields: &[
        field("id", Plain),
        field("name", Plain),
        field("version", Plain),
        field("description", Plain),
        field("metadata", Plain),
        field("variables", Object(&VARIABLE_DEFINITION)),
        field("nodes", Plain),
        field("edges", Object(&EDGE)),
        field("triggers", Plain),
        field("config", Object(&WORKFLOW_CONFIG)),
    ],
};

static VARIABLE_DEFINITION: Shape = Shape {
    type_name: "VariableDefinition",
    fields: &[
        field("name", Plain),
        field("type", Lower),
        also("value", &["defaultValue"], Value),
        field("scope", Lower),
        field("readonly", Plain),
        field("description", Plain),
    ],
};

static EDGE: Shape = Shape {
    type_name: "EdgeDefinition",
    fields: &[
        field("id", Plain),
        also("sourceNodeId", &["from"], Plain),
        also("targetNodeId", &["to"], Plain),
        field("type", Plain),
        field("label", Plain),
        field("condition", Plain),
        field("weight", Plain),
    ],
};

static WORKFLOW_CONFIG: Shape = Shape {
    type_name: "WorkflowConfig",
    fields: &[
        field("maxSteps", Plain),
        field("maxConcurrentBranches", Plain),
        field("maxDepth", Plain),
        field("timeoutMs", Plain),
        field("tokenLimit", Plain),
        field("tokenizer", Plain),
        field("compression", Object(&COMPRESSION)),
        field("pinned", Object(&PINNED)),
        field("fromEnd", Plain),
    ],
};

static COMPRESSION: Shape = Shape {
    type_name: "CompressionConfig",
    fields: &[field("strategy", Plain), field("parameters", Plain)],
};

static PINNED: Shape = Shape {
    type_name: "Pinned",
    fields: &[
        field("role", Plain),
        field("todo", Either(&TODO, problems::<Vec<TodoItem>>)),
        field("usefulInfo", Either(&USEFUL_INFO, problems::<Vec<UsefulInfo>>)),
        field("folderNotes", Either(&OPEN, problems::<FolderNotes>)),
    ],
};

/// An object whose keys are the user's.
pub(crate) static OPEN: Shape = Shape {
    type_name: "",
    fields: &[],
};

static TODO: Shape = Shape {
    type_name: "TodoItem",
    fields: &[field("content", Plain), field("status", Plain)],
};

static USEFUL_INFO: Shape = Shape {
    type_name: "UsefulInfo",
    fields: &[field("file", Plain), field("lines", Plain), field("text", Plain)],
};

pub(crate) static NODE: Shape = Shape {
    type_name: "NodeDefinition",
    fields: &[
        field("id", Plain),
        field("name", Plain),
        field("description", Plain),
        field("type", Upper),
        also("config", &["data"], Plain),
        field("retry", Object(&RETRY)),
        field("timeoutMs", Plain),
        field("onError", Object(&ON_ERROR)),
    ],
};

static RETRY: Shape = Shape {
    type_name: "RetryPolicy",
    fields: &[
        field("maxAttempts", Plain),
        field("initialDelayMs", Plain),
        field("backoff", Plain),
        field("maxDelayMs", Plain),
        field("retryOn", Plain),
    ],
};

static ON_ERROR: Shape = Shape {
    type_name: "OnError",
    fields: &[field("targetNodeId", Plain)],
};

static NOTHING: Shape = Shape {
    type_name: "Empty",
    fields: &[],
};

/// Every node type and the fields of its config.
pub(crate) static NODE_TYPES: &[(&str, &Shape)] = &[
    ("START", &NOTHING),
    ("END", &END),
    ("VARIABLE", &VARIABLE),
    ("LLM", &LLM),
    ("CODE", &CODE),
    ("ROUTE", &ROUTE),
    ("FORK", &FORK),
    ("JOIN", &JOIN),
    ("SUBGRAPH", &SUBGRAPH),
    ("CONTEXT_PROCESSOR", &CONTEXT_PROCESSOR),
    ("WAIT", &WAIT),
    ("START_FROM_TRIGGER", &NOTHING),
    ("CONTINUE_FROM_TRIGGER", &CONTINUE_FROM_TRIGGER),
];

static END: Shape = Shape {
    type_name: "EndConfig",
    fields: &[field("output", Plain)],
};

static VARIABLE: Shape = Shape {
    type_name: "VariableConfig",
    fields: &[
        also("variableName", &["variable"], Plain),
        field("expression", Plain),
        field("variableType", Lower),
        field("scope", Lower),
        field("readonly", Plain),
    ],
};

static LLM: Shape = Shape {
    type_name: "LlmConfig",
    fields: &[
        field("profileId", Plain),
        field("prompt", Plain),
        field("system", Plain),
        field("tools", Plain),
        field("parameters", Plain),
        field("maxToolRounds", Plain),
        field("responseFormat", Plain),
    ],
};

static CODE: Shape = Shape {
    type_name: "CodeConfig",
    fields: &[field("code", Plain), field("function", Plain), field("input", Value)],
};

static ROUTE: Shape = Shape {
    type_name: "RouteConfig",
    fields: &[
        field("routes", Object(&ROUTE_ITEM)),
        field("defaultTargetNodeId", Plain),
    ],
};

static ROUTE_ITEM: Shape = Shape {
    type_name: "Route",
    fields: &[
        field("condition", Plain),
        field("targetNodeId", Plain),
        field("priority", Plain),
    ],
};

static FORK: Shape = Shape {
    type_name: "ForkConfig",
    fields: &[
        field("forkPathIds", Plain),
        field("childNodeIds", Plain),
        field("forkStrategy", Lower),
        field("forkPaths", Object(&FORK_PATH)),
        field("forkId", Plain),
    ],
};

static FORK_PATH: Shape = Shape {
    type_name: "ForkPathForm",
    fields: &[field("pathId", Plain), field("childNodeId", Plain)],
};

static JOIN: Shape = Shape {
    type_name: "JoinConfig",
    fields: &[
        field("forkPathIds", Plain),
        field("joinStrategy", Upper),
        field("threshold", Plain),
        field("timeout", Plain),
        field("mainPathId", Plain),
        field("onDecided", Lower),
        field("mergeVariables", Lower),
        field("joinId", Plain),
        field("forkId", Plain),
    ],
};

static SUBGRAPH: Shape = Shape {
    type_name: "SubgraphConfig",
    fields: &[
        field("subgraphId", Plain),
        field("input", Value),
        field("output", Plain),
        field("conversation", Lower),
        field("agent", Object(&AGENT)),
    ],
};

static AGENT: Shape = Shape {
    type_name: "AgentConfig",
    fields: &[field("id", Plain), field("role", Plain), field("instructions", Plain)],
};

static WAIT: Shape = Shape {
    type_name: "WaitConfig",
    fields: &[field("seconds", Plain), field("event", Plain), field("timeout", Plain)],
};

static CONTINUE_FROM_TRIGGER: Shape = Shape {
    type_name: "ContinueFromTriggerConfig",
    fields: &[
        field("variableCallback", Object(&VARIABLE_CALLBACK)),
        field(
            "conversationHistoryCallback",
            Either(&HISTORY_CALLBACK, history_callback_problems),
        ),
    ],
};

static VARIABLE_CALLBACK: Shape = Shape {
    type_name: "VariableCallback",
    fields: &[field("includeVariables", Plain), field("includeAll", Plain)],
};

static HISTORY_CALLBACK: Shape = Shape {
    type_name: "HistoryCallback",
    fields: &[
        field("mode", Lower),
        field("lastN", Plain),
        field("lastNByRole", Object(&ROLE_COUNT)),
        field("byRole", Lower),
        field("range", Object(&RANGE)),
        field("rangeByRole", Object(&ROLE_RANGE)),
    ],
};

fn history_callback_problems(tree: &Tree) -> Vec<Problem> {
    let mut selection = tree.clone();
    let mut found = match selection.take("mode") {
        Some(mode) => problems::<crate::definition::HistoryCallbackMode>(&mode.value)
            .into_iter()
            .map(|problem| problem.under("mode"))
            .collect(),
        None => Vec::new(),
    };
    found.extend(problems::<ConversationHistoryOptions>(&selection));
    found
}

static HISTORY: Shape = Shape {
    type_name: "ConversationHistoryOptions",
    fields: &[
        field("lastN", Plain),
        field("lastNByRole", Object(&ROLE_COUNT)),
        field("byRole", Lower),
        field("range", Object(&RANGE)),
        field("rangeByRole", Object(&ROLE_RANGE)),
    ],
};

static ROLE_COUNT: Shape = Shape {
    type_name: "RoleCount",
    fields: &[field("role", Lower), field("count", Plain)],
};
static RANGE: Shape = Shape {
    type_name: "HistoryRange",
    fields: &[field("start", Plain), field("end", Plain)],
};
static ROLE_RANGE: Shape = Shape {
    type_name: "RoleRange",
    fields: &[field("role", Lower), field("start", Plain), field("end", Plain)],
};

static CONTEXT_PROCESSOR: Shape = Shape {
    type_name: "ContextOperation",
    fields: &[field("operation", Lower)],
};

/// Every operation of CONTEXT_PROCESSOR and its fields.
pub(crate) static OPERATIONS: &[(&str, &Shape)] = &[
    ("insert", &INSERT),
    ("replace", &REPLACE),
    ("truncate", &TRUNCATE),
    ("clear", &CLEAR),
    ("filter", &FILTER),
    ("compress", &COMPRESSION),
    ("pin", &PIN),
];

static MESSAGE: Shape = Shape {
    type_name: "TextMessage",
    fields: &[field("role", Lower), field("content", Plain)],
};

static INSERT: Shape = Shape {
    type_name: "InsertContext",
    fields: &[field("messages", Object(&MESSAGE)), field("position", Plain)],
};

static REPLACE: Shape = Shape {
    type_name: "ReplaceContext",
    fields: &[
        field("target", Either(&HISTORY, problems::<ConversationHistoryOptions>)),
        field("replacement", Either(&MESSAGE, problems::<Vec<TextMessage>>)),
        field("role", Lower),
    ],
};

static TRUNCATE: Shape = Shape {
    type_name: "TruncateContext",
    fields: &[
        field("keepFirst", Plain),
        field("keepLast", Plain),
        field("removeFirst", Plain),
        field("removeLast", Plain),
        field("range", Object(&RANGE)),
        field("role", Lower),
    ],
};

static CLEAR: Shape = Shape {
    type_name: "ClearContext",
    fields: &[field("keepSystem", Plain)],
};

static FILTER: Shape = Shape {
    type_name: "FilterContext",
    fields: &[
        field("roles", Lower),
        field("contentContains", Plain),
        field("contentExcludes", Plain),
    ],
};

static PIN: Shape = Shape {
    type_name: "PinContext",
    fields: &[field("section", Plain), field("value", Value)],
};

pub(crate) static TRIGGER: Shape = Shape {
    type_name: "TriggerDefinition",
    fields: &[
        field("id", Plain),
        field("name", Plain),
        field("description", Plain),
        field("type", Lower),
        field("workflowId", Plain),
        field("threadId", Plain),
        field("condition", Object(&CONDITION)),
        field("action", Object(&ACTION)),
        field("maxTriggers", Plain),
        field("enabled", Plain),
        field("status", Upper),
    ],
};

static CONDITION: Shape = Shape {
    type_name: "TriggerCondition",
    fields: &[
        field("eventType", Upper),
        field("eventName", Plain),
        field("expression", Plain),
    ],
};

static ACTION: Shape = Shape {
    type_name: "TriggerAction",
    fields: &[field("type", Upper), field("parameters", Plain)],
};

/// Every trigger action and the fields of its parameters.
pub(crate) static ACTIONS: &[(&str, &Shape)] = &[
    ("START_WORKFLOW", &START_WORKFLOW),
    ("EXECUTE_TRIGGERED_SUBGRAPH", &EXECUTE_TRIGGERED_SUBGRAPH),
    ("STOP_THREAD", &THREAD),
    ("PAUSE_THREAD", &THREAD),
    ("RESUME_THREAD", &THREAD),
    ("SET_VARIABLE", &SET_VARIABLE),
    ("SEND_NOTIFICATION", &SEND_NOTIFICATION),
    ("CUSTOM", &CUSTOM),
];

static START_WORKFLOW: Shape = Shape {
    type_name: "StartWorkflow",
    fields: &[field("workflowId", Plain), field("input", Object(&TRIGGER_INPUT))],
};

static TRIGGER_INPUT: Shape = Shape {
    type_name: "TriggerInput",
    fields: &[field("source", Lower), field("fields", Plain)],
};

static EXECUTE_TRIGGERED_SUBGRAPH: Shape = Shape {
    type_name: "ExecuteTriggeredSubgraph",
    fields: &[
        field("triggeredWorkflowId", Plain),
        field("waitForCompletion", Plain),
        field("timeout", Plain),
        field("recordHistory", Plain),
        field("mergeHistory", Plain),
        field("mergeOptions", Object(&MERGE_OPTIONS)),
    ],
};

static MERGE_OPTIONS: Shape = Shape {
    type_name: "MergeOptions",
    fields: &[
        field("includeVariables", Plain),
        field(
            "includeConversationHistory",
            Either(&HISTORY, problems::<ConversationHistoryOptions>),
        ),
    ],
};

static THREAD: Shape = Shape {
    type_name: "Thread",
    fields: &[field("threadId", Plain)],
};

static SET_VARIABLE: Shape = Shape {
    type_name: "SetVariable",
    fields: &[
        also("variableName", &["variable"], Plain),
        field("value", Value),
        field("expression", Plain),
        field("scope", Lower),
    ],
};

static SEND_NOTIFICATION: Shape = Shape {
    type_name: "SendNotification",
    fields: &[field("message", Plain), field("channel", Plain)],
};

static CUSTOM: Shape = Shape {
    type_name: "Custom",
    fields: &[field("function", Plain), field("parameters", Plain)],
};

/// Every shape that the schema has under its type's name.
#[cfg(feature = "schema")]
pub(crate) static SHAPES: &[&Shape] = &[
    &WORKFLOW,
    &VARIABLE_DEFINITION,
    &EDGE,
    &WORKFLOW_CONFIG,
    &COMPRESSION,
    &PINNED,
    &TODO,
    &USEFUL_INFO,
    &RETRY,
    &ON_ERROR,
    &VARIABLE,
    &LLM,
    &CODE,
    &ROUTE,
    &ROUTE_ITEM,
    &FORK,
    &JOIN,
    &SUBGRAPH,
    &AGENT,
    &WAIT,
    &CONTINUE_FROM_TRIGGER,
    &VARIABLE_CALLBACK,
    &HISTORY_CALLBACK,
    &HISTORY,
    &ROLE_COUNT,
    &RANGE,
    &ROLE_RANGE,
    &TRIGGER,
    &CONDITION,
    &TRIGGER_INPUT,
    &EXECUTE_TRIGGERED_SUBGRAPH,
    &MERGE_OPTIONS,
    &MESSAGE,
    &END,
];
