//! Triggers: which of them an event fires.
//!
//! Not here: the actions of a firing (`pirn_core::run`), and the evaluation of expressions.

mod equality;
mod index;
mod machine;
mod owner;

pub use machine::{
    DEFAULT_CHAIN_LIMIT, DEFAULT_TRIGGERED_EVENTS, FireResult, TriggerExists, TriggerMachine, TriggerState,
    WatchingTrigger,
};
pub use owner::{Owner, TriggerKey};
