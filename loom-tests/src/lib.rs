//! The source files of `pirn-sync`, compiled against loom's types instead of those of `std`.
//!
//! The switch is the module `prim` of this crate: `--cfg loom` would also apply to every dependency. The models are in
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
