//! What actors say to each other, and the handles by which they are reached: no actor is named here.

pub(crate) mod bus;
pub mod events;
pub(crate) mod mailbox;
pub(crate) mod matcher;
