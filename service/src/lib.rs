//! Workflows over HTTP: runs that clients start, follow and control, event streams that resume, metrics, an OpenAPI document.
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
//!
//! # Modules
//!
//! A module imports only modules of lower lines:
//!
//! ```text
//! export
//!   ↓
//! api
//!   ↓
//! mcp
//!   ↓
//! wire
//!   ↓
//! lifecycle
//!   ↓
//! body  events  readiness  sessions  snapshot
//!   ↓
//! state
//!   ↓
//! options
//!   ↓
//! runs  server
//!   ↓
//! audit  catalogue  limits
//!   ↓
//! http  memory  metrics  studio
//! ```
//!
//! Reading order:
//! 1. `state`: what the requests of a service share. `api`: the routes, with a file for each group of handlers.
//! 2. `lifecycle`: starting and resuming runs, and sending them inputs. `runs`: those in memory, and in `runs::store` all others.
//!    `events::history`: what happened in a run.
//! 3. `events::recorder` and `runs::events`: the events of a run, recorded once; `events::following`: those of runs of other
//!    processes. `events::feed`, `events::sse` and `wire`: streams of them in each protocol.
//! 4. `mcp`: workflows as MCP tools. `metrics` and `snapshot`: what `/metrics` shows. `studio`: the page. `export`: the page of
//!    one run as a file.
#![allow(
    clippy::disallowed_methods,
    reason = "requests run on the server's tokio runtime and by the real clock, not on the engine's host"
)]

mod api;
mod audit;
mod body;
mod catalogue;
mod events;
#[cfg(feature = "studio")]
mod export;
mod http;
mod lifecycle;
mod limits;
#[cfg(feature = "mcp")]
mod mcp;
mod memory;
mod metrics;
mod options;
mod readiness;
mod runs;
mod server;
mod sessions;
mod snapshot;
mod state;
mod studio;
mod wire;

#[cfg(feature = "studio")]
pub use export::export_run;
pub use http::access::Access;
pub use http::caller::{Grant, Role, Roles};
pub use http::invalid_option::InvalidOption;
#[cfg(feature = "jwt")]
pub use http::jwt::{JwtOptions, JwtVerifier};
pub use http::problem::{Problem, ProblemCode};
pub use http::tenant::Tenant;
pub use lifecycle::admission::forget_usage;
pub use lifecycle::start::{MAX_RUN_ID, is_run_id};
pub use limits::Limits;
#[cfg(feature = "mcp")]
pub use mcp::McpStdioError;
pub use options::Options;
pub use runs::idempotency::forget_keys;
pub use runs::quota::TenantLimits;
pub use runs::store::archive::{RunArchive, RunQuery, RunSummary};
pub use server::listener::{Listener, serve, serve_on};
#[cfg(feature = "tls")]
pub use server::tls::Tls;
pub use state::Service;
pub use studio::StudioMode;

#[cfg(feature = "otel")]
pub use pirn_otel::{MetricsExport, MetricsOptions, StartError};

use pirn::Engine;

/// Returns the router of a service over an engine. Its routes start with `/v1`, in addition to `/healthz`, `/readyz`, `/metrics`
/// and `/openapi.json`. With the feature `studio` it has the page `/studio/` too, and `/` redirects to it. Use [`Service`] to drain the service or to change its tokens.
pub fn router(engine: Engine, options: Options) -> axum::Router {
    Service::new(engine, options).router()
}
