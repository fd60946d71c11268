//! Engines and runs from their start to their end: admission, pauses, limits, panics, shutdown.

mod busy_bus;
mod engine;
mod fair_shares;
mod idle_runs;
mod inline_waits;
mod limits;
mod memory;
mod panics;
mod pauses;
pub(crate) mod rebuilding;
mod reloaded_files;
mod single_thread;
mod spans;
mod time_limits;
