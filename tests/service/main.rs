//! The service over real sockets: the guarantees of docs/service.md, and hostile clients.
#![allow(clippy::disallowed_methods)] // clients of a server that runs on real time

mod callers;
mod chance;
mod chats;
mod command;
mod forwarded;
mod gated_store;
mod interactions;
mod mcp;
mod observation;
mod openapi;
mod orders;
mod process;
mod random_requests;
mod retention;
mod runs;
#[path = "../support/servers.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a module of the other tests' library")]
mod servers;
mod shared_store;
mod stored_runs;
#[cfg(feature = "studio")]
mod studio;
mod workflows;
mod world;
