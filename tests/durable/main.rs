//! Runs that are kept: killed anywhere, gone on with, and told of.

mod crashes;
mod doubts;
mod failing;
mod outside;
#[path = "../../core/tests/run/shapes.rs"]
mod shapes;
mod triggers;
#[path = "../../store/tests/runs/workflows.rs"]
mod workflows;
