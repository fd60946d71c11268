//! Who does the workloads.

pub mod local;
pub mod pirn;
pub mod raw;
mod spin;
pub mod workflows;

pub use spin::Spin;
