//! Steps of a run that concern several threads: start, forks, cancels, sessions, termination, outcome.
//!
//! Each file adds methods to [`RunMachine`](super::RunMachine), which `machine.rs` calls.
//!
//! Not here: the turn of one thread or conversation (`turns/`), and the actions of triggers (`triggers/`).

pub(super) mod control;
pub(super) mod forks;
pub(super) mod memory_check;
pub(super) mod outcome;
pub(super) mod panics;
pub(super) mod session;
pub(super) mod slots;
pub(super) mod start;
pub(super) mod termination;
pub(super) mod usage;
