//! The messages between actors, and the handles by which they are reached: no actor is named here.

pub(crate) mod bus;
pub(crate) mod engine;
pub mod events;
pub(crate) mod mailbox;
pub(crate) mod matcher;
pub(crate) mod supervisor;
