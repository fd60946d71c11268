//! Workflow definitions, and every decision about a run, as pure state machines.
//!
//! This crate uses no actors, clocks, random numbers or operating-system threads: time, ids and the results of work are *inputs*,
//! and actions to perform are *effects*. The same machines run under actix, under a virtual clock and under a model checker.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! run
//!   ↓
//! analysis  join
//!   ↓
//! thread
//!   ↓
//! graph  model_call
//!   ↓
//! conversation  schedule  trigger
//!   ↓
//! times
//!   ↓
//! definition
//!   ↓
//! event  message  script
//!   ↓
//! event_type  value
//!   ↓
//! error  fair_queue  session  status
//! ```
//!
//! Reading order:
//! 1. `definition`: the types of a workflow file. `graph` compiles and validates them.
//! 2. `thread`: the machine of one thread, with one file for each node type (start with `thread/nodes/route.rs`).
//! 3. `run`: the machine of a run. `run/machine.rs` has the table of its messages.
//! 4. `join`, `conversation` and `trigger`: the machines that `run` uses.

pub mod analysis;
pub mod conversation;
pub mod definition;
pub mod error;
pub mod event;
pub mod event_type;
pub mod fair_queue;
pub mod graph;
pub mod join;
pub mod message;
pub mod model_call;
pub mod run;
pub mod schedule;
pub mod script;
pub mod session;
pub mod status;
pub mod thread;
pub mod times;
pub mod trigger;
pub mod value;

/// Milliseconds since an origin that the host chooses; the only notion of time in this crate.
pub type Millis = u64;
