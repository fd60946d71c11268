//! Runs that are kept: killed anywhere, gone on with, and told of.

mod answers;
mod bounds;
mod costs;
mod crashes;
mod doubts;
mod failing;
mod golden;
mod migrations;
mod outside;
mod parked;
mod power;
mod questions;
mod sessions;
#[path = "../../core/tests/run/shapes.rs"]
mod shapes;
mod shutdown;
mod small;
mod standing;
mod trigger_calls;
mod triggers;
mod waits;
#[path = "../../store/tests/runs/workflows.rs"]
mod workflows;
