//! Nodes: the frame, and the config of every type.

use super::super::read::{Problem, problems};
use super::Holds::{Either, Lower, Object, Plain, Upper, Value};
use super::context::{CONTEXT_PROCESSOR, RANGE, ROLE_COUNT, ROLE_RANGE};
use super::{Shape, also, field};
use crate::definition::json::Tree;
use crate::definition::{ConversationHistoryOptions, HistoryCallbackMode};

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
        Some(mode) => problems::<HistoryCallbackMode>(&mode.value)
            .into_iter()
            .map(|problem| problem.under("mode"))
            .collect(),
        None => Vec::new(),
    };
    found.extend(problems::<ConversationHistoryOptions>(&selection));
    found
}
