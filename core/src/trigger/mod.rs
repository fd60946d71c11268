//! From what happened to which triggers fire (SPEC section 5).

mod equality;
mod index;
mod literals;
mod machine;
mod owner;
mod short;
mod table;
mod written;

pub use machine::{DEFAULT_CHAIN_LIMIT, Fire, TriggerExists, TriggerMachine, TriggerState, Watcher};
pub use owner::{Owner, TriggerKey};
