//! Runs beyond those that the process remembers: the one place where a store of runs joins the service.

use std::io;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::Event;

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// Names it.
    pub run_id: String,
    /// Its workflow.
    pub workflow_id: String,
    /// The session that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Its status: how it ended, or where it is.
    pub status: String,
    /// Milliseconds since the Unix epoch.
    pub started_at: u64,
    /// When something of it happened last, likewise.
    pub updated_at: u64,
    /// The sequence of its last event so far; 0 where none has come.
    pub last_sequence: u64,
}

/// Which runs a list has.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Only runs of this status.
    pub status: Option<String>,
    /// Only runs of this workflow.
    pub workflow: Option<String>,
    /// Only runs of this session.
    pub session: Option<String>,
    /// Only runs before this one, as (`started_at`, `run_id`): lists begin with the youngest.
    pub before: Option<(u64, String)>,
    /// At most so many.
    pub limit: usize,
}

/// Runs that were carried before, or by another process: what a store knows. Asked only for what the process itself does not
/// have.
pub trait RunArchive: Send + Sync + 'static {
    /// A run's events after a sequence, oldest first, at most `limit`; empty where there are none.
    fn events<'a>(&'a self, run_id: &'a str, after: u64, limit: usize) -> BoxFuture<'a, io::Result<Vec<Event>>>;

    /// Runs, youngest first.
    fn runs<'a>(&'a self, query: &'a RunQuery) -> BoxFuture<'a, io::Result<Vec<RunSummary>>>;

    /// A run's report so far; none where the run is not known.
    fn report<'a>(&'a self, run_id: &'a str) -> BoxFuture<'a, io::Result<Option<Value>>>;
}

/// No runs but those of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoArchive;

impl RunArchive for NoArchive {
    fn events<'a>(&'a self, _: &'a str, _: u64, _: usize) -> BoxFuture<'a, io::Result<Vec<Event>>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn runs<'a>(&'a self, _: &'a RunQuery) -> BoxFuture<'a, io::Result<Vec<RunSummary>>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn report<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Option<Value>>> {
        std::future::ready(Ok(None)).boxed()
    }
}
