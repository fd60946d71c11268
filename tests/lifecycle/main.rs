//! Engines and runs from their start to their end: admission, pauses, limits, panics, shutdown.

mod busy_bus;
mod engine;
mod examples;
mod fair_shares;
mod generated;
mod limits;
mod loaded;
mod local;
mod memory;
mod nudges;
mod panics;
mod pauses;
mod rebuilt;
mod spans;
mod stress;
mod time_limits;
mod waiting_inside;
