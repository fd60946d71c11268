//! Runs in a Restate server, for any number of workers.
//!
//! A run is one virtual object of a [Restate](https://restate.dev) server: its records, status, timers and claim are the object's
//! state, and each commit is one call of it, which the server has carried out whole, once, and one at a time. A session, a
//! content and a process that carries runs are objects too. What waits (for a turn, an end, an answer) waits by promises
//! of the server. Workers offer the code of the objects to the server; a run itself, with its models and tools, is carried by a
//! process that has claimed it. A process that is silent for longer than its claims last is dead: its runs are
//! offered to others, and what it still writes is refused.
//!
//! ```no_run
//! use pirn_restate::{Endpoint, RestateOptions, RestateStore};
//!
//! let worker = RestateOptions::default().endpoint(Endpoint::at(([127, 0, 0, 1], 9080).into()));
//! let store = RestateStore::connect("http://localhost:8080", worker)?;
//! # Ok::<(), pirn_restate::ConnectError>(())
//! ```
#![allow(
    clippy::disallowed_methods,
    reason = "a thread of the store's own waits for the server, by the real clock and outside of any engine"
)]

mod client;
mod connect;
mod endpoint;
mod given;
mod head;
mod held;
mod keeper;
mod keys;
mod objects;
mod read;
mod remove;
mod store;
mod wire;

pub use connect::{ConnectError, Endpoint, RestateOptions};
pub use store::RestateStore;
