//! What the scenario tests share.

pub mod world;
