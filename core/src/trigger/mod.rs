//! From what happened to which triggers fire (SPEC section 5).

mod equality;
mod index;
mod machine;
mod owner;

pub use machine::{Candidate, DEFAULT_CHAIN_LIMIT, Fire, TriggerExists, TriggerMachine, TriggerState};
pub use owner::{Owner, TriggerKey};
