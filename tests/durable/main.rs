//! Durable runs: killed at any commit, resumed, migrated and observed.

mod answers;
mod at_once;
mod bounds;
mod costs;
mod crashes;
mod doubts;
mod elsewhere;
#[path = "../lifecycle/examples.rs"]
mod examples;
mod failing;
#[path = "../lifecycle/generated.rs"]
mod generated;
mod golden;
mod in_servers;
mod migrations;
mod outside;
mod parked;
mod plain_data;
mod postgres;
mod power;
mod questions;
mod replays;
mod resources;
mod restate;
mod retried;
#[path = "../../engines/postgres/tests/server/mod.rs"]
mod server;
mod sessions;
#[path = "../../core/tests/run/shapes.rs"]
mod shapes;
mod shutdown;
mod small;
mod standing;
mod steering;
mod trigger_calls;
mod triggers;
mod turns;
mod waits;
#[path = "../../store/tests/runs/workflows.rs"]
mod workflows;
