//! The sides that are measured beside each other.

pub mod local;
pub mod pirn;
pub mod raw;
mod spin;
pub mod workflows;

pub use spin::Spin;

/// Pirn on arbiters of its own.
pub const PIRN: &str = "pirn";
/// The same, with a subscriber to every event.
pub const HEARD: &str = "pirn, heard";
/// Pirn on the thread that measures.
pub const LOCAL: &str = "pirn, local";
