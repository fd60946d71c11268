//! Tests of the way from text to compiled graph, through the public API.

mod events;
mod fixtures;
mod graphs;
mod history_options;
mod legacy;
mod loader;
#[cfg(feature = "schema")]
mod replaced_values;
#[cfg(feature = "schema")]
mod schema;
mod seeds;
mod sizes;
mod sources;
