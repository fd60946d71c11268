//! Shared-memory primitives of Pirn: the state that OS threads share without an actor in between.
//!
//! | primitive | purpose |
//! |---|---|
//! | [`completion()`] | result that is set once and awaited by any number of tasks and threads |
//! | [`admit`], [`close_and_list`] | order of registration and admission of runs |
//! | [`DrainGate`] | bounded admission, and waiting until all permits are released |
//! | [`Quota`] | limit on a number of operations, across threads |
//! | [`StopFlag`] | stop request to another thread |
//! | [`Batches`] | many items in few messages, in FIFO order with other messages |
//!
//! Rules for every file here:
//! 1. At most one lock at a time, so lock order cannot be violated.
//! 2. No foreign code runs under a lock: wakers, callbacks and dropped values are moved out first.
//! 3. A lock is never held across a wait, except by the condition variable that releases it.
//! 4. A poisoned lock is used as it is: by rule 2 no code that can panic runs while the state is inconsistent.
//!
//! The types of `std` are imported only through `prim`, so that `loom-tests` can compile these files against loom's types.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! admission
//!   ↓
//! batches  completion  drain_gate  quota  stop_flag
//!   ↓
//! prim  waiters
//! ```
//!
//! Reading order:
//! 1. `completion`: a result that is set once, with its waiters (`waiters`).
//! 2. `drain_gate` and `admission`: the admission of runs.
//! 3. `prim`: the types of `std` or loom, and the macro `mutant!`.

#[macro_use]
mod prim;

mod admission;
mod batches;
mod completion;
mod drain_gate;
mod quota;
mod stop_flag;
mod waiters;

pub use admission::{Registry, admit, close_and_list};
pub use batches::{Batch, Batches};
pub use completion::{Completion, Lost, Setter, Wait, completion};
pub use drain_gate::{DrainGate, Drained, Permit, Refused};
pub use quota::Quota;
pub use stop_flag::StopFlag;
