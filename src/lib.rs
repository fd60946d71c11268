//! The face of Pirn: load workflows, run them, watch them.

pub mod models;
pub mod profiles;
pub mod script;
pub mod tokens;
pub mod tools;
