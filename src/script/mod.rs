//! Text that is evaluated: expressions and CODE in QuickJS, templates in handlebars.
//!
//! - [`JsEvaluator`] evaluates expressions and templates; one for each thread of the operating system.
//! - [`CodeJob`] is the run of one CODE node.
//! - [`ScriptPort`] runs both on threads of its own, or in worker processes ([`ScriptSettings`]).
//! - [`TextSyntax`] checks texts when a workflow is loaded.
//!
//! [`pirn_core::script`] says what texts see. A text cannot reach files, the network, clocks or chance, and
//! leaves nothing behind for the next one. Every text has limits on time, memory and stack. `docs/security.md` says what
//! holds where QuickJS does not keep to them.

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
