//! JSON values of a run: lazily built outputs, limits on size and nesting, and mismatches with a schema.
//!
//! Not here: operations on variables (`pirn_core::thread`) and the strict parser of JSON text ([`crate::definition`]).

mod output;
mod schema_mismatch;
mod size;

pub use output::Output;
pub use schema_mismatch::SchemaMismatch;
pub(crate) use size::levels_up_to;
pub use size::{
    MAX_LEVELS, MAX_TEXT, TOO_DEEP, TooDeep, ValueBudget, has_too_deep, is_too_deep, levels, memory, too_deep,
};
