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
//! parked
//!   ↓
//! supervisor  trigger_matcher
//!   ↓
//! conversation  thread  trigger_call
//!   ↓
//! followed_run  rebuilt_run  turn
//!   ↓
//! environment
//!   ↓
//! event_bus  firing  function_table  run_context
//!   ↓
//! backlog  follow_up  inline_services  listeners  pending_durability
//!   ↓
//! call_settings
//!   ↓
//! ports  protocol
//!   ↓
//! contain  event_waiters  sessions  spans
//!   ↓
//! answer  host  input
//!   ↓
//! acknowledgements  call_context  current_call  history  journal  panic_text  settings  step_buffers
//! ```
//!
//! Reading order:
//! 1. `engine`: the admission of a run and its lookup.
//! 2. `mailbox`: the queue of a run, with one message at a time.
//! 3. `turn`, `supervisor`, `thread` and `conversation`: the actors of a run, which step the machine and perform its effects.
//! 4. `event_bus` and `trigger_matcher`: the actors of an arbiter.
//! 5. `host`: time, timers, tasks and threads. `ports`: the traits that the embedding layer implements.

mod acknowledgements;
pub mod answer;
mod backlog;
mod call_context;
pub mod call_settings;
pub mod contain;
mod conversation;
pub mod current_call;
pub mod engine;
mod environment;
mod event_bus;
mod event_waiters;
mod firing;
mod follow_up;
pub mod followed_run;
mod function_table;
mod history;
pub mod host;
mod inline_services;
mod input;
pub mod journal;
mod listeners;
mod mailbox;
mod panic_text;
mod parked;
mod pending_durability;
pub mod ports;
mod protocol;
pub mod rebuilt_run;
mod run_context;
pub mod sessions;
mod settings;
mod spans;
mod step_buffers;
mod supervisor;
mod thread;
mod trigger_call;
mod trigger_matcher;
mod turn;

pub use history::History;
pub use pirn_core::run::{Messages, ThreadList};
pub use protocol::events;
