//! The few shared-memory primitives of Pirn: what several threads of the operating system touch with no actor in
//! between.
//!
//! | primitive | for |
//! |---|---|
//! | [`completion()`] | a result that is set once and awaited by anyone, from tasks and from plain threads |
//! | [`Latch`] | a plain thread waits until others have counted down |
//! | [`CancelToken`] | a tree of cancellation: first reason wins, children follow |
//! | [`DrainGate`] | bounded admission, and waiting until everybody has left |
//! | [`Subscriptions`] | a set of subscribers read at every event, with a gapless sequence |
//! | [`Batches`] | many items in few messages, each in its place among the others |
//! | [`SingleFlight`] | one holder per key, everybody else is told so |
//! | [`ReadyQueue`] | what is ready for one reader, which is woken only where it rests; [`WakeFlag`] keeps it there once |
//!
//! Rules that hold for every file here:
//! 1. One lock at a time, so no two locks can be taken in two orders. ([`Subscriptions`] has two, in one order.)
//! 2. Nothing foreign runs under a lock: wakers, callbacks and dropped values leave it first.
//! 3. A lock is never held across a wait, but by the condition variable that gives it up.
//! 4. A poisoned lock is taken as it is: by rule 2 nothing that can panic runs while the state is half changed.
//!
//! The types of `std` come in through `prim` alone, so that `loom-tests` can compile the same files against a model
//! checker's.

#[macro_use]
mod prim;

mod batches;
mod cancel;
mod completion;
mod drain_gate;
mod latch;
mod ready;
mod single_flight;
mod subscriptions;
mod waiters;

pub use batches::{Batch, Batches};
pub use cancel::{CancelToken, Cancelled, Registration};
pub use completion::{Completion, Lost, Setter, Wait, completion};
pub use drain_gate::{DrainGate, Drained, Permit, Refused};
pub use latch::Latch;
pub use ready::{ReadyQueue, WakeFlag};
pub use single_flight::{Flight, InFlight, SingleFlight};
pub use subscriptions::{Publisher, Subscription, Subscriptions, subscriptions};
