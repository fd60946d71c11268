//! The interface to runs that are not in memory, which an embedding program can implement.

use std::io;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_conversation::conversation::Cost;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use pirn::Event;

/// A run in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// Id of the run.
    pub run_id: String,
    /// Id of its workflow.
    pub workflow_id: String,
    /// The session that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Final status of the run, or its present state.
    pub status: String,
    /// Milliseconds since the Unix epoch.
    pub started_at: u64,
    /// Time of its last change, milliseconds since the Unix epoch.
    pub updated_at: u64,
    /// The sequence of its last event; 0, and absent in JSON, if there is no event or only a replay can determine it.
    #[serde(skip_serializing_if = "is_zero")]
    pub last_sequence: u64,
    /// Time from its start to its end, in milliseconds; absent for a run that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Tokens that providers reported; absent if only a replay can tell. For an unfinished run, a lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Cost of the calls of profiles with prices, like `tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({"amount": 0.00125, "currency": "USD"}))]
    pub cost: Option<Cost>,
    /// Number of open questions to people; absent if only a replay can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_questions: Option<usize>,
    /// Reason why a run has the status WAITING: `interaction`, `event` or `timer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<&'static str>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(sequence: &u64) -> bool {
    *sequence == 0
}

/// Filter and page of a list of runs.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Restricts the list to runs of this status.
    pub status: Option<String>,
    /// Restricts the list to runs of this workflow.
    pub workflow: Option<String>,
    /// Restricts the list to runs of this session.
    pub session: Option<String>,
    /// Prefix of the ids of the listed runs: that of a tenant.
    pub id_prefix: Option<String>,
    /// Restricts the list to runs older than (`started_at`, `run_id`). Lists are ordered from the newest to the oldest.
    pub before: Option<(u64, String)>,
    /// Maximum number of runs.
    pub limit: usize,
}

/// Read access to runs that this process does not execute: earlier runs, and runs of other processes. The service queries it only
/// for runs that are not in memory.
pub trait RunArchive: Send + Sync + 'static {
    /// Returns a run's events after a sequence number, oldest first, at most `limit`; empty if no event follows.
    fn events<'a>(&'a self, run_id: &'a str, after: u64, limit: usize) -> BoxFuture<'a, io::Result<Vec<Event>>>;

    /// Returns runs, youngest first.
    fn runs<'a>(&'a self, query: &'a RunQuery) -> BoxFuture<'a, io::Result<Vec<RunSummary>>>;

    /// Returns a run's report so far; `None` if the archive has no such run.
    fn report<'a>(&'a self, run_id: &'a str) -> BoxFuture<'a, io::Result<Option<Value>>>;
}

/// An archive without runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoArchive;

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
