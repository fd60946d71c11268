//! Models, and the registry that finds the model of a profile.
//!
//! - `scripted` answers with what its profile says, in order.
//! - `echo` repeats the last user message.
//! - `extractive` summarizes what it is given, without a model of language: see [`extractive`].
//!
//! - `openai`, `anthropic`, `gemini` and `ollama` ask a model across the network (feature `providers`).
//!
//! Any other provider is registered in code. Whatever the provider, a profile's `retry`, `limits`, `timeouts.totalMs`
//! and `fallback` hold.

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

/// Chooses the key of a call by its profile and by where it comes from; none: the profile says which.
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
