//! The shared code of the scenario tests.

pub mod rebuilt;
pub mod recorded_script;
pub mod schedules;
pub mod servers;
pub mod stress;
pub mod wire;
pub mod world;
