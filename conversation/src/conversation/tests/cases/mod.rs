//! Acceptance cases of the SPEC. The id of a case is in the test's name or in the message of its assertion.
//! `marks` and `operation`: D and E; `select`: C; `machine`, `compression` and `tokens`: H; `pinned`: I.
//!
//! Not here: generated inputs ([`random`](super::random)).

pub(super) mod compression;
mod machine;
mod marks;
mod operation;
mod pinned;
mod select;
mod tokens;
