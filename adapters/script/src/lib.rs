//! Evaluation of snippets of a workflow: expressions and CODE in QuickJS, templates in handlebars.
//!
//! - [`JsEvaluator`] evaluates expressions and templates; each operating system thread has one.
//! - [`CodeJob`] is the execution of one CODE node.
//! - [`ScriptPort`] runs both on dedicated threads, or in worker processes ([`ScriptSettings`]).
//! - [`TextSyntax`] checks snippets when a workflow is loaded.
//!
//! [`pirn_definition::script`] documents the names visible to snippets. A snippet cannot access files, the network, clocks or random
//! numbers, and no state of it remains for the next one. Every snippet has limits on time, memory and stack. `docs/security.md`
//! describes the guarantees if QuickJS fails to enforce them.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! port  syntax
//!   ↓
//! compress  pool
//!   ↓
//! interpreter
//!   ↓
//! sessions
//!   ↓
//! evaluator  worker
//!   ↓
//! expressions  task  template
//!   ↓
//! code  placeholder
//!   ↓
//! quickjs
//!   ↓
//! deadline  functions  limits
//! ```
//!
//! Reading order:
//! 1. `port`: the jobs that the engine gives, and their results.
//! 2. `evaluator`: expressions and templates. `code`: one CODE node.
//! 3. `quickjs/realm`: JavaScript with its limits.
//! 4. `pool`: the script threads. `worker`: the processes, and their protocol. `sessions`: script workflows between their steps.

mod code;
mod compress;
mod deadline;
mod evaluator;
#[cfg(feature = "javascript")]
mod expressions;
mod functions;
mod interpreter;
mod limits;
#[cfg(feature = "javascript")]
mod placeholder;
mod pool;
mod port;
#[cfg(feature = "javascript")]
mod quickjs;
#[cfg(feature = "javascript")]
mod sessions;
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
#[doc(hidden)]
pub use template::place_in_tags;
pub use template::template_helpers;
#[cfg(feature = "javascript")]
pub use worker::serve_worker;
