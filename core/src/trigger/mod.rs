//! From what happened to which triggers fire (SPEC section 5).

mod equality;
mod index;
mod machine;

pub use machine::{DEFAULT_CHAIN_LIMIT, Fire, Owner, TriggerExists, TriggerKey, TriggerMachine, TriggerState};
