//! A workflow, its edges, variables and config.

use super::super::read::problems;
use super::Holds::{Either, Lower, Object, Plain, Value};
use super::OPEN;
use super::{Shape, also, field};
use crate::definition::{FolderNotes, TodoItem, UsefulInfo};

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

pub(super) static COMPRESSION: Shape = Shape {
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

static TODO: Shape = Shape {
    type_name: "TodoItem",
    fields: &[field("content", Plain), field("status", Plain)],
};

static USEFUL_INFO: Shape = Shape {
    type_name: "UsefulInfo",
    fields: &[field("file", Plain), field("lines", Plain), field("text", Plain)],
};
