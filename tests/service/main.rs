//! The service over real sockets: the guarantees of docs/service.md, and hostile clients.
#![allow(clippy::disallowed_methods)] // clients of a server that runs on real time

mod access;
mod audit;
#[cfg(target_os = "linux")]
mod bounds;
mod client_tools;
mod clients;
mod command;
mod conformance;
mod documented_commands;
mod drain;
mod events;
mod followed_runs;
mod front_ends;
mod gated_store;
mod history;
mod hostile;
mod identity;
mod identity_provider;
mod interactions;
mod interrupts;
mod load;
mod mcp_client;
mod mcp_questions;
mod messages;
mod metrics;
mod oauth;
mod openapi;
mod orders;
mod python_client;
#[cfg(target_os = "linux")]
mod recipes;
mod replies;
mod retention;
mod run_list;
mod runs;
#[path = "../support/servers.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a module of the other tests' library")]
mod servers;
mod shared_store;
#[cfg(unix)]
mod sockets;
mod started_runs;
mod status;
mod stored_runs;
#[cfg(feature = "studio")]
mod studio;
mod tenancy;
mod tenant_limits;
#[cfg(feature = "otel")]
mod traces;
mod workflows;
mod world;
