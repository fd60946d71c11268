//! The face of Pirn: load workflows, run them, watch them.

pub mod script;
