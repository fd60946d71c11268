//! Store in PostgreSQL, shared by any number of processes.
//!
//! A run is one task of [absurd](https://github.com/earendil-works/absurd)'s queue `pirn`. The process that holds the claim on
//! the task owns the run, extends the claim by heartbeats, and names it in every write. When a claim has expired, another
//! process takes the run over, and writes with the old claim are refused. Journals, contents, sessions,
//! snapshots and timers are stored in the schema `pirn`.
//!
//! ```no_run
//! use pirn_postgres::{PostgresOptions, PostgresStore, setup};
//!
//! setup("postgres://localhost/pirn", "absurdctl")?;
//! let store = PostgresStore::connect("postgres://localhost/pirn", PostgresOptions::default())?;
//! # Ok::<(), pirn_postgres::ConnectError>(())
//! ```
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! store
//!   ↓
//! executor
//!   ↓
//! queue
//!   ↓
//! commit
//!   ↓
//! claims  names
//!   ↓
//! read  setup
//!   ↓
//! connection  reply  thread
//! ```
//!
//! Reading order:
//! 1. `store`: the trait `Store`, on a thread with the connections.
//! 2. `commit`: one function call for each commit; the functions are in `sql/pirn.sql`.
//! 3. `claims`: the assignment of runs to processes.
#![allow(
    clippy::disallowed_methods,
    reason = "the store has a private thread that waits for the server by the real clock, outside of any engine"
)]

mod claims;
mod commit;
mod connection;
mod executor;
mod names;
mod queue;
mod read;
mod reply;
mod setup;
mod store;
mod thread;

pub use connection::connect::ConnectError;
pub use connection::connection_string::without_password;
pub use setup::setup;
pub use store::{PostgresOptions, PostgresStore};
