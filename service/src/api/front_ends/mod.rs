//! Handlers of the chat protocols of front ends: AG-UI and AI SDK, with the tools that a front end executes.
//!
//! Not here: the encodings of the protocols, which are in `wire`.

pub(super) mod agui;
mod agui_thread;
pub(super) mod chat;
mod client_tools;
