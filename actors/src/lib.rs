//! The actors that carry Pirn's machines, and the port they stand on.
//!
//! Machines (in `pirn-core`) decide; what lives here only carries messages and effects. An actor is started
//! with [`contain::start_contained`] and asks its [`host::Host`] for time, timers and tasks; nothing here asks
//! actix or tokio directly.

mod acknowledgements;
pub mod answer;
mod backlog;
mod call_context;
pub mod cause;
pub mod contain;
mod conversation;
pub mod engine;
mod event_bus;
mod event_waiters;
mod firing;
mod follow_up;
mod function_table;
mod history;
pub mod host;
mod in_place;
mod input;
pub mod journal;
mod listeners;
mod mailbox;
mod panic_text;
mod parked;
pub mod ports;
mod protocol;
pub mod rebuilt;
mod room;
mod run_context;
pub mod sessions;
mod settings;
mod spans;
mod supervisor;
mod thread;
mod trigger_call;
mod trigger_matcher;
mod turn;
mod unkept;
mod world;

pub use history::History;
pub use pirn_core::run::{Messages, ThreadList};
pub use protocol::events;
