//! Every decision about a run, as pure state machines.
//!
//! This crate uses no actors, clocks, random numbers or operating-system threads: time, ids and the results of work are *inputs*,
//! and actions to perform are *effects*. The same machines run under actix, under a virtual clock and under a model checker.
//! `pirn-definition` compiles the graphs that they execute, `pirn-conversation` has the conversations that they write,
//! `pirn-events` the events that they raise.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! run
//!   ↓
//! join
//!   ↓
//! thread
//!   ↓
//! session  status
//! ```
//!
//! Reading order:
//! 1. `thread`: the machine of one thread, with one file for each node type (start with `thread/nodes/route.rs`).
//! 2. `run`: the machine of a run. `run/machine.rs` has the table of its messages.
//! 3. `join`: the machine of a JOIN.

pub mod join;
pub mod run;
pub mod session;
pub mod status;
pub mod thread;
