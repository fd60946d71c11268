//! Models, and the registry that finds the model of a profile.
//!
//! - `scripted` returns the responses in its profile, in order.
//! - `echo` repeats the last user message.
//! - `extractive` summarizes its input without a language model: see [`extractive`].
//! - `openai`, `anthropic`, `gemini` and `ollama` call a model across the network (feature `providers`).
//!
//! Other providers are registered in code. A profile's `retry`, `limits`, `timeouts.totalMs` and `fallback` apply to every
//! provider.

use pirn_actors::ports::CallContext;
use pirn_core::definition::Profile;

mod echo;
pub mod extractive;
mod fault;
mod guarded;
mod metered;
mod of_runs;
mod policy;
mod priced;
#[cfg(feature = "providers")]
mod providers;
mod registry;
mod reply;
mod scripted;
mod structured;
#[cfg(test)]
mod tests;

/// Chooses the API key of a call by its profile and origin. `None` uses the profile's key.
pub type ChooseKey = dyn Fn(&Profile, &CallContext) -> Option<String> + Send + Sync;

pub use echo::Echo;
pub use extractive::Extractive;
pub use fault::ProfileFault;
pub(crate) use of_runs::ModelsOfRuns;
#[cfg(feature = "providers")]
pub use providers::Remote;
pub(crate) use registry::warnings;
pub use registry::{ModelRegistry, ModelsByName};
pub use scripted::Scripted;
pub(crate) use structured::reply_schema;
