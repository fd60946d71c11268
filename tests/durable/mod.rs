//! Durable runs: killed at any commit, resumed, migrated and observed.

mod costs;
mod crashes;
mod definitions;
mod effects;
pub(crate) mod faults;
mod forks;
mod golden;
mod inputs;
mod parked;
mod plain_data;
mod power_cuts;
mod replays;
mod requests;
#[path = "../../engines/postgres/tests/server/mod.rs"]
mod server;
mod servers;
#[path = "../../core/tests/run/shapes.rs"]
mod shapes;
mod shared_store;
mod shutdown;
mod small_workflows;
mod started;
mod triggers;
mod waiting_status;
#[path = "../../store/tests/runs/workflows.rs"]
mod workflows;
