//! Workers that share a server, as they are killed, paused and started again.
#![allow(
    clippy::disallowed_methods,
    reason = "processes live by the real clock: a claim runs out, a pause is longer than that"
)]

mod cluster;
mod commands;
#[path = "../../engines/postgres/tests/server/mod.rs"]
mod server;
mod services;
mod storms;
