//! Events and triggers in a real engine: what sets what off, what waits for it, and what ends a chain.

mod actions;
mod chains;
mod custom_actions;
mod holding;
mod host_chains;
mod last_events;
mod many_triggers;
mod schedules;
mod scripts;
mod variables;
