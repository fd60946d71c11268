//! Sides of the comparison.

pub mod local;
pub mod pirn;
pub mod raw;
mod spin;
pub mod workflows;

pub use spin::Spin;

/// Pirn on separate arbiters.
pub const PIRN: &str = "pirn";
/// Pirn on separate arbiters, with a subscriber to every event.
pub const HEARD: &str = "pirn, subscribed";
/// Pirn on the measuring thread.
pub const LOCAL: &str = "pirn, local";
