//! Calls of language models: providers, the formats of their messages, tokenizers, and the registry that finds the model of a
//! profile.
//!
//! - `scripted` returns the responses in its profile, in order.
//! - `echo` repeats the last user message.
//! - `extractive` summarizes its input without a language model: see [`extractive`].
//! - `openai`, `anthropic`, `gemini` and `ollama` call a model across the network (feature `providers`).
//!
//! Other providers are registered in code. A profile's `retry`, `limits`, `timeouts.totalMs` and `fallback` apply to every
//! provider.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! catalog
//!   ↓
//! registry
//!   ↓
//! built_in  metered  priced  providers  retrying
//!   ↓
//! policy  structured
//!   ↓
//! error_chain  fault  formats  headers  json_schema  limiter  tokens
//! ```
//!
//! Reading order:
//! 1. `registry`: the model that serves a profile.
//! 2. `retrying`: a call with its retries, time limits and fallbacks. `structured` checks the reply; `priced` and `metered` add up
//!    costs and usage.
//! 3. `providers`: one attempt over HTTP; `mod.rs`, then a protocol such as `openai`.
//! 4. `formats` and `tokens`: the messages of each provider, and tokenizers.
//!
//! `pirn-tools` also uses `headers`, `json_schema`, `limiter` and `error_chain`; `pirn-otel` uses `error_chain`.

use pirn_actors::ports::CallContext;
use pirn_definition::definition::Profile;

mod built_in;
mod catalog;
#[doc(hidden)]
pub mod error_chain;
mod fault;
pub mod formats;
#[cfg(feature = "http")]
#[doc(hidden)]
pub mod headers;
#[doc(hidden)]
pub mod json_schema;
#[doc(hidden)]
pub mod limiter;
mod metered;
mod policy;
mod priced;
#[cfg(feature = "providers")]
mod providers;
mod registry;
mod retrying;
mod structured;
#[cfg(test)]
mod tests;
pub mod tokens;

/// Chooses the API key of a call by its profile and origin. `None` uses the profile's key.
pub type ChooseKey = dyn Fn(&Profile, &CallContext) -> Option<String> + Send + Sync;

pub use built_in::{Echo, Extractive, Scripted};
#[doc(hidden)]
pub use catalog::ModelCatalog;
pub use fault::ProfileFault;
pub use metered::{DURATION_BOUNDS_MS, Distribution, ModelRequests, TOKEN_BOUNDS, conventional_provider};
/// The summary of the model [`Extractive`], as a function.
pub use pirn_conversation::conversation::extractive;
#[cfg(feature = "providers")]
pub use providers::Remote;
pub use registry::{ModelRegistry, ModelsByName, warnings};
pub use structured::reply_schema;
