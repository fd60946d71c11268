//! Runs in PostgreSQL, for any number of workers.
//!
//! A run is one task of [absurd](https://github.com/earendil-works/absurd)'s queue `pirn`: whoever has the claim on the task
//! carries the run, extends the claim while it lives, and names it in every write. Once a claim has run out the next worker
//! takes the run over, and a write that still names the old claim is refused. What a run was told, its contents, sessions,
//! snapshots and timers lie in a schema of their own, `pirn`.
//!
//! ```no_run
//! use pirn_postgres::{PostgresOptions, PostgresStore, setup};
//!
//! setup("postgres://localhost/pirn", "absurdctl")?;
//! let store = PostgresStore::connect("postgres://localhost/pirn", PostgresOptions::default())?;
//! # Ok::<(), pirn_postgres::ConnectError>(())
//! ```
#![allow(
    clippy::disallowed_methods,
    reason = "a thread of the store's own waits for the server, by the real clock and outside of any engine"
)]

mod carrier;
mod claims;
mod commit;
mod connect;
mod fault;
mod names;
mod queue;
mod read;
mod reply;
mod setup;
mod store;
mod thread;

pub use connect::ConnectError;
pub use setup::setup;
pub use store::{PostgresOptions, PostgresStore};
