//! Chat protocols of front ends: AG-UI and the AI SDK, with messages, interrupts, client tools and client libraries.
//!
//! Not here: MCP clients, which are in `mcp`.

pub(crate) mod client_tools;
mod clients;
pub(crate) mod front_ends;
mod interrupts;
mod messages;
mod replies;
