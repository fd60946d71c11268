//! Events, and the decisions which of them fire triggers and end waits, as pure state machines.
//!
//! This crate has no clock, randomness or I/O. `pirn-core` raises the events of a run and performs the actions of triggers.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! trigger
//!   ↓
//! event  schedule
//! ```
//!
//! Reading order:
//! 1. `event`: an event with its fields, and the waits of a run for events (`waits.rs`).
//! 2. `trigger`: the machine that decides which triggers an event fires, and its index of conditions.
//! 3. `schedule`: the machine that decides which times of a cron expression start a run.

pub mod event;
pub mod schedule;
pub mod trigger;
