//! The listening socket of a service: connections, their limits, and TLS.
//!
//! Not here: routes and handlers, which are in `api`; access rules, which are in `http`.

pub(crate) mod listener;
#[cfg(feature = "tls")]
pub(crate) mod tls;
mod write_timeout;
