//! Subcommands that stay and offer workflows to others: `serve`, `studio`, `worker`, `mcp`; their sockets, files and settings.
//!
//! Not here: handlers of requests, which are in the crate `pirn-service`, and stores, which are in `store`.

mod listen;
pub(crate) mod mcp;
pub(crate) mod serve;
mod served;
mod service_args;
#[cfg(feature = "studio")]
pub(crate) mod studio;
#[cfg(feature = "cluster")]
pub(crate) mod worker;
