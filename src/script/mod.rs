//! Text that is evaluated: expressions and CODE in QuickJS, templates in handlebars.
//!
//! - [`JsEvaluator`] evaluates expressions and templates in place; one for each thread of the operating system.
//! - [`CodeJob`] is the run of one CODE node; a [`ScriptPool`] runs jobs on its own threads, [`CodeJob::run_inline`]
//!   on the caller's.
//! - [`TextSyntax`] checks texts when a workflow is loaded.
//!
//! What texts see is said in [`pirn_core::script`]. A text cannot reach files, the network, clocks or chance, and
//! leaves nothing behind for the next one. Every text has limits on time, memory and stack; built-in functions of
//! QuickJS that do not ask for the time (replacing text, printing a huge BigInt) can overrun the time limit by seconds;
//! those that could run for ever refuse what is too long.

mod code;
mod compress;
#[cfg(feature = "javascript")]
mod convert;
mod evaluator;
mod functions;
#[cfg(feature = "javascript")]
mod host;
mod limits;
mod many;
#[cfg(feature = "javascript")]
mod parser;
#[cfg(feature = "javascript")]
mod placeholder;
mod pool;
mod port;
#[cfg(feature = "javascript")]
mod realm;
#[cfg(feature = "javascript")]
mod realm_options;
#[cfg(feature = "javascript")]
mod simple;
mod syntax;
mod template;
#[cfg(feature = "javascript")]
mod watch;

#[cfg(all(test, feature = "javascript"))]
mod tests;

pub use code::{CodeJob, CodeOutcome};
pub use evaluator::JsEvaluator;
pub use functions::{HostFunction, HostFunctions, Logs};
pub use limits::{CodeLimits, ExpressionLimits};
pub use pirn_sync::StopFlag;
pub use pool::{PoolClosed, ScriptPool};
pub use port::{ScriptPort, evaluator};
pub use syntax::{TextFault, TextSyntax};
pub use template::template_helpers;
