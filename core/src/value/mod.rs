//! JSON values of a run: lazily built outputs, and limits on size and nesting.
//!
//! Not here: operations on variables ([`crate::thread`]) and the strict parser of JSON text ([`crate::definition`]).

mod entries;
mod output;
mod size;

pub(crate) use entries::entries;
pub use output::Output;
pub use size::{MAX_LEVELS, MAX_TEXT, TOO_DEEP, TooDeep, has_too_deep, is_too_deep};
pub(crate) use size::{ValueBudget, levels, memory, too_deep};
