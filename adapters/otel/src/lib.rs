//! Export by OTLP over HTTP: spans of an engine's runs ([`Telemetry`]), and metrics of a service ([`MetricsExport`]).
//!
//! A span is built from two events of a run: its start and its end. Span ids are derived from the run's id and the sequence number
//! or thread of the first event, so every observer of these events builds identical spans.
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
//! The wait for a person has no separate span; it is part of the spans of the enclosing threads and runs.
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! export  metrics
//!   ↓
//! resource  spans  start_error
//!   ↓
//! names
//! ```
//!
//! Reading order:
//! 1. `export`: the thread that observes the events of an engine and sends spans.
//! 2. `spans`: from events to spans.
//! 3. `metrics`: the thread that sends metrics at intervals.

mod export;
mod metrics;
pub mod names;
mod resource;
mod spans;
mod start_error;
#[cfg(test)]
mod tests;

pub use export::{Telemetry, TelemetryOptions};
pub use metrics::{MetricsExport, MetricsOptions};
/// The OTLP messages in the version that [`MetricsExport::start`] uses.
pub use opentelemetry_proto;
pub use start_error::StartError;
