//! Durable runs: killed at any commit, resumed, migrated and observed.

mod answers;
mod blocking_store;
mod concurrent_inputs;
mod costs;
mod crashes;
mod deferred_tools;
mod effects_in_doubt;
mod external_effects;
pub(crate) mod failing_store;
mod followed;
mod forks;
mod golden;
mod in_servers;
mod messages;
mod migration_search;
mod migrations;
mod own_triggers;
mod parked;
mod plain_data;
mod postgres;
mod power_cuts;
mod put_runs;
mod questions;
mod recorded_budgets;
mod replays;
mod requests;
mod resources;
mod restate;
mod retried;
#[path = "../../engines/postgres/tests/server/mod.rs"]
mod server;
mod sessions;
#[path = "../../core/tests/run/shapes.rs"]
mod shapes;
mod shutdown;
mod skills;
mod small_workflows;
mod trigger_calls;
mod triggers;
mod turns;
mod waiting_status;
mod waits;
mod workflow_tools;
#[path = "../../store/tests/runs/workflows.rs"]
mod workflows;
