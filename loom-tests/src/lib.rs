//! The primitives of `pirn-sync`, the same files, compiled against loom's types instead of `std`'s.
//!
//! The switch is this crate's own `prim` module; `--cfg loom` would reach into every dependency. The models are in
//! `tests/models`, with the mutants that they must catch.

#[macro_use]
mod prim;

#[path = "../../sync/src/batches.rs"]
pub mod batches;
#[path = "../../sync/src/cancel/mod.rs"]
pub mod cancel;
#[path = "../../sync/src/completion.rs"]
pub mod completion;
#[path = "../../sync/src/drain_gate.rs"]
pub mod drain_gate;
#[path = "../../sync/src/latch.rs"]
pub mod latch;
#[path = "../../sync/src/ready.rs"]
pub mod ready;
#[path = "../../sync/src/single_flight.rs"]
pub mod single_flight;
#[path = "../../sync/src/subscriptions.rs"]
pub mod subscriptions;
#[path = "../../sync/src/waiters.rs"]
mod waiters;

pub use prim::MUTANT;
