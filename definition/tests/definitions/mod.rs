//! Tests of the way from text to compiled graph, through the public API.

mod event_fields;
mod fixtures;
mod fork_join;
mod graph_rules;
mod history_options;
mod legacy;
mod loader;
mod loops;
mod oracle;
mod references;
#[cfg(feature = "schedule")]
mod schedules;
#[cfg(feature = "schema")]
mod schema;
mod seeds;
mod short_forks;
mod sizes;
mod sources;
mod triggered;
mod triggers;
