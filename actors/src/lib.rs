//! The actors that run Pirn's machines, and the host interface that they use.
//!
//! The machines (in `pirn-core`) make all decisions; this crate transfers messages and executes effects. Actors are started with
//! [`contain::start_contained`] and use their [`host::Host`] for time, timers and tasks. Only the host
//! implementations use tokio's runtime and timers directly.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! engine
//!   ↓
//! mailbox
//!   ↓
//! conversation  supervisor  thread  trigger_matcher
//!   ↓
//! triggers
//!   ↓
//! event_bus  run
//!   ↓
//! backlog
//!   ↓
//! ports  protocol
//!   ↓
//! calls  contain  sessions
//!   ↓
//! answer  host
//!   ↓
//! acknowledgements  history  journal  panic_text
//! ```
//!
//! Reading order:
//! 1. `engine`: the admission of a run and its lookup.
//! 2. `mailbox`: the queue of a run, with one message at a time.
//! 3. `run::turn`, `supervisor`, `thread` and `conversation`: the actors of a run, which step the machine and perform its effects.
//! 4. `event_bus` and `trigger_matcher`: the actors of an arbiter.
//! 5. `host`: time, timers, tasks and threads. `ports`: the traits that the embedding layer implements.

mod acknowledgements;
pub mod answer;
mod backlog;
mod calls;
pub mod contain;
mod conversation;
pub mod engine;
mod event_bus;
mod history;
pub mod host;
pub mod journal;
mod mailbox;
mod panic_text;
pub mod ports;
mod protocol;
mod run;
pub mod sessions;
mod supervisor;
mod thread;
mod trigger_matcher;
mod triggers;

pub use calls::current_call;
pub use history::History;
pub use pirn_core::run::{Messages, ThreadList};
pub use protocol::events;
pub use run::{call_settings, followed_run, rebuilt_run};
