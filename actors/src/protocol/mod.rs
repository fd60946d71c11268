//! Messages between actors, and the handles that send them. No module here refers to an actor type.
//!
//! Not here: behaviour: an actor handles its messages in its own module.

pub(crate) mod bus;
pub(crate) mod engine;
pub mod events;
pub(crate) mod mailbox;
pub(crate) mod matcher;
pub(crate) mod supervisor;
