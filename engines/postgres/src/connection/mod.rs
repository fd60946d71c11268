//! Connections to the server: connection string and settings, TLS, queries with their parameters, and failures of a query.
//!
//! Not here: reconnection and the order of commands, which are in `executor`.

mod advice;
pub(crate) mod connect;
pub(crate) mod connection_string;
pub(crate) mod fault;
pub(crate) mod parameter;
mod settings;
mod tls;
