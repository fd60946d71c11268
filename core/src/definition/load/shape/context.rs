//! Selections of messages, and the operations on a conversation.

use super::super::read::problems;
use super::Holds::{Either, Lower, Object, Plain, Value};
use super::workflow::COMPRESSION;
use super::{Shape, field};
use crate::definition::{ConversationHistoryOptions, TextMessage};

pub(super) static HISTORY: Shape = Shape {
    type_name: "ConversationHistoryOptions",
    fields: &[
        field("lastN", Plain),
        field("lastNByRole", Object(&ROLE_COUNT)),
        field("byRole", Lower),
        field("range", Object(&RANGE)),
        field("rangeByRole", Object(&ROLE_RANGE)),
    ],
};

pub(super) static ROLE_COUNT: Shape = Shape {
    type_name: "RoleCount",
    fields: &[field("role", Lower), field("count", Plain)],
};
pub(super) static RANGE: Shape = Shape {
    type_name: "HistoryRange",
    fields: &[field("start", Plain), field("end", Plain)],
};
pub(super) static ROLE_RANGE: Shape = Shape {
    type_name: "RoleRange",
    fields: &[field("role", Lower), field("start", Plain), field("end", Plain)],
};

pub(super) static CONTEXT_PROCESSOR: Shape = Shape {
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
