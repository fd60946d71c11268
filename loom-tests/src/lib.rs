//! The primitives of `pirn-sync`, the same files, compiled against loom's types instead of `std`'s.
//!
//! The switch is this crate's own `prim` module; `--cfg loom` would reach into every dependency. The models are in
//! `tests/models`, with the mutants that they must catch.

#[macro_use]
mod prim;

#[path = "../../sync/src/admission.rs"]
pub mod admission;
#[path = "../../sync/src/batches.rs"]
pub mod batches;
#[path = "../../sync/src/completion.rs"]
pub mod completion;
#[path = "../../sync/src/drain_gate.rs"]
pub mod drain_gate;
#[path = "../../sync/src/quota.rs"]
pub mod quota;
#[path = "../../sync/src/stop_flag.rs"]
pub mod stop_flag;
#[path = "../../sync/src/waiters.rs"]
mod waiters;

pub use prim::MUTANT;
