//! Triggers, and the parameters of every action.

use super::super::read::problems;
use super::Holds::{Either, Lower, Object, Plain, Upper, Value};
use super::context::HISTORY;
use super::{Shape, also, field};
use crate::definition::ConversationHistoryOptions;

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
