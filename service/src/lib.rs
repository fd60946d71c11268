//! Workflows over HTTP: runs that are started, watched and steered, event streams that resume, metrics, an OpenAPI document.
//!
//! [`router`] returns an axum `Router` to serve or to nest; `pirn serve` is a program around it. `docs/service.md` documents every
//! route.
//!
//! ```
//! use pirn::Engine;
//! use pirn_service::{Options, router};
//!
//! let engine = Engine::builder()
//!     .workflows(r#"{"id": "short", "edges": [{"from": "start", "to": "end"}],
//!         "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}]}"#)
//!     .build()?;
//! let app: axum::Router = axum::Router::new().nest("/workflows", router(engine, Options::default()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - A request is handled on the tokio runtime that serves the router; runs stay on the engine's threads.
//! - Clients cannot delay a run: each run has a bounded log of its events, and every stream reads that log independently. A
//!   reader that falls behind the log receives the number of events that it missed.
//! - Everything that grows has a limit ([`Limits`]).
#![allow(
    clippy::disallowed_methods,
    reason = "requests run on the server's tokio runtime and by the real clock, not on the engine's host"
)]

mod access;
mod agui_thread;
mod api;
mod archive;
mod body;
mod catalogue;
mod event_log;
mod feed;
mod handle;
mod idempotency;
mod json;
mod json_text;
mod limits;
mod listener;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "mcp")]
mod mcp_limits;
mod memory;
mod metrics;
mod observed;
mod options;
mod pieces;
mod position;
mod problem;
mod progress;
mod questions;
mod recorder;
mod replays;
mod runs;
mod sse;
mod start;
mod state;
mod steering;
mod stored;
mod taken;
mod wire;

pub use access::Access;
pub use archive::{NoArchive, RunArchive, RunQuery, RunSummary};
pub use limits::Limits;
pub use listener::serve;
pub use options::Options;
pub use problem::{Problem, ProblemCode};
pub use state::Service;

#[cfg(feature = "otel")]
pub use pirn::telemetry::{MetricsExport, MetricsOptions};

use pirn::Engine;

/// Returns the router of a service over an engine. Its routes start with `/v1`, in addition to `/healthz`, `/readyz`, `/metrics`
/// and `/openapi.json`. Use [`Service`] to drain the service or to change its tokens.
pub fn router(engine: Engine, options: Options) -> axum::Router {
    Service::new(engine, options).router()
}
