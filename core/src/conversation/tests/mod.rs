//! Acceptance cases under their ids, and properties against oracles written from SPEC.

mod case_marks;
mod case_operation;
mod case_pinned;
mod case_select;
mod case_tokens;
mod notation;
mod slopes;
