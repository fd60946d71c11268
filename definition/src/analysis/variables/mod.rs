//! Checks of variables and of fields of outputs: names that no node sets, and values that are lost.
//!
//! Not here: which names a text reads ([`facts`](super::facts)).

pub(super) mod hidden_variables;
pub(super) mod lost_variables;
pub(super) mod output_fields;
