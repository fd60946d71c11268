//! The few shared-memory primitives of Pirn: what several threads of the operating system touch with no actor in
//! between.
//!
//! | primitive | for |
//! |---|---|
//! | [`completion()`] | a result that is set once and awaited by anyone, from tasks and from plain threads |
//! //! //! | [`admit`], [`close_and_list`] | the order of becoming known and being let in |
//! | [`DrainGate`] | bounded admission, and waiting until everybody has left |
//! //! | [`Quota`] | how often something may still be done, over all threads |
//! | [`StopFlag`] | something on another thread is to stop |
//! | [`Batches`] | many items in few messages, each in its place among the others |
//! //!
//! Rules that hold for every file here:
//! 1. One lock at a time, so no two locks can be taken in two orders.
//! 2. Nothing foreign runs under a lock: wakers, callbacks and dropped values leave it first.
//! 3. A lock is never held across a wait, but by the condition variable that gives it up.
//! 4. A poisoned lock is taken as it is: by rule 2 nothing that can panic runs while the state is half changed.
//!
//! The types of `std` come in through `prim` alone, so that `loom-tests` can compile the same files against a model
//! checker's.

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
