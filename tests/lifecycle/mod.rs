//! Engines and runs from their start to their end: admission, pauses, limits, panics, shutdown.

mod busy_bus;
mod engine;
pub(crate) mod examples;
mod fair_shares;
pub(crate) mod generated;
mod idle_runs;
mod inline_waits;
mod limits;
mod memory;
mod panics;
mod pauses;
mod rebuilt;
mod recorded_cases;
mod reloaded_files;
mod single_thread;
mod spans;
mod time_limits;
