//! Spans of runs, exported by OTLP over HTTP.
//!
//! A span is made from two events of a run: the one that begins something and the one that ends it. Its ids derive from the
//! run's id and the sequence or thread of the first event, so whoever sees the same events makes the same spans.
//!
//! | span | begins | ends |
//! |---|---|---|
//! | `invoke_workflow` | a main thread, a called or a triggered sub-workflow starts | it ends |
//! | `branch` | a fork's path starts | it ends |
//! | `join` | a JOIN waits | it is decided; linked to its branches |
//! | `chat` | a model request is prepared | the reply, or the node's failure |
//! | `execute_tool` | a tool call starts; where a person is asked before, with the answer | it ends |
//! | `wait` | a WAIT begins | it ends |
//!
//! A wait for a person has no span: it is only in those of the threads and runs around it.

mod export;
pub mod names;
mod resource;
mod spans;
#[cfg(test)]
mod tests;

pub use export::{Telemetry, TelemetryOptions};
#[cfg(feature = "service")]
pub(crate) use resource::resource;
