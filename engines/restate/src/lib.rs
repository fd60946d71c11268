//! Store on a Restate server, shared by any number of processes.
//!
//! A run is one virtual object of a [Restate](https://restate.dev) server: its records, status, timers and claim are the object's
//! state. A commit is one call of the object, or one entry in the journal of an open call of it; the server executes it atomically,
//! exactly once, and one at a time. Sessions, contents and processes are objects too. Waits (for a turn, an end, an answer) use
//! the server's awakeables. Workers serve the objects' code to the server; the models and tools of a run are called by the process
//! that has claimed the run. A process that sends no heartbeat for the duration of a claim is dead: its runs are offered to other
//! processes, and its later writes are refused.
//!
//! ```no_run
//! use pirn_restate::{Endpoint, RestateOptions, RestateStore};
//!
//! let worker = RestateOptions::default().endpoint(Endpoint::at(([127, 0, 0, 1], 9080).into()));
//! let store = RestateStore::connect("http://localhost:8080", worker)?;
//! # Ok::<(), pirn_restate::ConnectError>(())
//! ```
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! store
//!   ↓
//! remove
//!   ↓
//! membership  read  start_names
//!   ↓
//! client  endpoint
//!   ↓
//! objects
//!   ↓
//! open_calls
//!   ↓
//! local_claims
//!   ↓
//! process_messages
//!   ↓
//! head
//!   ↓
//! connect  keys  wire
//! ```
//!
//! Reading order:
//! 1. `objects/run`: a run as a virtual object, with its handlers. `open_calls`: the process's end of an open call.
//! 2. `store`: the trait `Store`, which calls the objects through `client`.
//! 3. `endpoint`: the HTTP endpoint at which the server calls the objects.
#![allow(
    clippy::disallowed_methods,
    reason = "the store has a private thread that waits for the server by the real clock, outside of any engine"
)]

mod client;
mod connect;
mod endpoint;
mod head;
mod keys;
mod local_claims;
mod membership;
mod objects;
mod open_calls;
mod process_messages;
mod read;
mod remove;
mod start_names;
mod store;
mod wire;

pub use connect::{ConnectError, Endpoint, RestateOptions};
pub use store::RestateStore;
