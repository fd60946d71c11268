//! Conversations with language models, and the decisions about one model call, as pure state machines.
//!
//! This crate has no clock, randomness or I/O, and it knows no run: `pirn-core` decides which conversation a thread reads and writes.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! model_call
//!   ↓
//! conversation  fair_queue
//! ```
//!
//! Reading order:
//! 1. `conversation`: the log of messages (`history/log.rs`), the request for a model (`requests/request.rs`), `compression` and the
//!    machine around them.
//! 2. `model_call`: retries, the choice of the profile, limits on requests, and prices.
//! 3. `fair_queue`: a queue that takes turns between its users.

pub mod conversation;
pub mod fair_queue;
pub mod model_call;
