//! Triggers: which of them an event fires.

mod equality;
mod index;
mod machine;
mod owner;

pub use machine::{
    DEFAULT_CHAIN_LIMIT, DEFAULT_TRIGGERED_EVENTS, Fire, TriggerExists, TriggerMachine, TriggerState, Watcher,
};
pub use owner::{Owner, TriggerKey};
