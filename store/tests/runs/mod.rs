//! Whole runs in a store, without actors: killed at every disk operation, and resumed.

mod crashes;
mod driver;
mod encrypted;
mod external;
#[path = "../../../core/tests/run/fixtures.rs"]
mod fixtures;
#[path = "../../../core/tests/run/shapes.rs"]
mod shapes;
mod sizes;
mod workflows;
