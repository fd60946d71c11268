//! Models that need no network, and the registry that finds the model of a profile (SPEC section 9).
//!
//! - `scripted` answers with what its profile says, in order.
//! - `echo` repeats the last user message.
//! - `extractive` summarizes what it is given, without a model of language: see [`extractive`].
//!
//! Any other provider is registered in code.

mod echo;
pub mod extractive;
mod fault;
mod registry;
mod reply;
mod scripted;
#[cfg(test)]
mod tests;

pub use echo::Echo;
pub use extractive::Extractive;
pub use fault::ProfileFault;
pub use registry::{ModelRegistry, ModelsByName};
pub use scripted::Scripted;
