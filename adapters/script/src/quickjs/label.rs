//! Names in generated source that the author of a workflow cannot predict.

use std::hash::{BuildHasher, RandomState};

/// Returns a random identifier.
pub(crate) fn fresh_label() -> String {
    // The keys of `RandomState` are random.
    format!("$pirn_{:016x}", RandomState::new().hash_one(0_u8))
}
