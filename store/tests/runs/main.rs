//! Whole runs in a store, without an actor: killed at every operation of the disk, and gone on with.

mod crashes;
mod driver;
mod outside;
#[path = "../../../core/tests/run/shapes.rs"]
mod shapes;
mod sizes;
mod workflows;
#[path = "../../../core/tests/run/world.rs"]
mod world;
