//! Events and triggers in a real engine: causes, waits, and the end of chains.

mod actions;
mod chains;
mod custom_actions;
mod host_chains;
mod last_events;
mod many_triggers;
mod schedules;
mod scripts;
mod variables;
mod waiting_triggers;
