//! Expressions and templates: their scope, the names they use, and the evaluation of those that need no JavaScript.
//!
//! An expression is JavaScript over `input`, `output` and `result`, `variables`,
//! `nodes["id"]` and `event`. A bare name is, in this order,
//!
//! 1. a variable (the thread's shadows the run's), except for `variables` and `nodes`, which nothing shadows;
//! 2. one of `input`, `output`, `result`, `event`;
//! 3. a global of JavaScript (`Math`, `JSON`, ...); templates have none;
//! 4. the output of the node with that id;
//! 5. `undefined` in an expression if it is a node that has not run or a variable that is not assigned, and otherwise the error
//!    `UNKNOWN_NAME`; in a template or a `{{path}}`, an error with the path.
//!
//! Most expressions in a workflow are no more than a path; [`Plain`] evaluates those without JavaScript. The rest
//! goes to the port [`Evaluator`](crate::graph::Evaluator).
//!
//! Not here: JavaScript and Handlebars, which are in the embedding layer.

mod absent;
mod agent_options;
mod assignment;
mod event_names;
mod free_names;
mod meta;
mod names;
mod path;
pub mod place;
mod plain;
mod scope;
mod text;
mod tokens;

pub use crate::error::ScriptFault;
pub use crate::value::{MAX_LEVELS, MAX_TEXT};
pub use absent::instead_of;
pub use agent_options::{AGENT_OPTIONS, unknown_agent_option};
pub use assignment::assignment;
pub use event_names::event_names;
pub(crate) use free_names::field_of;
pub use free_names::{FreeName, Member, free_names};
pub use meta::{HOST_NAMES, MetaFault, read_meta, script_body};
pub(crate) use names::is_name;
pub use names::{JS_GLOBALS, Names, Used, is_reserved};
pub use path::{Path, Step};
pub use plain::Plain;
pub use scope::{FIXED_NAMES, Scope, ScopeValues, bare_name, is_known};
pub use text::{PlainText, is_truthy, text_of};
pub use tokens::{has_effect, long_pattern};
