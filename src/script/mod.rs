//! Evaluation of snippets: expressions and CODE in QuickJS, templates in handlebars.
//!
//! - [`JsEvaluator`] evaluates expressions and templates; each operating system thread has one.
//! - [`CodeJob`] is the execution of one CODE node.
//! - [`ScriptPort`] runs both on dedicated threads, or in worker processes ([`ScriptSettings`]).
//! - [`TextSyntax`] checks snippets when a workflow is loaded.
//!
//! [`pirn_core::script`] documents the names visible to snippets. A snippet cannot access files, the network, clocks or random
//! numbers, and no state of it remains for the next one. Every snippet has limits on time, memory and stack. `docs/security.md`
//! describes the guarantees if QuickJS fails to enforce them.

mod code;
mod compress;
#[cfg(feature = "javascript")]
mod convert;
mod deadline;
mod evaluator;
#[cfg(feature = "javascript")]
mod expressions;
mod functions;
#[cfg(feature = "javascript")]
mod host;
mod interpreter;
#[cfg(feature = "javascript")]
mod interrupt;
mod limits;
#[cfg(feature = "javascript")]
mod parser;
pub(crate) mod place;
#[cfg(feature = "javascript")]
mod placeholder;
mod pool;
mod port;
#[cfg(feature = "javascript")]
mod realm;
#[cfg(feature = "javascript")]
mod realm_options;
mod syntax;
mod task;
mod template;
#[cfg(feature = "javascript")]
mod worker;

#[cfg(all(test, feature = "javascript"))]
mod tests;

pub use code::{CodeJob, CodeOutcome};
pub use evaluator::JsEvaluator;
pub use functions::{HostFunction, HostFunctions, Logs};
pub use limits::{CodeLimits, ExpressionLimits, ScriptLevel, ScriptSettings, WorkerProgram};
pub use pirn_actors::ports::ScriptStats;
pub use pirn_sync::StopFlag;
pub use port::{ScriptPort, evaluator};
pub use syntax::{TextFault, TextSyntax};
pub(crate) use template::place_in_tags;
pub use template::template_helpers;
#[cfg(feature = "javascript")]
pub use worker::serve_worker;
