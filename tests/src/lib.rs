//! What the scenario tests share.

pub mod wire;
pub mod world;
