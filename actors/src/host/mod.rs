//! The host: the interface between Pirn's actors and their executor.
//!
//! 1. Actors access time, timers, tasks, work and random numbers only through [`Host`]. Therefore the same actors run on real
//!    threads ([`HostRuntime`]), on the caller's thread ([`HostRuntime::local`]), on one thread with a virtual clock
//!    ([`SimulatedHost`]), and on any other implementation of [`Port`].
//! 2. A host never runs code inside the call that schedules it: spawned tasks, due timers and finished work run in a later turn.
//! 3. Panics in tasks, timer callbacks and work are caught and logged.
//! 4. During shutdown a host drops what it receives: the future given to `spawn` or `work` is dropped without being polled, and
//!    timers do not fire. Nothing blocks or panics.
//!
//! Not here: anything that names an actor or a message.

mod chance;
mod explorer;
mod observation;
mod port;
mod threads;
mod timers;
mod virtual_clock;

pub use crate::panic_text::panic_message;
pub use chance::{Chance, named_seed};
pub use explorer::{Chooser, ChooserOptions, Pending, PossibleAnswers};
pub use observation::{AwaitKind, Label, Observation};
pub use port::{GiveAnswer, Host, Port, TimerHandle, WorkClock, WorkHandle, WorkTime};
pub use threads::{ArbiterLease, HostConfig, HostRuntime, HostStopped, NotLocalContext, StopReport, ThreadTag};
pub use timers::TimerKey;
pub use virtual_clock::{
    Deadlock, OrderChoices, Priorities, Random, Recorded, Replayed, Schedule, SimulatedConfig, SimulatedHost,
};

/// Runs a closure and returns its result. A panic is logged, with `what` as the name of the closure; the result is then none.
pub fn survive<T>(what: &str, call: impl FnOnce() -> T) -> Option<T> {
    let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    let log = |payload| {
        let message = panic_message(payload);
        tracing::error!(what, message, "a panic was contained");
    };
    called.map_err(log).ok()
}
