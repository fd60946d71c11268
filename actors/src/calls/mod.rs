//! Calls of the embedding program's code: the input of a function, the origin of a call, and the call that is running.
//!
//! Not here: traits of that code, which are in `ports`, and calls of models, which are in `thread`.

pub(crate) mod call_context;
pub mod current_call;
pub(crate) mod input;
