//! The thin port between Pirn's actors and whatever runs them.
//!
//! 1. An actor reaches time, timers, tasks, work and chance only through [`Host`]; so the same actors run on real threads
//!    ([`HostRuntime`]), on the caller's thread ([`HostRuntime::local`]), on one thread with a virtual clock
//!    ([`SimulatedHost`]), and on any other host that implements [`Port`].
//! 2. A host never runs anything inside the call that asks for it: a spawned task, a due timer and finished
//!    work are all reached in a later turn.
//! 3. A host survives what it carries: a panic in a task, a timer's callback or work is caught and logged.
//! 4. A host that is shutting down refuses by dropping: the future given to `spawn` or `work` is dropped
//!    unpolled, the timer never fires. Nothing hangs and nothing panics.

mod chance;
mod explorer;
mod observation;
mod port;
mod threads;
mod timers;
mod virtual_clock;

pub use chance::{Chance, named_seed};
pub use explorer::{Chooser, Choosing, Pending, PossibleAnswers};
pub use observation::{AwaitKind, Label, Observation};
pub use port::{GiveAnswer, Host, Port, TimerHandle, WorkClock, WorkHandle, WorkTime};
pub use threads::{ArbiterLease, HostConfig, HostRuntime, HostStopped, NotLocalContext, StopReport, ThreadTag};
pub use timers::TimerKey;
pub use virtual_clock::{
    Deadlock, OrderChoices, Priorities, Random, Recorded, Replayed, Schedule, SimulatedConfig, SimulatedHost,
};

/// Calls something the host must survive; `what` says in the log what it was.
fn survive(what: &str, call: impl FnOnce()) {
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        let message = crate::panic_text::panic_message(payload);
        tracing::error!(what, message, "a panic was contained");
    }
}
