//! Whole runs in a store, without actors: killed at every disk operation, and resumed.

mod crashes;
mod driver;
mod outside;
#[path = "../../../core/tests/run/shapes.rs"]
mod shapes;
mod sizes;
mod workflows;
#[path = "../../../core/tests/run/world.rs"]
mod world;
