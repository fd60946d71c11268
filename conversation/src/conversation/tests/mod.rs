//! Tests of conversations.
//!
//! - `cases`: acceptance cases of the SPEC.
//! - `random`: properties of generated inputs, checked against simple reference models.
//! - `growth`: complexity, measured in operations.

mod cases;
mod growth;
mod notation;
mod random;
