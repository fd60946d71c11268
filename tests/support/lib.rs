//! What the scenario tests share.

pub mod rebuilt;
pub mod schedules;
pub mod servers;
pub mod stress;
pub mod wire;
pub mod world;
