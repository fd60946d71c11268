//! Views of the runs of a service: event streams, history, lists, status, metrics, spans.
//!
//! Not here: start and control of runs, which are in `runs`.

mod events;
mod followed_runs;
mod history;
mod metrics;
mod run_list;
mod started_runs;
mod status;
#[cfg(feature = "otel")]
mod traces;
